"""The probes as such: each has a name, words, and the same request every time; none is larger than it may be."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest

from streamcodec.blackbox.inputs import Input
from streamcodec.blackbox.probe import Probe
from streamcodec.blackbox.probes import PROBES
from streamcodec.blackbox.target import NotApplicableError, Target
from streamcodec.blackbox.verdicts import Expectation
from streamcodec.blackbox.weaknesses import _TABLE, weaknesses_of
from tests.blackbox.peers import MIXED, inputs, mutations, named

TARGET = Target(authority="x", prefix="/a", model="m", inputs=MIXED, is_declared=False)
DECLARED = replace(TARGET, is_declared=True)
SCALAR = replace(TARGET, inputs=inputs(("x", "FP32", ())))
OTHERS = {"members/input-missing": DECLARED, "members/input-unknown": DECLARED, "boundaries/scalar": SCALAR}
LIGHT = [probe for probe in PROBES if not probe.is_heavy]
MAX_BYTES = 160_000
MAX_HEAVY_BYTES = 17 << 20

NAMES = {
    "CWE-22": "Path Traversal",
    "CWE-113": "HTTP Request/Response Splitting",
    "CWE-130": "Improper Handling of Length Parameter Inconsistency",
    "CWE-158": "Improper Neutralization of Null Byte or NUL Character",
    "CWE-173": "Improper Handling of Alternate Encoding",
    "CWE-176": "Improper Handling of Unicode Encoding",
    "CWE-177": "Improper Handling of URL Encoding",
    "CWE-190": "Integer Overflow or Wraparound",
    "CWE-230": "Improper Handling of Missing Values",
    "CWE-232": "Improper Handling of Undefined Values",
    "CWE-235": "Improper Handling of Extra Parameters",
    "CWE-236": "Improper Handling of Undefined Parameters",
    "CWE-238": "Improper Handling of Incomplete Structural Elements",
    "CWE-239": "Failure to Handle Incomplete Element",
    "CWE-354": "Improper Validation of Integrity Check Value",
    "CWE-407": "Inefficient Algorithmic Complexity",
    "CWE-409": "Improper Handling of Highly Compressed Data",
    "CWE-444": "HTTP Request/Response Smuggling",
    "CWE-674": "Uncontrolled Recursion",
    "CWE-681": "Incorrect Conversion between Numeric Types",
    "CWE-694": "Use of Multiple Resources with Duplicate Identifier",
    "CWE-770": "Allocation of Resources Without Limits or Throttling",
    "CWE-789": "Memory Allocation with Excessive Size Value",
    "CWE-1284": "Improper Validation of Specified Quantity in Input",
    "CWE-1286": "Improper Validation of Syntactic Correctness of Input",
    "CWE-1287": "Improper Validation of Specified Type of Input",
    "CWE-1288": "Improper Validation of Consistency within Input",
    "CVE-2023-38697": "protocol-http1: signs and prefixes of lengths, LF in chunk extensions",
    "CVE-2025-22871": "Go net/http: LF ends the line of a chunk's size",
    "CVE-2025-43859": "h11: any two bytes end a chunk",
    "CVE-2025-59822": "http4s: a line of a trailer without a colon ends it",
}
"""What each name means, in the words of its database or shorter."""


def test_names_are_unique_and_heavy_ones_come_last() -> None:
    assert len({probe.name for probe in PROBES}) == len(PROBES) == 300
    assert [probe.is_heavy for probe in PROBES] == sorted(probe.is_heavy for probe in PROBES)
    assert {probe.group for probe in PROBES if probe.is_heavy} == {"heavy"}


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_probe(probe: Probe) -> None:
    assert re.fullmatch(r"[a-z-]+/[a-z0-9^.-]+", probe.name, re.IGNORECASE)
    assert probe.tests
    assert probe.source
    target = OTHERS.get(probe.name, TARGET)
    request = probe.make(target)
    assert 0 < len(request.data) <= (MAX_HEAVY_BYTES if probe.is_heavy else MAX_BYTES)
    assert all(request.pieces)
    assert len(request.pieces) <= 300
    assert probe.make(target) == request


def test_weaknesses() -> None:
    """Each name is known and used, and each pattern is the first one that fits some probe."""
    assert {each for probe in PROBES for each in probe.weaknesses} == set(NAMES)
    assert all(re.fullmatch(r"CWE-\d+|CVE-\d{4}-\d{4,}", name) for name in NAMES)
    names = [probe.name for probe in PROBES]
    for patterns, found in _TABLE:
        for pattern in patterns.split():
            fitting = [name for name in names if fnmatchcase(name, pattern)]
            assert any(" ".join(weaknesses_of(name)) == found for name in fitting), pattern
    unnamed = {probe.group for probe in PROBES if not probe.weaknesses}
    assert unnamed == {"boundaries", "compression", "http", "routes"}
    assert not any(probe.weaknesses for probe in PROBES if probe.expects is Expectation.ACCEPT)


@pytest.mark.parametrize("model", ["m", "m" * 200])
def test_head_is_cut_in_four(model: str) -> None:
    (probe,) = named("boundaries/cut-in-head")
    request = probe.make(replace(TARGET, model=model))
    assert len(request.pieces) == 4
    assert b"\r\n\r\n" in request.pieces[-1]
    assert max(map(len, request.pieces[:3])) - min(map(len, request.pieces[:3])) == 0


@pytest.mark.parametrize("name", ["boundaries/bytes-cut", "boundaries/bytes-in-chunks", "heavy/many-elements"])
@pytest.mark.parametrize("shape", [(-1, 1000), (3, -1, 7), (-1, 30_000)])
def test_fixed_sizes_do_not_multiply_what_is_sent(name: str, shape: tuple[int, ...]) -> None:
    (probe,) = named(name)
    plain, fixed = (probe.make(replace(TARGET, inputs=inputs(("s", "BYTES", of)))) for of in ((-1,), shape))
    assert len(fixed.data) < len(plain.data) + 12 * 30_000
    assert len(fixed.pieces) <= 300


def test_pieces_are_bounded() -> None:
    (probe,) = named("boundaries/cut-anywhere")
    request = probe.make(replace(TARGET, inputs=inputs(("x", "FP32", (100_000,)))))
    assert len(request.pieces) < 300
    assert len(request.pieces[-1]) > 300_000


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("values/scalar", (), "the model has no input with dimensions"),
        ("values/scalar", (2, 0), "the model has no input with dimensions"),
        ("boundaries/scalar", (-1,), "the model has no input without dimensions"),
    ],
)
def test_probes_of_dimensions(name: str, shape: tuple[int, ...], reason: str) -> None:
    """An input of no elements is not what a probe is about."""
    (probe,) = named(name)
    with pytest.raises(NotApplicableError, match=reason):
        probe.make(replace(TARGET, inputs=inputs(("x", "FP32", shape))))


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


def _requests(seed: int, count: int) -> list[bytes]:
    return [probe.make(TARGET).data for probe in mutations(TARGET, seed, count)]


def test_mutations_come_from_the_seed_and_their_number() -> None:
    assert _requests(3, 20) == _requests(3, 20)
    assert _requests(3, 20)[:5] == _requests(3, 5)
    assert len({*_requests(3, 20), *_requests(4, 20)}) > 30


def test_mutations_are_right_and_wrong_ones() -> None:
    made = mutations(TARGET, 0, 200)
    assert [probe.name for probe in made[:2]] == ["mutations/0-0", "mutations/0-1"]
    refused = [probe for probe in made if probe.expects is Expectation.REFUSE]
    free = [probe for probe in made if probe.expects is Expectation.EITHER]
    assert len(refused) + len(free) == 200
    assert min(len(refused), len(free)) > 20
    assert len({probe.tests.partition(":")[0] for probe in refused}) >= 8
    assert sum(probe.make(TARGET).tensors is not None for probe in free) > 10
