"""Cache: what bytes have meant before, kept by the bytes themselves. Bounded, and knows nothing of what it keeps.

What bytes mean to a parser depends on them and its limits, and on nothing else. So a client that asks the same again
and again needs to be understood only once. What a peer can do is to fill the cache with what never comes again. That
costs others the time that is saved here, and the memory that the two bounds stand for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_V = TypeVar("_V")


class Cache(Generic[_V]):
    """Values by exact bytes: bounded in number and in the length of a key; the oldest goes first.

    Threads may share it: each act on the two containers is a single one, and their order is such that, whatever another
    thread does in between, a value in the dictionary has its key in the queue, which will take it out. What they can do
    to each other is to put one key into the queue twice; then its value goes early.
    """

    def __init__(self, max_entries: int, max_key_bytes: int) -> None:
        """Make an empty store.

        Args:
            max_entries: values kept at most.
            max_key_bytes: length of the longest key that is kept.
        """
        self._max_entries = max_entries
        self._max_key_bytes = max_key_bytes
        self._entries: dict[bytes, _V] = {}
        self._keys: deque[bytes] = deque()
        self.get: Final[Callable[[bytes], _V | None]] = self._entries.get
        """Return the value of a key; None if there is none. The dictionary's own, so that it costs no more."""

    def __len__(self) -> int:
        """Return how many values are kept."""
        return len(self._entries)

    def put(self, key: bytes, value: _V) -> None:
        """Keep a value, if the key is new and not too long; the oldest one goes if there are too many.

        Args:
            key: exactly the bytes that mean the value.
            value: immutable, since all who ask get the same.
        """
        if len(key) > self._max_key_bytes or key in self._entries:
            return
        self._entries[key] = value
        self._keys.append(key)
        if len(self._keys) > self._max_entries:
            self._entries.pop(self._keys.popleft(), None)
