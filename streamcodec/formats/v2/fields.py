"""Framing: what the fields of an HTTP head say about the layout of the body.

`Inference-Header-Content-Length` divides a body into JSON and tensors, so misreading it shifts every tensor. One plain
decimal number is accepted, everything else is refused; above all nothing malformed is ever read as 0, which has a
meaning of its own (a raw binary request).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError, shown
from streamcodec.engine.inflate import ENCODINGS

HEADER_LENGTH_FIELD: Final = "Inference-Header-Content-Length"
"""The specification's name of the field; names of fields have no letter case."""

_MAX_DIGITS: Final = 19
"""They hold every 63-bit number, and keep `int` from being handed a megabyte of them."""


def parse_header_length(values: Sequence[bytes]) -> int | None:
    """Read the values of all `Inference-Header-Content-Length` fields of a head.

    Args:
        values: one for each such field, without the white space around it, as HTTP libraries hand them out.

    Returns:
        The length of the JSON header in bytes; None if the field is absent.

    Raises:
        RemoteProtocolError: `invalid-header-length`: the field is repeated, or is not 1 to 19 decimal digits.
    """
    if not values:
        return None
    if len(values) > 1:
        msg = f"{HEADER_LENGTH_FIELD} occurs {len(values)} times"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER_LENGTH)
    if not values[0].isdigit() or len(values[0]) > _MAX_DIGITS:  # of bytes, `isdigit` knows ASCII alone
        msg = f"{HEADER_LENGTH_FIELD} is not a plain decimal number"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER_LENGTH)
    return int(values[0])


def parse_content_encoding(values: Sequence[bytes]) -> str | None:
    """Read the values of all `Content-Encoding` fields of a head.

    Returns:
        `gzip` or `deflate`, for an `Inflater`; None for a body as it is, be it called `identity` or not at all. RFC
        9110, section 8.4.1.3: `x-gzip` is gzip.

    Raises:
        RemoteProtocolError: `unsupported-encoding`, status 415: another encoding, or several.
    """
    # As bytes, of which HTTP's blanks are two and letters have a case in ASCII alone.
    encoding = b",".join(values).strip(b" \t").lower().decode("latin-1")
    if encoding in {"", "identity"}:
        return None
    encoding = "gzip" if encoding == "x-gzip" else encoding
    if encoding not in ENCODINGS:
        msg = f"a body can be encoded with {' or '.join(ENCODINGS)}, and not with {shown(encoding)}"
        raise RemoteProtocolError(msg, code=ErrorCode.UNSUPPORTED_ENCODING, status_hint=415)
    return encoding
