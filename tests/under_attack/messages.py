"""Messages: requests as an attacker writes them, by hand and byte for byte. Nothing here is streamcodec's."""

from __future__ import annotations

import gzip
import json
import zlib
from functools import cache
from random import Random

_PIECE: int = 64 << 10


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def post(body: bytes, *fields: str, model: str = "sink", length: int | None = None) -> bytes:
    """Return a request with a body.

    Args:
        body: as it goes over the wire.
        fields: lines of the head.
        model: which is asked.
        length: what Content-Length says instead of the truth.
    """
    framing = (
        () if any("Transfer-Encoding" in field for field in fields) else (f"Content-Length: {length or len(body)}",)
    )
    lines = (f"POST /v2/models/{model}/infer HTTP/1.1", "Host: x", "Connection: close", *fields, *framing, "", "")
    return "\r\n".join(lines).encode() + body


def declared(nbytes: int) -> str:
    """Return the field with the length of the JSON header."""
    return f"Inference-Header-Content-Length: {nbytes}"


def packed(body: bytes, *fields: str, model: str = "sink") -> bytes:
    return post(gzip.compress(body, 9, mtime=0), "Content-Encoding: gzip", *fields, model=model)


def chunked(body: bytes, *fields: str, model: str = "sink", size: int = _PIECE, extension: bytes = b"") -> bytes:
    pieces = (body[start : start + size] for start in range(0, len(body), size))
    framed = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
    return post(framed + b"0\r\n\r\n", "Transfer-Encoding: chunked", *fields, model=model)


def tensor(datatype: str, count: int, nbytes: int) -> bytes:
    """Return a JSON header with one binary tensor."""
    parameters = {"binary_data_size": nbytes}
    entry = {"name": "x", "datatype": datatype, "shape": [count], "parameters": parameters}
    return json.dumps({"inputs": [entry]}).encode()


@cache
def zeros(header: bytes, nbytes: int, *, model: str = "sink") -> bytes:
    """Return a compressed request: a header and zeros, which need not be made to be compressed."""
    stream = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    piece = bytes(1 << 20)
    parts = [stream.compress(header)]
    parts += [stream.compress(piece[: min(len(piece), nbytes - at)]) for at in range(0, nbytes, len(piece))]
    body = b"".join([*parts, stream.flush()])
    return post(body, "Content-Encoding: gzip", declared(len(header)), model=model)


def gzip_members(count: int) -> bytes:
    """Return a compressed request of empty members, and one with the message."""
    empty = gzip.compress(b"", 9, mtime=0)
    return post(empty * count + gzip.compress(b'{"inputs":[]}', mtime=0), "Content-Encoding: gzip")


def many_tensors(count: int, nbytes: int, *, is_chunked: bool = False) -> bytes:
    """Return a request with so many tensors of so many bytes each."""
    parameters = {"binary_data_size": nbytes}
    entries = [
        {"name": str(number), "datatype": "INT8", "shape": [nbytes], "parameters": parameters}
        for number in range(count)
    ]
    header = json.dumps({"inputs": entries}).encode()
    write = chunked if is_chunked else post
    return write(header + bytes(count * nbytes), declared(len(header)))


def texts(nbytes: int) -> bytes:
    """Return a request with a BYTES tensor of elements of one byte, so many bytes in all."""
    count = nbytes // 5
    header = tensor("BYTES", count, 5 * count)
    return post(header + b"\1\0\0\0a" * count, declared(len(header)))


def generate(nbytes: int) -> bytes:
    """Return a request of Triton's generate extension, whose JSON has so many bytes of short numbers."""
    body = b'{"text_input":[' + b"1," * (nbytes // 2) + b"1]}"
    fields = ("POST /v2/models/sink/generate HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}")
    return "\r\n".join((*fields, "", "")).encode() + body


def damaged(nbytes: int, *, model: str = "sink") -> bytes:
    """Return a compressed request whose checksum is wrong, after so many bytes that do not compress."""
    header = tensor("UINT8", nbytes, nbytes)
    body = gzip.compress(header + Random(1).randbytes(nbytes), 1, mtime=0)  # noqa: S311 - to be the same every time
    return post(body[:-8] + bytes(8), "Content-Encoding: gzip", declared(len(header)), model=model)
