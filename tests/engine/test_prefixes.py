"""Prefixes: each guess has the same result as a plain loop, for any bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamcodec import RemoteProtocolError
from streamcodec.engine.elements import prefixes
from streamcodec.engine.elements.prefixes import OffsetFinder, find_offsets, write_prefixes
from tests.effort import examples

Verdict = list[int] | tuple[int, str]
"""The offsets, or where and why there are none."""


def wire(elements: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def naive(data: bytes, count: int) -> Verdict:
    """The rule, as one would write it down."""
    position, offsets = 0, [0]
    for index in range(count):
        start = position + 4
        if start > len(data):
            return position, f"element {index} of {count} starts {len(data) - position} bytes before the tensor's end"
        length = int.from_bytes(data[position:start], "little")
        if start + length > len(data):
            return position, f"element {index} of {count} declares {length} bytes, {len(data) - start} are left"
        position = start + length
        offsets.append(position)
    if position != len(data):
        return position, f"{len(data) - position} bytes are left over after {count} elements"
    return offsets


def ours(data: bytes, count: int) -> Verdict:
    verdict = at_once(data, count)
    for step in (7, 50):
        assert found(partial(as_they_come, data, count, step), count) == verdict
    return verdict


def at_once(data: bytes, count: int) -> Verdict:
    return found(partial(find_offsets, np.frombuffer(data, np.uint8), count, offset=1000), count)


def as_they_come(data: bytes, count: int, step: int) -> prefixes.Offsets:
    finder = OffsetFinder(count, len(data), offset=1000)
    octets = np.frombuffer(data, np.uint8)
    for end in (*range(step, len(data), step), len(data)):
        for _ in finder.find(octets[:end]):
            assert finder.index < count
    return finder.offsets


def found(find: Callable[[], prefixes.Offsets], count: int) -> Verdict:
    try:
        offsets = find()
    except RemoteProtocolError as error:
        assert (error.code, error.path, error.status_hint) == ("invalid-elements", None, 400)  # noqa: PT017
        return (error.offset or 0) - 1000, error.message
    assert (offsets.dtype, offsets.shape) == (np.dtype(np.int64), (count + 1,))
    places: list[int] = offsets.tolist()
    return places


@pytest.fixture(scope="module", autouse=True)
def _small_guesses() -> object:
    """Let a guess look at few bytes and be content with few elements, so that small tensors have all there is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefixes, "_BLOCK_BYTES", 48)
        patch.setattr(prefixes, "_LEAST_COUNT", 3)
        patch.setattr(prefixes, "_MAX_WALK", 8)
        patch.setattr(prefixes, "_FEW", 3)
        yield


PAYLOADS = st.one_of(
    st.binary(max_size=12),
    st.integers(0, 70).map(bytes),
    st.lists(st.sampled_from([0, 0, 0, 1, 4, 8, 255]), max_size=20).map(bytes),
    st.lists(st.integers(0, 12), max_size=4).map(lambda lengths: struct.pack(f"<{len(lengths)}I", *lengths)),
    st.just(b"x" * 300),
)
ELEMENTS = st.lists(PAYLOADS, max_size=40) | st.builds(lambda one, count: [one] * count, PAYLOADS, st.integers(0, 40))


@settings(max_examples=examples(400))
@given(ELEMENTS)
def test_elements_that_fill_their_tensor_are_found(elements: list[bytes]) -> None:
    data = wire(elements)
    offsets = ours(data, len(elements))
    assert offsets == naive(data, len(elements))
    assert isinstance(offsets, list), "and not refused"
    written = np.zeros(len(data), np.uint8)
    lengths = np.array([len(element) for element in elements], np.int64)
    write_prefixes(written, np.array(offsets[:-1], np.int64), lengths)
    for start, element in zip(offsets[:-1], elements, strict=True):
        assert written[start : start + 4].tobytes() == struct.pack("<I", len(element))


@settings(max_examples=examples(600))
@given(
    ELEMENTS,
    st.integers(-3, 3),
    st.lists(st.tuples(st.integers(0, 2000), st.sampled_from([0, 1, 3, 4, 8, 12, 255])), max_size=3),
    st.integers(0, 20),
)
@example([b"abcd"] * 9, 1, [], 0)
@example([b"abcd"] * 9, -1, [], 0)
@example([bytes(8)] * 9, 0, [(12, 255), (15, 255)], 0)
def test_damage_is_found_where_a_plain_loop_finds_it(
    elements: list[bytes], more: int, edits: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(wire(elements))
    for place, value in edits:
        if data:
            data[place % len(data)] = value
    if cut:
        del data[-cut:]
    count = max(0, len(elements) + more)
    assert ours(bytes(data), count) == naive(bytes(data), count)


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 4, 5, 9]), max_size=200).map(bytes), st.integers(0, 50))
def test_bytes_that_are_nearly_all_prefixes(data: bytes, count: int) -> None:
    assert ours(data, count) == naive(data, count)


def test_one_length_is_told_without_a_look_at_the_payloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(prefixes, "_walk")
    monkeypatch.delattr(prefixes, "_guess")
    for length in (0, 1, 32, 70_000):
        elements = [bytes([255]) * length] * 5
        assert at_once(wire(elements), 5) == naive(wire(elements), 5)


def test_short_elements_are_told_without_walking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(prefixes, "_walk")
    elements = [b"x" * (1 + index % 5) for index in range(60)]
    assert at_once(wire(elements), 60) == naive(wire(elements), 60)


def test_long_elements_are_walked_and_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(prefixes, "_guess")
    elements = [bytes(200 + index) for index in range(60)]
    assert at_once(wire(elements), 60) == naive(wire(elements), 60)


@pytest.mark.parametrize(
    "elements",
    [
        pytest.param([bytes(10 + index % 3) for index in range(200)], id="zeros"),
        pytest.param([b""] * 150 + [bytes(2000)], id="many zeros behind"),
        pytest.param([struct.pack("<II", 0, 4)] * 100 + [b"x"], id="payloads like prefixes"),
        pytest.param([b"x" * (1 + 299 * (index % 4 == 0)) for index in range(200)], id="long ones in between"),
    ],
)
def test_guesses_that_fail_become_rare(elements: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    guess = prefixes._guess  # noqa: SLF001 - how often it is tried is what matters

    def counted(data: prefixes.Octets, offsets: prefixes.Offsets, index: int, nbytes: int) -> int:
        reached = guess(data, offsets, index, nbytes)
        found.append(reached - index)
        return reached

    monkeypatch.setattr(prefixes, "_guess", counted)
    monkeypatch.setattr(prefixes, "_MAX_SHORT_BYTES", 1000)
    assert at_once(wire(elements), len(elements)) == naive(wire(elements), len(elements))
    vain = [count for count in found if count < 3]
    assert len(vain) <= 3 + len(elements) // 8
