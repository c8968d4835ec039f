"""Requests: what is sent to a server in little memory. Each is made once, and says which answer is right.

They are written by hand with `json` and bytes. Some take ten times their length on the wire, some a thousand times.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np

_MIB: Final = 1 << 20
_TINY: Final = 64 << 10
"""Bytes of bodies that many connections send at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, and its right answer."""

    kind: str
    parts: tuple[bytes, ...]
    wanted: bytes | None
    """The bytes of the binary output; None for a request that has to be refused."""

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.parts))


def catalogue(random: Random, scale: float = 1.0) -> dict[str, list[Request]]:
    """Make the requests, by kind.

    Args:
        random: fills tensors.
        scale: of the sizes; 1 for those that fill a group of 64 to 192 MiB.
    """

    def sized(count: float) -> int:
        return max(1, int(count * scale))

    noise = random.randbytes(sized(16 * _MIB))
    zeros = bytes(sized(16 * _MIB))
    few, many = sized(2e5), sized(1e6)
    return {
        "tensor": [
            *(_digested("tensor", noise[: sized(count)]) for count in (1e3, 6e4, _MIB, 4 * _MIB, 8 * _MIB, 16 * _MIB)),
            *(_echoed("tensor", noise[: sized(count)]) for count in (1e3, 6e4, _MIB, 4 * _MIB)),
        ],
        "gzip": [
            _compressed(_digested("gzip", zeros)),
            _compressed(_digested("gzip", noise)),
            _compressed(_digested("gzip", noise[: len(noise) // 4])),
            _compressed(_digested("gzip", zeros * 4)),
        ],
        "json": [_json(random, sized(count)) for count in (1e3, 5e4, 5e5)],
        "BYTES": [
            *(_bytes("objects", b"", count) for count in (few, many, 2 * many)),
            *(_bytes("objects", b"a", count) for count in (few, many)),
            *(_bytes("objects", b"ab", count) for count in (few, many)),
            *(_bytes("objects", b"abcd", count) for count in (few, many)),
            *(_bytes("identity", element, many) for element in (b"", b"abcd")),
            _bytes("objects", b"a" * 100_000, sized(50)),
            _text(sized(1e5)),
        ],
        "windows": [_digested("windows", noise, "windows"), _digested("windows", zeros * 2, "windows")],
        "hostile": [_bomb(zeros), _deep_lists(sized(1e6)), _one_too_many(many)],
    }


def tiny() -> list[Request]:
    """Make requests that many connections send at once: their bodies are received whole, and take ten times as much."""
    elements = [_bytes("objects", element, (_TINY - 256) // (4 + len(element))) for element in (b"", b"ab", b"abcd")]
    return [*elements, _digested("tensor", bytes(_TINY - 256))]


def _digested(kind: str, data: bytes, model: str = "digest") -> Request:
    return _request(kind, model, {"datatype": "UINT8", "shape": [len(data)]}, data, struct.pack("<q", zlib.crc32(data)))


def _echoed(kind: str, data: bytes) -> Request:
    return _request(kind, "identity", {"datatype": "UINT8", "shape": [len(data)]}, data, data)


def _bytes(model: str, element: bytes, count: int) -> Request:
    data = (struct.pack("<I", len(element)) + element) * count
    wanted = data if model == "identity" else struct.pack("<2q", count, count * len(element))
    return _request("BYTES", model, {"datatype": "BYTES", "shape": [count]}, data, wanted)


def _json(random: Random, count: int) -> Request:
    values = [round(random.gauss(0, 1), 6) for _ in range(count)]
    wanted = struct.pack("<q", zlib.crc32(np.array(values, np.float32).tobytes()))
    return _request("json", "digest", {"datatype": "FP32", "shape": [count], "data": values}, None, wanted)


def _text(count: int) -> Request:
    tensor = {"datatype": "BYTES", "shape": [count], "data": ["text"] * count}
    return _request("BYTES", "objects", tensor, None, struct.pack("<2q", count, 4 * count))


def _bomb(zeros: bytes) -> Request:
    """Return a body that is compressed twice, under two codings."""
    request = _compressed(_compressed(_digested("hostile", zeros * 4)))
    return Request(kind="hostile", parts=request.parts, wanted=None)


def _deep_lists(count: int) -> Request:
    """Return a header in which each three bytes become a list."""
    text = b'{"parameters":{"a":[' + b"[]," * count + b"0]},"
    body = text + b'"inputs":[{"name":"x","shape":[1],"datatype":"UINT8","data":[1]}]}'
    return Request(kind="hostile", parts=(_head("digest", len(body), len(body)), body), wanted=None)


def _one_too_many(count: int) -> Request:
    """Return BYTES whose last element is longer than the tensor."""
    data = bytes(4 * (count - 1)) + b"\1\0\0\0"
    request = _request("hostile", "objects", {"datatype": "BYTES", "shape": [count]}, data, b"")
    return Request(kind="hostile", parts=request.parts, wanted=None)


def _request(kind: str, model: str, tensor: dict[str, Any], data: bytes | None, wanted: bytes) -> Request:
    """Make a request with one tensor; `data` are its bytes, if it is not JSON."""
    if data is not None:
        tensor |= {"parameters": {"binary_data_size": len(data)}}
    document = {"inputs": [{"name": "x", **tensor}], "parameters": {"binary_data_output": True}}
    text = json.dumps(document).encode()
    body = (text,) if data is None else (text, data)
    head = _head(model, sum(map(len, body)), len(text))
    return Request(kind=kind, parts=(head, *body), wanted=wanted)


def _compressed(request: Request) -> Request:
    head, *body = request.parts
    packed = gzip.compress(b"".join(body), 1, mtime=0)
    fields = head.split(b"\r\n")
    fields = [b"Content-Length: %d" % len(packed) if each[:16] == b"Content-Length: " else each for each in fields]
    fields.insert(1, b"Content-Encoding: gzip")
    return Request(kind=request.kind, parts=(b"\r\n".join(fields), packed), wanted=request.wanted)


def _head(model: str, body_length: int, header_length: int) -> bytes:
    return (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {body_length}\r\n"
        f"Inference-Header-Content-Length: {header_length}\r\n\r\n"
    ).encode()
