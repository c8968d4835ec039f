"""Our own server: nothing is found, whatever it is sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamcodec.blackbox.examination import ProbeState, Result
from streamcodec.blackbox.probes import PROBES
from streamcodec.service import ANY_SIZE, Model, ModelRegistry, TensorMetadata, demo_models
from tests.blackbox.peers import MIXED, examiner, inputs, mutations
from tests.server.programs import server_here

TIMEOUT = 60.0
ABOUT_MODELS = {"boundaries", "sizes", "shapes", "datatypes", "members"}
DECLARED = (
    TensorMetadata("x", "FP16", (ANY_SIZE, 3)),
    TensorMetadata("y", "UINT8", (2, 2)),
    TensorMetadata("z", "BF16", ()),
)
NOT_FOR_ANY_MODEL = {"members/input-missing", "members/input-unknown", "boundaries/scalar"}
"""A model that declares no inputs takes any; and none of those that are given here is without dimensions."""


def _models() -> ModelRegistry:
    registry = demo_models()
    registry.add(Model(name="declared", predict=lambda request: request.values, inputs=DECLARED, outputs=DECLARED))
    one = (TensorMetadata("x", "INT32", (ANY_SIZE,)),)
    registry.add(Model(name="one", predict=lambda request: request.values, inputs=one, is_batching=True))
    return registry


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, int]]:
    with server_here(_models()) as (_, address):
        yield address


@pytest.fixture(scope="module")
def results(address: tuple[str, int]) -> dict[str, Result]:
    """Every named probe, the heavy ones, too, and some of chance."""
    mixed = examiner(address, MIXED, timeout=TIMEOUT)
    probes = [*PROBES, *mutations(mixed.target, seed=1, count=50)]
    return {result.probe.name: result for result in mixed.examine(probes)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [probe.name for probe in PROBES])
def test_probe_finds_nothing(results: dict[str, Result], name: str) -> None:
    result = results[name]
    assert result.finding is None, result.finding
    assert result.state is (ProbeState.NOT_APPLICABLE if name in NOT_FOR_ANY_MODEL else ProbeState.PASSED), result.note


@pytest.mark.slow
def test_mutations_find_nothing(results: dict[str, Result]) -> None:
    mutated = [result for name, result in results.items() if name.startswith("mutations/")]
    assert len(mutated) == 50
    assert {result.state for result in mutated} == {ProbeState.PASSED}
    assert {result.note.partition(":")[0] for result in mutated} >= {"200", "400"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "of"),
    [
        ("declared", (("x", "FP16", (-1, 3)), ("y", "UINT8", (2, 2)), ("z", "BF16", ()))),
        ("one", (("x", "INT32", (-1,)),)),
    ],
)
def test_models_with_metadata_show_nothing_either(
    address: tuple[str, int], model: str, of: tuple[tuple[str, str, tuple[int, ...]], ...]
) -> None:
    declared = examiner(address, inputs(*of), model=model, is_declared=True, timeout=TIMEOUT)
    probes = [probe for probe in PROBES if probe.group in ABOUT_MODELS] + mutations(declared.target, 2, 30)
    results = list(declared.examine(probes))
    assert [(result.probe.name, result.finding) for result in results if result.finding] == []
    assert sum(result.state is ProbeState.PASSED for result in results) > 90
