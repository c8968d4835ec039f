"""Chunkings: the ways in which a network may cut the bytes of a message.

Where the cuts are means nothing to the protocol, so a receiver must not notice them. Most that do have their mistake at
one border, and there some cut in two shows it; byte by byte shows what depends on a border being anywhere at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random


def two_way(data: bytes, *, at_most: int | None = None) -> Iterator[list[bytes]]:
    """Yield every cut into two pieces, none of them empty.

    Args:
        data: the bytes of a message.
        at_most: so many cuts only, evenly spread; 0 for none, None for all. All cuts of n bytes are n*n bytes to be
            received.

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
    """Yield cuts at random places, the same ones for the same arguments: from one cut to many.

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
        at_most: so many cuts in two only, evenly spread; 0 for none, None for all.

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
