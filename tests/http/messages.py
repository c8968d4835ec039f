"""Messages: HTTP messages for the tests, with the framing and the compression that a test asks for."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Iterable

import numpy as np

from streamcodec import HEADER_LENGTH_FIELD, EncodedMessage, Tensor, encode_request, encode_response

GET = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"

VALUES = np.arange(6, dtype="<f4").reshape(2, 3)
FLAGS = np.array([True, False])
WORDS = np.array([b"", b"\0\xff", b"word"], dtype=object)

REQUEST = encode_request(
    [
        Tensor(name="values", array=VALUES),
        Tensor(name="as_json", array=np.array([1, 2], np.int64), is_binary=False),
        Tensor(name="flags", array=FLAGS),
        Tensor(name="words", array=WORDS),
    ],
    request_id="7",
)
"""A request with a tensor of every kind."""

RESPONSE = encode_response([Tensor(name="out", array=VALUES)], model_name="m")


def body_of(message: EncodedMessage) -> bytes:
    """Join the buffers of a message."""
    return b"".join(message.buffers)


BODY = body_of(REQUEST)
IHCL = f"{HEADER_LENGTH_FIELD}: {REQUEST.header_length}".encode()


def chunked(body: bytes, sizes: Iterable[int] = (1 << 30,), *, extension: bytes = b"", trailers: bytes = b"") -> bytes:
    """Frame a body in chunks of these sizes, over and over."""
    framed, start = bytearray(), 0
    for size in itertools.cycle(sizes):
        if start >= len(body):
            break
        piece = body[start : start + size]
        framed += b"%x%b\r\n%b\r\n" % (len(piece), extension, piece)
        start += size
    return bytes(framed) + b"0%b\r\n%b\r\n" % (extension, trailers)


def compress(body: bytes, encoding: str) -> bytes:
    """Compress a body; `raw` is the bare deflate stream that some send as `deflate`."""
    match encoding:
        case "gzip":
            return gzip.compress(body, mtime=0)
        case "deflate":
            return zlib.compress(body)
        case "raw":
            deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            return deflate.compress(body) + deflate.flush()
        case _:
            return body


def head(start_line: bytes, *fields: bytes) -> bytes:
    """Make a head; each of the fields is a whole line without its end."""
    return b"\r\n".join((start_line, *fields)) + b"\r\n\r\n"


def post(*fields: bytes, version: bytes = b"1.1") -> bytes:
    """Make the head of an inference request."""
    return head(b"POST /v2/models/m/infer HTTP/" + version, b"Host: x", *fields)


def length(body: bytes) -> bytes:
    """Make the `Content-Length` of a body."""
    return b"Content-Length: %d" % len(body)


def framed(body: bytes, *fields: bytes, sizes: Iterable[int] | None = None) -> bytes:
    """Make a whole request: with `Content-Length`, or in chunks of `sizes`."""
    if sizes is None:
        return post(*fields, length(body)) + body
    return post(*fields, b"Transfer-Encoding: chunked") + chunked(body, sizes)


def response(body: bytes, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    """Make a whole response with `Content-Length`."""
    return head(b"HTTP/1.1 " + status, *fields, length(body)) + body
