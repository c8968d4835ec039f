"""The mutator that knows safetensors makes files that get beyond their first checks."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from targets import safetensors
from targets.mutating import mutate
from targets.stream import Case

from tests.fuzz.inputs import CORPORA


def plainly(data: bytes, max_size: int) -> bytes:
    """Change one byte."""
    random = Random(len(data))  # noqa: S311 - nothing secret
    place = random.randrange(len(data) + 1)
    return (data[:place] + random.randbytes(1) + data[place + 1 :])[:max_size]


@pytest.fixture(scope="module")
def mutated() -> list[bytes]:
    found = [*CORPORA["safetensors"].values()]
    for seed in range(1_000):
        found.append(mutate(found[seed * 7 % len(found)], 2_000, seed, plainly))
    return found[-1_000:]


def test_many_are_accepted_and_many_refused_for_different_reasons(mutated: list[bytes]) -> None:
    verdicts: Counter[str] = Counter()
    for data in mutated:
        outcome = safetensors.read(Case.read(data))
        verdicts["" if outcome.error is None else outcome.error.code] += 1
    assert verdicts[""] > 50
    assert len(verdicts) > 8


def test_inputs_keep_their_bounds_and_choices(mutated: list[bytes]) -> None:
    assert max(map(len, mutated)) <= 2_000
    data = CORPORA["safetensors"]["metadata"]
    assert mutate(data, 2_000, 5, plainly) == mutate(data, 2_000, 5, plainly)
    assert all(mutate(data, 10, seed, plainly)[:1] for seed in range(50))


def test_what_is_no_object_is_changed_plainly() -> None:
    for stream in (b"", b"\2\0\0\0\0\0\0\0[]", b"\2\0\0\0\0\0\0\0{x"):
        data = Case(stream=stream).write()
        assert mutate(data, 100, 1, lambda _, size: bytes(size)) == bytes(100)


def test_nothing_is_found(mutated: list[bytes]) -> None:
    for data in mutated:
        safetensors.test_one_input(data)
