"""Requests: writes the requests of a client.

Many requests differ only in their lengths. Their `RequestForm` is checked and written once, so that their heads cost no
more than the numbers in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.http.heads.statuses import Field
from streamcodec.http.writing import CHUNKED, Framing, PartT, encoded_text, head_lines, length_of

_LINE: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+ [!-~]+ HTTP/1\.1\r\n")


def write_request(
    method: str, target: str, fields: Iterable[Field], parts: Iterable[PartT]
) -> tuple[list[bytes | PartT], bool]:
    """Write a request.

    Args:
        method: upper case, as `POST`.
        target: path and query, percent-encoded.
        fields: with one `Host`, and a `Content-Length` or `Transfer-Encoding` if there is a body.
        parts: the body: byte views, bytes, and `Rows`, which are made while they are sent.

    Returns:
        The head, then the body's parts unchanged; and whether the connection can have other requests.

    Raises:
        LocalProtocolError: it is not valid HTTP, or the parts do not fill the declared length.
    """
    start = b"%b %b HTTP/1.1\r\n" % (encoded_text(method), encoded_text(target))
    if not _LINE.fullmatch(start):
        msg = "Illegal characters in the method or target"
        raise LocalProtocolError(msg)
    lines, declared, _, is_chunked, options, hosts = head_lines(start, fields)
    if hosts != 1:
        msg = "Found multiple Host: headers" if hosts else "Missing mandatory Host: header"
        raise LocalProtocolError(msg)
    if is_chunked:
        if declared:
            msg = "Content-Length and Transfer-Encoding exclude each other"
            raise LocalProtocolError(msg)
        lines.append(CHUNKED)
    framing = Framing(None if is_chunked else int(declared or b"0"), is_chunked=is_chunked)
    body = [*parts]
    sent = framing.whole(body, length_of(body))
    return [b"".join([*lines, b"\r\n"]), *sent], b"close" not in options


class RequestForm:
    """What the heads of many `POST` requests have in common: everything but the lengths.

    Attributes:
        target: of the requests.
        fields: those that the owner has given.
    """

    __slots__ = ("_start", "fields", "target")

    def __init__(self, target: str, fields: Sequence[tuple[str, str]]) -> None:
        """Check and write it.

        Args:
            target: path and query, percent-encoded.
            fields: with one `Host`, and none that tells a length or is about the connection.

        Raises:
            LocalProtocolError: the target or the fields are not valid HTTP.
        """
        self.target = target
        self.fields = fields
        (head,), _ = write_request("POST", target, fields, [])
        self._start: bytes = head.removesuffix(b"\r\n")

    def head(self, length: int, header_length: int | None) -> bytes:
        """Return the head of a request.

        Args:
            length: bytes of the body.
            header_length: of them, those of the JSON header; None to tell none.
        """
        if header_length is None:
            return b"%bContent-Length: %d\r\n\r\n" % (self._start, length)
        return b"%bInference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % (
            self._start,
            header_length,
            length,
        )
