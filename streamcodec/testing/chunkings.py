"""Chunkings: the ways in which a network may split the bytes of a message.

The places of the splits have no meaning in the protocol, so a receiver must not depend on them. Most bugs of a receiver
are at one border between parts of a message, and a split in two at that place shows them. Single bytes show the bugs
that need a split at several places.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random


def two_way(data: bytes, *, at_most: int | None = None) -> Iterator[list[bytes]]:
    """Yield every cut into two pieces, none of them empty.

    Args:
        data: the bytes of a message.
        at_most: largest number of cuts, evenly spread; None for all cuts. All cuts of n bytes are n*n bytes to receive.

    Example:
        >>> list(two_way(b"abc"))
        [[b'a', b'bc'], [b'ab', b'c']]
    """
    step = 1 if at_most is None else max(1, -(-(len(data) - 1) // max(1, at_most)))
    for place in islice(range(1, len(data), step), at_most):
        yield [data[:place], data[place:]]


def bytewise(data: bytes) -> list[bytes]:
    """Return the single bytes.

    Example:
        >>> bytewise(b"abc")
        [b'a', b'b', b'c']
    """
    return [data[place : place + 1] for place in range(len(data))]


def seeded(data: bytes, *, seed: int, count: int) -> Iterator[list[bytes]]:
    """Yield chunks cut at random places, from one cut to many. The same arguments give the same cuts.

    Args:
        data: the bytes of a message.
        seed: of the random places.
        count: how many chunkings.

    Example:
        >>> [b"".join(chunks) for chunks in seeded(b"a message", seed=7, count=2)]
        [b'a message', b'a message']
    """
    chance = Random(seed)  # noqa: S311 - chance that can be repeated is what is wanted
    places = range(1, len(data))
    for _ in range(count):
        # A power of two at most: few cuts are as likely as many.
        number = chance.randint(0, 1 << chance.randint(0, len(data).bit_length()))
        chosen = sorted(chance.sample(places, min(number, len(places))))
        yield [data[start:end] for start, end in zip([0, *chosen], [*chosen, len(data)], strict=True)]


def chunkings(data: bytes, *, seed: int = 0, count: int = 20, at_most: int | None = None) -> Iterator[list[bytes]]:
    """Yield ways to cut a message: whole, byte by byte, in two at every place, and at random places.

    Args:
        data: the bytes of a message.
        seed: of the random places.
        count: how many chunkings at random places.
        at_most: largest number of cuts in two, evenly spread; None for all cuts.

    Example:
        >>> for chunks in chunkings(b"abc", count=0):
        ...     print(chunks)
        [b'abc']
        [b'a', b'b', b'c']
        [b'a', b'bc']
        [b'ab', b'c']
    """
    yield [data]
    yield bytewise(data)
    yield from two_way(data, at_most=at_most)
    yield from seeded(data, seed=seed, count=count)
