"""Good requests: of every kind, each with the answer that it must get, bit for bit.

They are written by hand with `json` and bytes, so that no mistake of the library can hide on both sides.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from tests.soak.wire import Buffer

_SIZES = {"UINT8": 1, "INT16": 2, "FP32": 4, "FP64": 8, "INT64": 8, "BF16": 2}
_ENCODINGS: list[tuple[bytes, Callable[[bytes], bytes]]] = [
    (b"gzip", partial(gzip.compress, compresslevel=1, mtime=0)),
    (b"deflate", zlib.compress),
]
_KIB = 1 << 10
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What an output must be."""

    name: str
    datatype: str
    shape: list[int]
    data: Buffer | None = None
    """Its bytes, if it comes in binary."""
    values: list[Any] | None = None
    """Else its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, and the answer that it must get."""

    kind: str
    head: bytes
    text: bytes = b""
    """The JSON header, or all of a body that is framed or compressed."""
    tensors: Sequence[Buffer] = ()
    id: str | None = None
    outputs: tuple[Output, ...] | None = None
    """None where the answer is no inference."""

    @property
    def parts(self) -> tuple[Buffer, ...]:
        return (self.head + self.text, *self.tensors)

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.parts))


class Maker:
    """Makes requests, the same ones for the same seed."""

    def __init__(self, random: Random, noise: bytes, without: Sequence[str] = ()) -> None:
        """Take the bytes of large tensors from `noise`, whose length is the largest tensor's.

        Args:
            random: decides.
            noise: any bytes.
            without: kinds that are not made.
        """
        self._random = random
        self._noise = memoryview(noise)
        self._kinds: dict[str, tuple[int, Callable[[], Request]]] = {
            "small": (30, partial(self._floats, "identity", "small", 256)),
            "get": (6, self._get),
            "thread": (6, partial(self._floats, "thread", "thread", 16 * _KIB)),
            "async": (6, partial(self._floats, "async", "async", 16 * _KIB)),
            "json": (8, self._json),
            "mixed": (8, self._mixed),
            "bytes": (6, self._bytes),
            "chunked": (8, self._chunked),
            "compressed": (6, self._compressed),
            "raw": (4, self._raw),
            "headerless": (4, self._headerless),
            "continue": (3, self._continue),
            "middling": (6, partial(self._block, "identity", "middling", 64 * _KIB, _MIB)),
            "windowed": (3, self._windowed),
            "mirrored": (2, partial(self._block, "mirror", "mirrored", 64 * _KIB, 4 * _MIB)),
            "large": (1, partial(self._block, "identity", "large", _MIB, 16 * _MIB)),
            "largest": (0, partial(self._block, "identity", "largest", 16 * _MIB, 64 * _MIB)),
        }
        for kind in without:
            del self._kinds[kind]

    def next(self, *, may_be_largest: bool = False) -> Request:
        """Make a request of any kind; the largest are for some connections only, or nobody else would get through."""
        weights = [weight for weight, _ in self._kinds.values()]
        weights[-1] = int(may_be_largest)
        ((_, make),) = self._random.choices(list(self._kinds.values()), weights)
        return make()

    def pipelined(self) -> list[Request]:
        """Make some small requests that are to be sent in one go."""
        return [self._floats("identity", "pipelined", 256) for _ in range(self._random.randint(2, 16))]

    def of_bytes(self, nbytes: int) -> Request:
        """Make a request with a tensor of so many bytes, which comes back."""
        return self._block("identity", "large", nbytes, nbytes)

    def _get(self) -> Request:
        target = self._random.choice(["", "/health/ready", "/models/identity", "/models/raw/ready", "/health/live"])
        return Request(kind="get", head=f"GET /v2{target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    def _floats(self, model: str, kind: str, most: int) -> Request:
        """Floats with any bits, NaN with payload included."""
        count = self._random.choice([4, 16, self._random.randint(1, most // 4)])
        return self._infer(model, kind, [self._tensor("FP32", [count])])

    def _block(self, model: str, kind: str, least: int, most: int) -> Request:
        rows = min(self._random.randint(least, most), len(self._noise)) // 1024
        start = self._random.randrange(len(self._noise) - rows * 1024 + 1)
        block = self._noise[start : start + rows * 1024]
        return self._infer(model, kind, [Output(name="x", datatype="UINT8", shape=[rows, 1024], data=block)])

    def _windowed(self) -> Request:
        request = self._block("crc", "windowed", 64 * _KIB, 4 * _MIB)
        crc = Output(name="CRC", datatype="INT64", shape=[1], data=struct.pack("<q", zlib.crc32(request.tensors[0])))
        return replace(request, outputs=(crc,))

    def _json(self) -> Request:
        count = self._random.randint(1, 200)
        integers = [self._random.getrandbits(63) for _ in range(count)]
        floats = [self._random.gauss(0, 1) * 10.0 ** self._random.randint(-300, 290) for _ in range(count)]
        tensors = [
            Output(name="i", datatype="INT64", shape=[count], values=integers),
            Output(name="f", datatype="FP64", shape=[count], values=floats),
        ]
        return self._infer("identity", "json", tensors, is_binary=False)

    def _mixed(self) -> Request:
        """Several tensors; what came as JSON is asked for in binary, like the rest."""
        tensors = [
            self._tensor(self._random.choice(list(_SIZES)), [self._random.randint(0, 6), self._random.randint(1, 40)])
            for _ in range(self._random.randint(2, 24))
        ]
        named = [_renamed(tensor, f"t{index}") for index, tensor in enumerate(tensors)]
        values = [self._random.getrandbits(15) for _ in range(8)]
        data = struct.pack("<8h", *values)
        document = _document([*named], True)
        document["inputs"].append({"name": "j", "datatype": "INT16", "shape": [8], "data": values})
        answer = (*named, Output(name="j", datatype="INT16", shape=[8], data=data))
        return self._assemble("identity", "mixed", document, [_data(tensor) for tensor in named], answer)

    def _bytes(self) -> Request:
        elements = [
            self._random.randbytes(self._random.choice([0, 1, 7, 300])) for _ in range(self._random.randrange(60))
        ]
        data = b"".join(struct.pack("<I", len(element)) + element for element in elements)
        tensor = Output(name="x", datatype="BYTES", shape=[len(elements)], data=data)
        return self._infer(self._random.choice(["identity", "thread"]), "bytes", [tensor])

    def _chunked(self) -> Request:
        request = self._infer("identity", "chunked", [self._tensor("FP64", [self._random.randint(1, 4000)])])
        body = request.text + b"".join(request.tensors)
        framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in self._pieces(body)) + b"0\r\n\r\n"
        head = _replaced(request.head, b"Content-Length", b"Transfer-Encoding: chunked")
        return replace(request, head=head, text=framed, tensors=())

    def _compressed(self) -> Request:
        request = self._infer("identity", "compressed", [self._tensor("INT16", [self._random.randint(1, 40_000)])])
        name, compress = self._random.choice(_ENCODINGS)
        body = compress(request.text + b"".join(request.tensors))
        fields = b"Content-Length: %d\r\nContent-Encoding: %b" % (len(body), name)
        return replace(request, head=_replaced(request.head, b"Content-Length", fields), text=body, tensors=())

    def _raw(self) -> Request:
        tensor = self._tensor("FP32", [self._random.randint(1, 4000)])
        head = _head("raw", len(_data(tensor)), 0)
        return Request(kind="raw", head=head, tensors=(_data(tensor),), outputs=(tensor,))

    def _headerless(self) -> Request:
        request = self._infer("identity", "headerless", [self._tensor("INT64", [self._random.randint(1, 400)])])
        return replace(request, head=request.head.replace(b"Inference-Header-Content-Length", b"X-Was"))

    def _continue(self) -> Request:
        request = self._floats("identity", "continue", 1024)
        return replace(request, head=_replaced(request.head, b"Host", b"Host: x\r\nExpect: 100-continue"))

    def _tensor(self, datatype: str, shape: list[int]) -> Output:
        count = _SIZES[datatype]
        for size in shape:
            count *= size
        return Output(name="x", datatype=datatype, shape=shape, data=self._random.randbytes(count))

    def _infer(self, model: str, kind: str, tensors: list[Output], *, is_binary: bool = True) -> Request:
        document = _document(tensors, is_binary)
        data = [_data(tensor) for tensor in tensors if tensor.data is not None]
        return self._assemble(model, kind, document, data, tuple(tensors))

    def _assemble(
        self, model: str, kind: str, document: dict[str, Any], data: list[Buffer], outputs: tuple[Output, ...]
    ) -> Request:
        name = f"{self._random.getrandbits(64):x}" if self._random.random() < 1 / 2 else None
        text = json.dumps(document if name is None else {"id": name, **document}).encode()
        head = _head(model, len(text) + sum(map(len, data)), len(text))
        return Request(kind=kind, head=head, text=text, tensors=tuple(data), id=name, outputs=outputs)

    def _pieces(self, body: bytes) -> Iterator[bytes]:
        start = 0
        while start < len(body):
            size = self._random.choice([1, 100, 5000])
            yield body[start : start + size]
            start += size


def check_header(request: Request, header: Any) -> None:  # noqa: ANN401 - any JSON value
    """Hold the JSON header of an answer against what it must say.

    Raises:
        AssertionError: it says something else.
    """
    assert request.outputs is not None
    assert header.get("id") == request.id, "the id is another one"
    outputs = header["outputs"]
    assert len(outputs) == len(request.outputs), "the number of outputs differs"
    for found, wanted in zip(outputs, request.outputs, strict=True):
        seen = (found["name"], found["datatype"], found["shape"])
        assert seen == (wanted.name, wanted.datatype, wanted.shape), f"{seen}, not {wanted.name} {wanted.shape}"
        if wanted.data is None:
            assert found["data"] == wanted.values, f"the values of {wanted.name} have changed"
        else:
            size = found["parameters"]["binary_data_size"]
            assert size == len(wanted.data), f"{wanted.name} has {size} bytes, not {len(wanted.data)}"


def _document(tensors: list[Output], is_binary: bool) -> dict[str, Any]:
    return {
        "inputs": [_entry(tensor) for tensor in tensors],
        "parameters": {"binary_data_output": is_binary},
    }


def _entry(tensor: Output) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
    if tensor.data is None:
        return entry | {"data": tensor.values}
    return entry | {"parameters": {"binary_data_size": len(tensor.data)}}


def _head(model: str, body_length: int, header_length: int) -> bytes:
    return (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {body_length}\r\n"
        f"Inference-Header-Content-Length: {header_length}\r\n\r\n"
    ).encode()


def _replaced(head: bytes, name: bytes, field: bytes) -> bytes:
    """Put other fields in the place of one."""
    lines = head.split(b"\r\n")
    return b"\r\n".join(field if line.startswith(name + b":") else line for line in lines)


def _data(tensor: Output) -> Buffer:
    assert tensor.data is not None
    return tensor.data


def _renamed(tensor: Output, name: str) -> Output:
    return replace(tensor, name=name)
