"""Remembered: what bytes have meant before, kept by the bytes themselves.

What a JSON header means depends on its bytes and on the limits, and on nothing else; so a client that asks the same
again and again needs to be understood only once. Here stand the bounded store for that, which knows nothing of what it
keeps, and its first use, for headers.

Only what passed every check is kept, and only if nobody can change it: not the arrays of JSON tensors, and of
`parameters` only plain values, since lists and objects in them could be written to. What is refused is refused anew,
with an error of its own. So a header that is remembered and one that is not give the same answer; only the time
differs.

What a peer can do is to fill the store with what will never come again. That costs others the time that is saved here
and not more, and the memory that the two bounds stand for: with the defaults of `RememberedHeaders` some 10 MiB.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from streamcodec.core.errors import LocalProtocolError
from streamcodec.core.events import HeaderT
from streamcodec.core.limits import DEFAULT_LIMITS, Limits
from streamcodec.core.model import NOTHING, RequestHeader, ResponseHeader

_V = TypeVar("_V")


class Remembered(Generic[_V]):
    """A store of values by exact bytes: bounded in number and in the length of a key; the oldest goes first.

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


class RememberedHeaders(Generic[HeaderT]):
    """A parser of headers that knows again what it has parsed before.

    One belongs to one set of limits, and is shared by all connections that have them.

    Example:
        >>> from streamcodec import parse_request_header
        >>> headers = RememberedHeaders(parse_request_header)
        >>> text = b'{"inputs":[]}'
        >>> headers.parse(text, headers.limits) is headers.parse(text, headers.limits)
        True
    """

    def __init__(
        self,
        parse: Callable[[bytes | bytearray | memoryview, Limits], HeaderT],
        limits: Limits = DEFAULT_LIMITS,
        max_headers: int = 256,
        max_header_bytes: int = 4096,
    ) -> None:
        """Remember nothing yet.

        Args:
            parse: `parse_request_header` or `parse_response_header`.
            limits: caps on what a header may declare.
            max_headers: how many are kept.
            max_header_bytes: length of the longest header that is kept; a longer one is parsed every time.
        """
        self._parse = parse
        self._limits = limits
        self._max_header_bytes = max_header_bytes
        self._known: Remembered[HeaderT] = Remembered(max_headers, max_header_bytes)

    @property
    def limits(self) -> Limits:
        """The limits that all remembered headers have been checked against."""
        return self._limits

    def parse(self, data: bytes | bytearray | memoryview, limits: Limits) -> HeaderT:
        """Parse and validate a JSON header, or return what the same bytes have meant before.

        Args:
            data: exactly the header.
            limits: those that this object was made for.

        Raises:
            LocalProtocolError: other limits.
            RemoteProtocolError: as from the parser, every time.
        """
        if limits is not self._limits and limits != self._limits:
            msg = "headers are remembered for the limits that they were checked against, and for no others"
            raise LocalProtocolError(msg)
        if len(data) > self._max_header_bytes:
            return self._parse(data, limits)
        key = bytes(data)
        header = self._known.get(key)
        if header is None:
            header = self._parse(key, limits)
            if is_immutable(header):
                self._known.put(key, header)
        return header


def is_immutable(header: RequestHeader | ResponseHeader) -> bool:
    """Tell whether nothing that hangs on a header can be written to."""
    outputs = header.outputs or () if isinstance(header, RequestHeader) else ()
    holders: Iterable[Mapping[str, Any]] = (
        header.parameters,
        *(spec.parameters for spec in header.tensors),
        *(output.parameters for output in outputs),
    )
    has_arrays = any(spec.data is not None for spec in header.tensors)
    return not has_arrays and all(
        parameters is NOTHING or _PLAIN.issuperset(map(type, parameters.values())) for parameters in holders
    )


_PLAIN: Final = frozenset({str, int, bool, float, type(None)})
"""Types of parameters that nobody can change."""
