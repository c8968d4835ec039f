"""Heads: reads the head of a message with h11, and refuses what h11 is too lenient about.

`plain` reads nearly all heads of requests. This room reads the others, and decides what is refused. Each head is
read by its own h11 connection, so the result depends on the bytes of the head alone. This room also refuses ambiguous
framing, line ends and control characters that other servers read differently, invalid hosts, and other versions of
HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from itertools import chain
from typing import Final, cast

import h11

from streamcodec.engine.errors import ErrorCode, LimitExceededError, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.engine.record import constructor
from streamcodec.http.heads.messages import Fields, RequestHead

_new_head: Final = constructor(RequestHead)

_QUOTED: Final = re.compile(r":? (bytearray\()?b['\"].*")
"""The place where a message of h11 begins to quote the peer's bytes; these may have any size, and any cut."""

_CONTROLS: Final = bytes({*range(0x20), 0x7F} - {*b"\t\r\n"})
_FOLD: Final = re.compile(rb"\r\n[ \t]")
HOST: Final = re.compile(rb"(?:(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})*|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
"""A name, an IPv4 address or an IPv6 address, with an optional port (RFC 9112, 3.2; RFC 3986, 3.2.2)."""

READ_FIELDS: Final = frozenset(
    {
        b"accept-encoding",
        b"connection",
        b"content-encoding",
        b"content-type",
        b"expect",
        b"host",
        b"origin",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Names in lower case of the fields whose values h11, this room or the service takes apart. Their length is bounded
here, so all who read them have little to read. Numbers are not among them: they have at most 20 digits anyway."""

_BLANKS: Final = b" \t"
_ANSWER: Final = b"HTTP/"
_OTHER_LINES: Final = 2
"""The start line, and the empty line at the end."""


def check_head(head: bytes, limits: Limits) -> None:
    """Refuse a head for its text, before it is parsed; for requests and responses alike.

    h11 accepts a bare line feed as a line end, and most control characters in values.

    Raises:
        RemoteProtocolError: `invalid-http`.
        LimitExceededError: more than `max_head_fields`, or than `max_field_bytes`; status 431.
    """
    count = head.count(b"\r\n")
    if not count == head.count(b"\n") == head.count(b"\r"):
        msg = "a line of the head does not end with carriage return and line feed, or has one of them within"
        raise invalid_http(msg)
    check_joined(head, count - _OTHER_LINES, limits)
    if len(head) > limits.max_field_bytes:
        first, *lines = head.split(b"\r\n")
        if first.startswith(_ANSWER) and len(first) > limits.max_field_bytes:
            raise _too_long("first line", limits)
        check_values(_parted(lines), limits)


def check_fields(fields: Fields, limits: Limits) -> None:
    """Refuse fields that a framework has parsed, by the same rules as `check_head`.

    Raises:
        RemoteProtocolError: `invalid-http`.
        LimitExceededError: more than `max_head_fields`, or than `max_field_bytes`; status 431.
    """
    text = b"".join(chain.from_iterable(fields.items))
    check_joined(text, len(fields.items), limits)
    if len(text) > limits.max_field_bytes:
        check_values(fields.items, limits)


def check_joined(text: bytes, count: int, limits: Limits) -> None:
    """Refuse fields as `check_fields` does.

    Args:
        text: names and values of all fields, joined in any way.
        count: number of fields.
        limits: `max_head_fields` applies.

    Raises:
        RemoteProtocolError: `invalid-http`.
        LimitExceededError: more than `max_head_fields`; status 431.
    """
    if len(text.translate(None, _CONTROLS)) != len(text):  # a third of the time of a regular expression
        msg = "the head has a control character"
        raise invalid_http(msg)
    if count > limits.max_head_fields:
        msg = f"the head has more than {limits.max_head_fields} fields"
        raise LimitExceededError(msg, limit="max_head_fields", status_hint=431)


def _parted(lines: Iterable[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """Yield the lines of a head as names and values; a folded line belongs to the name before it."""
    name = b""
    for line in lines:
        if line.startswith((b" ", b"\t")):
            yield name, line
        else:
            name, _, value = line.partition(b":")
            name = name.lower()
            yield name, value


def check_values(fields: Iterable[tuple[bytes, bytes]], limits: Limits) -> None:
    """Refuse a field that means something and is long, also if it comes in several lines.

    Args:
        fields: names in lower case, and values.
        limits: `max_field_bytes` applies.
    """
    found: dict[bytes, int] = {}
    for name, value in fields:
        if name in READ_FIELDS:
            found[name] = nbytes = found.get(name, 0) + len(value.strip(_BLANKS))
            if nbytes > limits.max_field_bytes:
                raise _too_long(f"field {name.decode().title()}", limits)


def _too_long(what: str, limits: Limits) -> LimitExceededError:
    msg = f"the {what} has more than {limits.max_field_bytes} bytes"
    return LimitExceededError(msg, limit="max_field_bytes", status_hint=431)


def is_host(text: str) -> bool:
    """Tell whether a text can be the value of `Host`. It may be empty: a client may have no name for the server."""
    return text.isascii() and HOST.fullmatch(text.encode()) is not None


def parse_request(connection: h11.Connection, head: bytes) -> h11.Request:
    """Parse the head of a request with h11, and refuse what h11 would let pass.

    A folded field is refused, as RFC 9112, section 5.2, permits. A server that does not know folding reads two fields,
    and one of them may be the length of the body. Responses may have folded fields.

    Raises:
        RemoteProtocolError: as `parse_head`.
    """
    if _FOLD.search(head):
        msg = "a field of the head is folded into several lines"
        raise invalid_http(msg)
    request = cast("h11.Request", parse_head(connection, head))
    hosts = [value for name, value in request.headers if name == b"host"]
    check_hosts(hosts, is_required=request.http_version > b"1.1")  # h11 requires it for 1.1 itself
    return request


def check_hosts(hosts: list[bytes], *, is_required: bool) -> None:
    """Refuse the values of `Host` if there are several, or one is no host; or if there is none and it is required.

    Raises:
        RemoteProtocolError: `invalid-http`.
    """
    if is_required and not hosts:
        msg = "the field Host is missing"
        raise invalid_http(msg)
    if len(hosts) > 1:
        msg = "the field Host is there more than once"
        raise invalid_http(msg)
    if not all(map(HOST.fullmatch, hosts)):
        msg = "the field Host is not a valid host"
        raise invalid_http(msg)


def parse_head(connection: h11.Connection, head: bytes) -> h11.Request | h11.InformationalResponse | h11.Response:
    """Parse exactly one whole head with h11; h11 makes an event of it at once.

    Raises:
        RemoteProtocolError: `invalid-http`, with the status that h11 suggests; 505 for another version of HTTP.
    """
    connection.receive_data(head)
    try:
        event = cast("h11.Request | h11.InformationalResponse | h11.Response", connection.next_event())
    except h11.RemoteProtocolError as error:
        error.__traceback__ = None  # h11's frames refer to the error, and to all frames that have led here
        raise invalid_http(_QUOTED.sub("", str(error)), status_hint=error.error_status_hint) from None
    if not event.http_version.startswith(b"1."):  # h11 would treat it as 1.1
        msg = "only HTTP/1.x is supported"
        raise invalid_http(msg, status_hint=int(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED))
    return event


def request_head(method: str, target: str, fields: Fields, http_version: str, *, default: int | None) -> RequestHead:
    """Return the head of a request that has been parsed, and refuse what this server does not support.

    Args:
        method: as sent.
        target: still percent-encoded.
        fields: of the head, validated.
        http_version: `1.0`, `1.1`, `2` or `3`.
        default: the length of a body if no field gives it; None if only its end will tell.

    Raises:
        RemoteProtocolError: `method-not-allowed`, `unsupported-expectation`, `ambiguous-framing`.
    """
    if method == "CONNECT":  # the bytes that follow may be meant for the tunnel, and are not a request
        msg = "CONNECT is not supported: this server is not a proxy"
        raise RemoteProtocolError(msg, code=ErrorCode.METHOD_NOT_ALLOWED, status_hint=501)
    expectations = fields.values(b"expect")
    if expectations and [value.lower() for value in expectations] != [b"100-continue"]:
        msg = "100-continue is the only supported Expect"
        raise RemoteProtocolError(msg, code=ErrorCode.UNSUPPORTED_EXPECTATION, status_hint=417)
    length = framing_length(fields, http_version, default=default)
    return _new_head(method=method, target=target, fields=fields, content_length=length)


def framing_length(fields: Fields, http_version: str, *, default: int | None) -> int | None:
    """Return the length of a body (RFC 9112, section 6.3); None if only its end will tell.

    Args:
        fields: of the head, validated by h11.
        http_version: of the message.
        default: the result if no field gives the length.

    Raises:
        RemoteProtocolError: `ambiguous-framing`: one server could read one request where another reads two.
    """
    lengths = fields.values(b"content-length")
    if fields.is_chunked:
        if lengths:
            msg = "Content-Length and Transfer-Encoding exclude each other"
            raise RemoteProtocolError(msg, code=ErrorCode.AMBIGUOUS_FRAMING)
        if http_version < "1.1":
            msg = "HTTP/1.0 has no Transfer-Encoding"
            raise RemoteProtocolError(msg, code=ErrorCode.AMBIGUOUS_FRAMING)
        return None
    return int(lengths[0]) if lengths else default


def invalid_http(message: str, *, status_hint: int = 400, offset: int | None = None) -> RemoteProtocolError:
    """Make the error for bytes that are not HTTP."""
    return RemoteProtocolError(message, code=ErrorCode.INVALID_HTTP, status_hint=status_hint, offset=offset)
