"""Heads: what h11 makes of the head of a message, and what of that is refused here.

One head is read by one h11 connection, so it is a function of the head's bytes. This room adds what h11 is lenient
about: ambiguous framing, line ends and control characters that other servers read otherwise, hosts that are none, and
other versions of HTTP.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final, cast

import h11

from streamcodec.engine.errors import ErrorCode, LimitExceededError, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.http.messages import Fields, RequestHead

_QUOTED: Final = re.compile(r":? (bytearray\()?b['\"].*")
"""Where a message of h11 begins to quote what the peer has sent: of any size, and cut at random."""

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FOLD: Final = re.compile(rb"\r\n[ \t]")
_HOST: Final = re.compile(
    r"(?:(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?", re.ASCII
)
"""A name, an IPv4 or IPv6 address, perhaps a port (RFC 9112, section 3.2; RFC 3986, section 3.2.2)."""

_OTHER_LINES: Final = 2
"""The start line, and the empty one at the end."""


def check_head(head: bytes, limits: Limits) -> None:
    """Refuse a head for its text, of requests and responses alike, before anybody takes it apart.

    h11 takes a bare line feed for a line end, and keeps most control characters in values.

    Raises:
        RemoteProtocolError: `invalid-http`.
        LimitExceededError: more than `max_head_fields`; status 431.
    """
    count = head.count(b"\r\n")
    if not count == head.count(b"\n") == head.count(b"\r"):
        msg = "a line of the head does not end with carriage return and line feed, or has one of them within"
        raise invalid_http(msg)
    if _CONTROL.search(head):
        msg = "the head has a control character"
        raise invalid_http(msg)
    _check_count(count - _OTHER_LINES, limits)


def check_fields(fields: Fields, limits: Limits) -> None:
    """Refuse fields that somebody else has parsed as `check_head` refuses their text.

    Raises:
        RemoteProtocolError: `invalid-http`.
        LimitExceededError: more than `max_head_fields`; status 431.
    """
    if any(_CONTROL.search(name) or _CONTROL.search(value) for name, value in fields.items):
        msg = "the head has a control character"
        raise invalid_http(msg)
    _check_count(len(fields.items), limits)


def _check_count(count: int, limits: Limits) -> None:
    if count > limits.max_head_fields:
        msg = f"the head has more than {limits.max_head_fields} fields"
        raise LimitExceededError(msg, limit="max_head_fields", status_hint=431)


def is_host(text: str) -> bool:
    """Tell whether a text can be the value of `Host`: empty, too, where a client has no name for the server."""
    return _HOST.fullmatch(text) is not None


def parse_request(connection: h11.Connection, head: bytes) -> h11.Request:
    """Have h11 read the head of a request, and refuse what it would let pass.

    A folded field is refused, as RFC 9112, section 5.2, permits: who does not know of it reads two lines, and one of
    them may be the length of the body. Responses may have them.

    Raises:
        RemoteProtocolError: as `parse_head`.
    """
    if _FOLD.search(head):
        msg = "a field of the head is folded into several lines"
        raise invalid_http(msg)
    request = cast("h11.Request", parse_head(connection, head))
    hosts = [value.decode("latin-1") for name, value in request.headers if name == b"host"]
    if not hosts and request.http_version > b"1.1":  # of 1.1 itself h11 asks for it
        msg = "the field Host is missing"
        raise invalid_http(msg)
    if not all(map(is_host, hosts)):
        msg = "the field Host is no host, or more than that"
        raise invalid_http(msg)
    return request


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


def request_head(method: str, target: str, fields: Fields, http_version: str, *, default: int | None) -> RequestHead:
    """Return the head of a request that has been parsed, and refuse what this server does not do.

    Args:
        method: as sent.
        target: still percent-encoded.
        fields: of the head, validated.
        http_version: `1.0`, `1.1`, `2` or `3`.
        default: how long a body is of which no field says that; None if only its end will tell.

    Raises:
        RemoteProtocolError: `method-not-allowed`, `unsupported-expectation`, `ambiguous-framing`.
    """
    if method == "CONNECT":  # what follows may be meant for the tunnel, and is no request
        msg = "this is no proxy, and opens no tunnels"
        raise RemoteProtocolError(msg, code=ErrorCode.METHOD_NOT_ALLOWED, status_hint=501)
    expectations = fields.values(b"expect")
    if expectations and [value.lower() for value in expectations] != [b"100-continue"]:
        msg = "the only Expect that is understood is 100-continue"
        raise RemoteProtocolError(msg, code=ErrorCode.UNSUPPORTED_EXPECTATION, status_hint=417)
    length = framing_length(fields, http_version, default=default)
    return RequestHead(method=method, target=target, fields=fields, content_length=length)


def framing_length(fields: Fields, http_version: str, *, default: int | None) -> int | None:
    """Return how long a body is (RFC 9112, section 6.3); None if only its end will tell.

    Args:
        fields: of the head, validated by h11.
        http_version: of the message.
        default: what the absence of all fields means.

    Raises:
        RemoteProtocolError: `ambiguous-framing`: what one server reads as one request, another could read as two.
    """
    lengths = fields.values(b"content-length")
    if fields.is_chunked:
        if lengths:
            msg = "Content-Length and Transfer-Encoding exclude each other"
            raise RemoteProtocolError(msg, code=ErrorCode.AMBIGUOUS_FRAMING)
        if http_version < "1.1":
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
