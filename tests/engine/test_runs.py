"""Runs: cut and moved at once or one by one, they are the same bytes."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcodec.engine.elements import runs
from streamcodec.engine.elements.runs import cut, move
from tests.effort import examples

MEMORY = np.frombuffer(np.random.default_rng(4).bytes(4000), np.uint8)
FEW_LENGTHS = st.lists(st.sampled_from([0, 3, 9]), max_size=60)
ANY_LENGTHS = st.lists(st.integers(0, 40), max_size=60)
ONE_LENGTH = st.builds(lambda length, count: [length] * count, st.integers(0, 40), st.integers(0, 60))


@pytest.fixture(scope="module", autouse=True)
def _small_blocks() -> object:
    """Let a few runs be many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_BLOCK_BYTES", 100)
        patch.setattr(runs, "_LEAST_COUNT", 3)
        patch.setattr(runs, "_MAX_LENGTH", 20)
        yield


@settings(max_examples=examples(300))
@given(st.one_of(FEW_LENGTHS, ANY_LENGTHS, ONE_LENGTH), st.integers(0, 5), st.integers(0, 5))
def test_runs_are_cut_and_moved(lengths: list[int], gap: int, other_gap: int) -> None:
    places = list(accumulate([length + gap for length in lengths], initial=gap))[:-1]
    wanted = [MEMORY[place : place + length].tobytes() for place, length in zip(places, lengths, strict=True)]
    assert sum(lengths) + gap * (len(lengths) + 1) <= len(MEMORY)
    starts, sizes = np.array(places, np.int64), np.array(lengths, np.int64)
    objects = cut(MEMORY, starts, sizes)
    assert (objects.dtype, objects.tolist()) == (np.dtype(object), wanted)

    filler = b"." * other_gap
    targets = list(accumulate([length + other_gap for length in lengths], initial=other_gap))[:-1]
    target = np.full(sum(lengths) + other_gap * (len(lengths) + 1), ord("."), np.uint8)
    move(MEMORY, starts, sizes, target, np.array(targets, np.int64))
    assert target.tobytes() == filler + b"".join(run + filler for run in wanted)


@pytest.mark.parametrize("lengths", [[0, 3, 9, 0, 3, 9, 0, 3, 9], [*range(9)]], ids=["few lengths", "many lengths"])
def test_runs_of_several_lengths_are_moved(lengths: list[int]) -> None:
    sizes = np.array(lengths, np.int64)
    starts, target = np.arange(9) * 10, np.zeros(90, np.uint8)
    move(MEMORY, starts, sizes, target, starts)
    assert target.tobytes() == b"".join(
        MEMORY[start : start + size].tobytes().ljust(10, b"\0") for start, size in zip(starts, lengths, strict=True)
    )


def test_runs_keep_zeros_at_their_ends() -> None:
    memory = np.frombuffer(b"a\0\0b\0\0" * 10, np.uint8)
    objects = cut(memory, np.arange(0, 60, 3), np.full(20, 3))
    assert objects.tolist() == [b"a\0\0", b"b\0\0"] * 10
    assert set(map(type, objects.tolist())) == {bytes}


def test_objects_do_not_share_the_memory_they_were_cut_from() -> None:
    memory = np.zeros(20, np.uint8)
    objects = cut(memory, np.arange(0, 20, 4), np.full(5, 4))
    memory[:] = 1
    assert objects.tolist() == [bytes(4)] * 5


@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_runs_far_apart_are_cut_and_moved_in_blocks(count: int) -> None:
    places = np.arange(count) * 250  # more than a block from one to the next
    lengths = np.full(count, 5)
    target = np.zeros(5 * count, np.uint8)
    move(MEMORY, places, lengths, target, np.arange(count) * 5)
    wanted = [MEMORY[place : place + 5].tobytes() for place in places]
    assert cut(MEMORY, places, lengths).tolist() == wanted
    assert target.tobytes() == b"".join(wanted)


def test_runs_of_one_length_are_moved_without_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    windows = runs._windows  # noqa: SLF001 - that it is used is what matters

    def counted(memory: np.ndarray[Any, np.dtype[np.uint8]], length: int) -> np.ndarray[Any, Any]:
        taken.append(length)
        return windows(memory, length)

    monkeypatch.setattr(runs, "_windows", counted)
    move(MEMORY, np.arange(0, 90, 9), np.array([4, 2] * 5), np.zeros(40, np.uint8), np.arange(0, 40, 4))
    assert taken == [2, 2, 4, 4]
