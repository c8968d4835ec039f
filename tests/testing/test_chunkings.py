"""Chunkings cut everywhere, lose nothing, and are the same every time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from streamcodec.testing import bytewise, chunkings, seeded, two_way

DATA = bytes(range(40))


@pytest.mark.parametrize("data", [b"", b"a", b"ab", DATA])
def test_every_chunking_is_the_whole(data: bytes) -> None:
    ways = [*chunkings(data), *seeded(data, seed=1, count=50)]
    assert all(b"".join(chunks) == data for chunks in ways)
    assert all(chunk or not data for chunks in ways for chunk in chunks)


def test_two_way_cuts_at_every_place_once() -> None:
    assert [len(first) for first, _ in two_way(DATA)] == [*range(1, 40)]


@pytest.mark.parametrize("at_most", [0, 1, 2, 38, 39, 40])
def test_two_way_cuts_can_be_few(at_most: int) -> None:
    places = [len(first) for first, _ in two_way(DATA, at_most=at_most)]
    assert places[:1] == [1][:at_most]
    assert len(places) <= at_most
    assert len({end - start for start, end in pairwise(places)}) <= 1


def test_seeded_chunkings_repeat_themselves_and_vary() -> None:
    ways = [*seeded(DATA, seed=3, count=200)]
    assert ways == [*seeded(DATA, seed=3, count=200)]
    assert ways != [*seeded(DATA, seed=4, count=200)]
    counts = {len(chunks) for chunks in ways}
    assert min(counts) <= 2
    assert max(counts) >= 20


def test_chunkings_are_whole_bytewise_two_way_and_seeded() -> None:
    ways = [*chunkings(DATA, seed=5, count=7, at_most=3)]
    assert ways == [[DATA], bytewise(DATA), *two_way(DATA, at_most=3), *seeded(DATA, seed=5, count=7)]
    assert len([*chunkings(DATA)]) == 1 + 1 + 39 + 20
