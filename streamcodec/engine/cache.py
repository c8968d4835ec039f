"""A bounded cache of parse results. The key is the exact bytes that were parsed.

The result of a parser depends only on the bytes and on its limits. So a request that a client repeats is parsed only
once. A peer can fill the cache with keys that never come again. Then other clients lose the time that the cache saves,
and the cache takes the memory that its two bounds allow. The cache does not know what its values mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

_V = TypeVar("_V")


class Cache(Generic[_V]):
    """Values by exact bytes, bounded in number and in the length of a key. The oldest value is removed first.

    Threads may share a cache. Each operation on the dictionary and on the queue is atomic. The order of the operations
    ensures that each key in the dictionary is also in the queue, so its value is removed in the end. Two threads can
    put the same key into the queue twice; then its value is removed early.
    """

    def __init__(self, max_entries: int, max_key_bytes: int) -> None:
        """Make an empty cache.

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
        """Keep a value if its key is new and not too long; remove the oldest value if there are too many.

        Args:
            key: exactly the bytes that mean the value.
            value: must be immutable, because all callers get the same object.
        """
        if len(key) > self._max_key_bytes or key in self._entries:
            return
        self._entries[key] = value
        self._keys.append(key)
        if len(self._keys) > self._max_entries:
            self._entries.pop(self._keys.popleft(), None)
