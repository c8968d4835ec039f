"""Requests: writes the requests of a client."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
