"""A bounded cache of parse results. The key is the exact bytes that were parsed, or a tuple made from them.

The result of a parser depends only on the bytes and on its limits. So a request that a client repeats is parsed only
once. A text in which something was masked or left out is another text than the one that was received, and must not be
found by bytes that were received. So the key of such a text is a tuple, or the text has a cache of its own. Several
texts are never joined to one key, because a part of one could be taken for a part of the other.

A peer can fill the cache with keys that never come again. Then other clients lose the time that the cache saves, and
the cache takes the memory that its two bounds allow. The cache does not know what its values mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Cache(Generic[_K, _V]):
    """Values by key, bounded in number and in the length of a key. The oldest value is removed first.

    Threads may share a cache. Each operation on the dictionary and on the queue is atomic. The order of the operations
    ensures that each key in the dictionary is also in the queue, so its value is removed in the end. Two threads can
    put the same key into the queue twice; then its value is removed early.
    """

    def __init__(self, max_entries: int, max_key_bytes: int) -> None:
        """Make an empty cache.

        Args:
            max_entries: values kept at most.
            max_key_bytes: length of the longest key that is kept; of a tuple, that of all its texts.
        """
        self._max_entries = max_entries
        self._max_key_bytes = max_key_bytes
        self._entries: dict[_K, _V] = {}
        self._keys: deque[_K] = deque()
        self.get: Final[Callable[[_K], _V | None]] = self._entries.get
        """Return the value of a key; None if there is none. The dictionary's own, so that it costs no more."""

    def __len__(self) -> int:
        """Return how many values are kept."""
        return len(self._entries)

    def put(self, key: _K, value: _V) -> None:
        """Keep a value if its key is new and not too long; remove the oldest value if there are too many.

        Args:
            key: exactly what means the value: bytes, or a tuple of texts, numbers and tuples.
            value: must be immutable, because all callers get the same object.
        """
        if key in self._entries or _length(key) > self._max_key_bytes:
            return
        self._entries[key] = value
        self._keys.append(key)
        if len(self._keys) > self._max_entries:
            self._entries.pop(self._keys.popleft(), None)


class Repeated(Generic[_K, _V]):
    """Values by key, of what has come more than once; bounded in number. All are dropped at once.

    It is for what is made anew in a few microseconds. To keep a value that never comes again costs as much: it pushes
    others out of the processor's cache, and has to be dropped. To note that its key has come costs a tenth.
    """

    def __init__(self, max_entries: int) -> None:
        """Make an empty cache of at most so many values."""
        self._max_entries = max_entries
        self._entries: dict[_K, _V] = {}
        self._once: set[int] = set()
        self.get: Final[Callable[[_K], _V | None]] = self._entries.get
        """Return the value of a key; None if there is none."""

    def __len__(self) -> int:
        """Return how many values are kept."""
        return len(self._entries)

    def comes_again(self, key: _K) -> bool:
        """Note a key that has no value; return whether it has come lately. If it has, its value is worth keeping.

        Two keys with one hash are taken for one. Then a value is kept too early, and never taken for another.
        """
        once, mark = self._once, hash(key)
        if mark in once:
            return True
        if len(once) >= self._max_entries:
            once.clear()
        once.add(mark)
        return False

    def put(self, key: _K, value: _V) -> None:
        """Keep a value."""
        if len(self._entries) >= self._max_entries:
            self._entries.clear()
        self._entries[key] = value


def _length(key: object) -> int:
    """Return the length of all texts in a key; each part of a tuple counts at least 1, so their number is bounded."""
    if isinstance(key, tuple):
        return sum(max(_length(part), 1) for part in key)
    return len(key) if isinstance(key, bytes | str) else 0
