"""Heads: what h11 makes of the head of a message, and what of that is refused here.

One head is read by one h11 connection, so it is a function of the head's bytes. This room adds what h11 is lenient
about: ambiguous framing, and other versions of HTTP.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, cast

import h11

from streamcodec.core.errors import ErrorCode, RemoteProtocolError
from streamcodec.http.messages import Fields

_QUOTED: Final = re.compile(r":? (bytearray\()?b['\"].*")
"""Where a message of h11 begins to quote what the peer has sent: of any size, and cut at random."""


def parse_head(connection: h11.Connection, head: bytes) -> h11.Request | h11.InformationalResponse | h11.Response:
    """Have h11 read exactly one head; from a whole one it makes an event at once.

    Raises:
        RemoteProtocolError: `invalid-http`, with the status that h11 suggests; 505 for another version of HTTP.
    """
    connection.receive_data(head)
    try:
        event = cast("h11.Request | h11.InformationalResponse | h11.Response", connection.next_event())
    except h11.RemoteProtocolError as error:
        raise invalid_http(unquoted(error), status_hint=error.error_status_hint) from None
    if not event.http_version.startswith(b"1."):  # which h11 takes for 1.1
        msg = "HTTP/1.1 is spoken here, and no other major version"
        raise invalid_http(msg, status_hint=int(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED))
    return event


def framing_length(fields: Fields, http_version: bytes, *, default: int | None) -> int | None:
    """Return how long a body is (RFC 9112, section 6.3); None if h11 has to find its end.

    Args:
        fields: of the head, validated by h11.
        http_version: of the message.
        default: what the absence of all fields means.

    Raises:
        RemoteProtocolError: `ambiguous-framing`: what one server reads as one request, another could read as two.
    """
    lengths = fields.values(b"content-length")
    if fields.values(b"transfer-encoding"):
        if lengths:
            msg = "Content-Length and Transfer-Encoding exclude each other"
            raise RemoteProtocolError(msg, code=ErrorCode.AMBIGUOUS_FRAMING)
        if http_version < b"1.1":
            msg = "HTTP/1.0 knows no Transfer-Encoding"
            raise RemoteProtocolError(msg, code=ErrorCode.AMBIGUOUS_FRAMING)
        return None
    return int(lengths[0]) if lengths else default


def invalid_http(message: str, *, status_hint: int = 400, offset: int | None = None) -> RemoteProtocolError:
    """Make the error for bytes that are not HTTP."""
    return RemoteProtocolError(message, code=ErrorCode.INVALID_HTTP, status_hint=status_hint, offset=offset)


def unquoted(error: h11.RemoteProtocolError) -> str:
    """Return what h11 says of an error, without what the peer has sent."""
    return _QUOTED.sub("", str(error))
