"""The probes as such: each has a name, words, and the same request every time; none is larger than it may be."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.mutations import mutations
from streamcodec.blackbox.probe import Probe
from streamcodec.blackbox.probes import PROBES
from streamcodec.blackbox.target import NotApplicableError, Target
from streamcodec.blackbox.verdicts import Expectation
from tests.blackbox.peers import MIXED, inputs

TARGET = Target(authority="x", prefix="/a", model="m", inputs=MIXED, is_declared=False)
DECLARED = replace(TARGET, is_declared=True)
ONLY_DECLARED = {"members/input-missing", "members/input-unknown"}
LIGHT = [probe for probe in PROBES if not probe.is_heavy]
MAX_BYTES = 160_000
MAX_HEAVY_BYTES = 17 << 20


def test_names_are_unique_and_heavy_ones_come_last() -> None:
    assert len({probe.name for probe in PROBES}) == len(PROBES) == 300
    assert [probe.is_heavy for probe in PROBES] == sorted(probe.is_heavy for probe in PROBES)
    assert {probe.group for probe in PROBES if probe.is_heavy} == {"heavy"}


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_probe(probe: Probe) -> None:
    assert re.fullmatch(r"[a-z-]+/[a-z0-9^.-]+", probe.name, re.IGNORECASE)
    assert probe.tests
    assert probe.source
    target = DECLARED if probe.name in ONLY_DECLARED else TARGET
    request = probe.make(target)
    assert 0 < len(request.data) <= (MAX_HEAVY_BYTES if probe.is_heavy else MAX_BYTES)
    assert all(request.pieces)
    assert len(request.pieces) <= 300
    assert probe.make(target) == request


def test_every_expectation_has_probes() -> None:
    assert {probe.expects for probe in PROBES} == set(Expectation)


@pytest.mark.parametrize(
    "of",
    [
        inputs(("x", "BF16", (2,))),
        inputs(("s", "BYTES", (1,))),
        inputs(("b", "BOOL", ())),
        inputs(("u", "UINT8", (-1,))),
    ],
)
def test_probes_of_a_poorer_model_say_why_they_have_no_meaning(of: tuple[Input, ...]) -> None:
    target = replace(DECLARED, inputs=of)
    reasons = []
    for probe in LIGHT:
        try:
            probe.make(target)
        except NotApplicableError as reason:
            reasons.append(str(reason))
    assert reasons
    assert all(reason.startswith(("the model ", "the server ")) for reason in reasons)


def test_servers_without_binary_tensors_are_given_json() -> None:
    target = replace(TARGET, has_binary=False)
    made = {}
    for probe in LIGHT:
        try:
            made[probe.name] = probe.make(target).data
        except NotApplicableError:
            continue
    assert not any(name.startswith(("header-length/", "elements/")) for name in made)
    assert b"binary_data_size" not in made["members/name-empty"]
    assert b"Inference-Header" not in made["json/array"]
    assert not list(mutations(target, 0, 5))


def _requests(seed: int, count: int) -> list[bytes]:
    return [probe.make(TARGET).data for probe in mutations(TARGET, seed, count)]


def test_mutations_come_from_the_seed_alone() -> None:
    assert _requests(3, 20) == _requests(3, 20)
    assert _requests(3, 20)[:5] == _requests(3, 5)
    assert len({*_requests(3, 20), *_requests(4, 20)}) > 30


def test_mutations_are_right_and_wrong_ones() -> None:
    made = list(mutations(TARGET, 0, 200))
    assert [probe.name for probe in made[:2]] == ["mutations/0-0", "mutations/0-1"]
    refused = [probe for probe in made if probe.expects is Expectation.REFUSE]
    free = [probe for probe in made if probe.expects is Expectation.EITHER]
    assert len(refused) + len(free) == 200
    assert min(len(refused), len(free)) > 20
    assert len({probe.tests.partition(":")[0] for probe in refused}) >= 8
    assert sum(probe.make(TARGET).tensors is not None for probe in free) > 10
