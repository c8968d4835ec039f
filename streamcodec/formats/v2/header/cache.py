"""The header cache: parsed headers, by their exact bytes.

Only valid headers are kept, and only immutable ones. So headers with JSON tensors are not kept, because arrays are
mutable, nor headers whose `parameters` contain lists or objects. A refused header is parsed each time, and each time
has a new error. So a header from the cache is the same as a parsed one; only the time differs. With the defaults, a
full cache takes some 10 MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic

from streamcodec.engine.cache import Cache
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.spec import NOTHING
from streamcodec.formats.v2.model import PLAIN_TYPES, MessageT, RequestHeader, ResponseHeader


class HeaderCache(Generic[MessageT]):
    """A parser of headers with a cache of its results.

    It belongs to one set of limits, and is shared by all connections with these limits.

    Example:
        >>> from streamcodec import parse_request_header
        >>> headers = HeaderCache(parse_request_header)
        >>> text = b'{"inputs":[]}'
        >>> headers.parse(text, headers.limits) is headers.parse(text, headers.limits)
        True
    """

    def __init__(
        self,
        parse: Callable[[bytes | bytearray | memoryview, Limits], MessageT],
        limits: Limits = DEFAULT_LIMITS,
        max_headers: int = 256,
        max_header_bytes: int = 4096,
    ) -> None:
        """Make an empty cache.

        Args:
            parse: `parse_request_header` or `parse_response_header`.
            limits: caps on what a header may declare.
            max_headers: largest number of headers to keep.
            max_header_bytes: length of the longest header that is kept; a longer one is parsed every time.
        """
        self._parse = parse
        self._limits = limits
        self._max_header_bytes = max_header_bytes
        self._known: Cache[bytes, MessageT] = Cache(max_headers, max_header_bytes)

    @property
    def limits(self) -> Limits:
        """The limits that all cached headers have been checked against."""
        return self._limits

    def parse(self, data: bytes | bytearray | memoryview, limits: Limits) -> MessageT:
        """Parse and validate a JSON header, or return the cached result for the same bytes.

        Args:
            data: exactly the header.
            limits: the limits of this cache.

        Raises:
            LocalProtocolError: other limits.
            RemoteProtocolError: as from the parser, every time.
        """
        if limits is not self._limits and limits != self._limits:
            msg = "the limits must be those that the header cache was made with"
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
    """Tell whether all objects of a header are immutable."""
    for spec in header.tensors:
        if spec.data is not None or not _is_fixed(spec.parameters):
            return False
    if isinstance(header, RequestHeader) and header.outputs:
        for output in header.outputs:
            if not _is_fixed(output.parameters):
                return False
    return _is_fixed(header.parameters)


def _is_fixed(parameters: Mapping[str, Any]) -> bool:
    return parameters is NOTHING or _IMMUTABLE.issuperset(map(type, parameters.values()))


_IMMUTABLE: Final = PLAIN_TYPES | {float, type(None)}
"""Types of parameters that nobody can change."""
