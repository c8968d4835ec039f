"""The header cache: headers that were parsed before, kept by their bytes.

Only what passed every check is kept, and only if nobody can change it: not the arrays of JSON tensors, and of
`parameters` only plain values, since lists and objects in them could be written to. What is refused is refused anew,
with an error of its own. So a header from the cache and one that was parsed give the same answer; only the time
differs. With the defaults, a cache that strangers have filled takes some 10 MiB.
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
    """A parser of headers that knows again what it has parsed before.

    One belongs to one set of limits, and is shared by all connections that have them.

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
        self._known: Cache[MessageT] = Cache(max_headers, max_header_bytes)

    @property
    def limits(self) -> Limits:
        """The limits that all remembered headers have been checked against."""
        return self._limits

    def parse(self, data: bytes | bytearray | memoryview, limits: Limits) -> MessageT:
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
