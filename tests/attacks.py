"""Attacks: messages made to cost their receiver as much as possible, in any size.

Each aims at a place where work could grow faster than the message: a search that begins anew with every chunk, a list
that is gone through for every item, a text that is copied for every piece of it. They are counted in tests (calls) and
measured by the benchmarks (CPU time): four times the bytes may not cost much more than four times as much.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np

from streamcodec import (
    NEED_DATA,
    Decoder,
    EndOfMessage,
    HeaderCache,
    Limits,
    RemoteProtocolError,
    RequestHeader,
    parse_request_header,
    request_decoder,
)
from streamcodec.engine.compression.inflate import Inflater
from streamcodec.http import Collector, ConnectionClosed, RequestHead, ServerConnection
from streamcodec.http.connection import State

KIB: Final = 1 << 10
_READ_BYTES: Final = 64 * KIB
_LIMITS: Final = Limits()
_LIMITS_OF_HEADS: Final = Limits(max_head_bytes=1 << 20, max_head_fields=1 << 20)
"""With the defaults, the larger of two attacks would be refused as early as the smaller."""

Attack = Callable[[int], tuple[int, Callable[[], object]]]
"""Makes an attack of so many units, some kilobytes each; returns its bytes, and what has the receiver take them."""


def pieces(data: bytes, size: int) -> list[memoryview]:
    view = memoryview(data)
    return [view[start : start + size] for start in range(0, len(view), size)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """A message that a decoder gets in pieces; called, it is decoded."""

    data: bytes
    header_length: int | None
    size: int
    """Of the pieces."""
    is_known: bool = True
    """Whether the decoder is told how long the message is."""

    def __call__(self) -> None:
        """Decode it, as far as it is right."""
        decoder = request_decoder(
            header_length=self.header_length,
            body_length=len(self.data) if self.is_known else None,
            allow_headerless=True,
        )
        with suppress(RemoteProtocolError):
            for piece in pieces(self.data, self.size):
                decoder.feed(piece)
            decoder.receive_eof()
            _take_events(decoder)


def _take_events(decoder: Decoder[RequestHeader]) -> None:
    while not isinstance(decoder.next_event(), EndOfMessage):
        pass


def _header(text: Callable[[int], bytes]) -> Attack:
    """Make an attack of a JSON header whose length is declared."""

    def make(scale: int) -> tuple[int, Callable[[], object]]:
        data = text(scale)
        return len(data), Decoding(data=data, header_length=len(data), size=_READ_BYTES)

    return make


def _headerless(text: Callable[[int], bytes], size: int) -> Attack:
    """Make an attack of a header whose end has to be found, in chunks of that size."""

    def make(scale: int) -> tuple[int, Callable[[], object]]:
        data = text(scale)
        return len(data), Decoding(data=data, header_length=None, size=size, is_known=False)

    return make


def _tensors(count: int) -> bytes:
    entry = '{{"name":"{}","datatype":"INT8","shape":[1],"parameters":{{"binary_data_size":1}}}}'
    return f'{{"inputs":[{",".join(map(entry.format, range(count)))}]}}'.encode()


def _many_tensors(scale: int) -> tuple[int, Callable[[], object]]:
    text = _tensors(250 * scale)
    data = text + bytes(250 * scale)
    return len(data), Decoding(data=data, header_length=len(text), size=_READ_BYTES)


def _single_bytes(scale: int) -> tuple[int, Callable[[], object]]:
    count = 1_250 * scale
    text = _one_tensor("INT8", [count], count)
    return len(text) + count, Decoding(data=text + bytes(count), header_length=len(text), size=1)


def _one_tensor(datatype: str, shape: list[int], nbytes: int) -> bytes:
    entry = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": nbytes}}
    return json.dumps({"inputs": [entry]}).encode()


def _elements(payloads: Iterable[bytes], shape: list[int]) -> tuple[int, Callable[[], object]]:
    data = b"".join(struct.pack("<I", len(payload)) + payload for payload in payloads)
    text = _one_tensor("BYTES", shape, len(data))
    return len(text) + len(data), Decoding(data=text + data, header_length=len(text), size=_READ_BYTES)


def _unlike_elements(scale: int) -> tuple[int, Callable[[], object]]:
    """Lengths of which every few break the guess at what follows."""
    lengths = np.random.default_rng(1).integers(0, 400, 600 * scale).tolist()
    return _elements((b"\0" * length if length < 300 else b"" for length in lengths), [len(lengths)])


def _zeros(scale: int) -> tuple[int, Callable[[], object]]:
    """Elements of zeros, each of which looks like the beginning of another."""
    lengths = [(7 * number) % 11 for number in range(4_000 * scale)]
    return _elements((b"\0" * length for length in lengths), [len(lengths)])


def _new_headers(scale: int) -> tuple[int, Callable[[], object]]:
    """Headers none of which comes again, for a store that remembers them."""
    texts = [_one_tensor("INT8", [number], number) for number in range(125 * scale)]

    def run() -> None:
        headers = HeaderCache(parse_request_header)
        for text in texts:
            headers.parse(text, headers.limits)

    return sum(map(len, texts)), run


def _serve(data: bytes, size: int) -> Callable[[], object]:
    """Have a server answer all that comes."""

    def run() -> None:
        connection = ServerConnection(_LIMITS_OF_HEADS)
        for piece in pieces(data, size):
            left = piece
            while left and connection.incoming.state is not State.CLOSED:
                left = left[connection.feed(left) :]
                _answer(connection)

    return run


def _answer(connection: ServerConnection) -> None:
    try:
        while (event := connection.next_event()) is not NEED_DATA and not isinstance(event, ConnectionClosed):
            if isinstance(event, RequestHead):
                connection.receive_body(Collector(0))
            elif isinstance(event, EndOfMessage):
                connection.send_response(200)
    except RemoteProtocolError as error:
        connection.send_response(error.status_hint)


def _served(text: Callable[[int], bytes], size: int = _READ_BYTES) -> Attack:
    def make(scale: int) -> tuple[int, Callable[[], object]]:
        data = text(scale)
        return len(data), _serve(data, size)

    return make


_CHUNKED: Final = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def _fields(scale: int) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"a%d:\r\n" % number for number in range(50 * scale)) + b"\r\n"


def _inflate(data: bytes, size: int) -> Callable[[], object]:

    def run() -> None:
        inflater = Inflater("gzip", _LIMITS)
        for piece in pieces(data, size):
            for _ in inflater.inflate(piece):
                pass
        inflater.finish()

    return run


def _compressed(make_data: Callable[[int], bytes], size: int) -> Attack:
    def make(scale: int) -> tuple[int, Callable[[], object]]:
        data = make_data(scale)
        return len(data), _inflate(data, size)

    return make


def _values(members: str) -> bytes:
    return f'{{"inputs":[],"x":{members}}}'.encode()


def _data(datatype: str, shape: list[int], values: str) -> bytes:
    entry = f'{{"name":"x","datatype":"{datatype}","shape":{json.dumps(shape)},"data":{values}}}'
    return f'{{"inputs":[{entry}]}}'.encode()


def _named(names: Iterable[str]) -> str:
    return ",".join(f'"{name}":0' for name in names)


def _random_text(scale: int) -> bytes:
    return np.random.default_rng(1).bytes(KIB * scale)


_DEEP: Final = 100
"""Levels, within the limit."""

ATTACKS: Final[dict[str, Attack]] = {
    "end of JSON, braces in strings": _headerless(lambda scale: _values(f'"{"{" * 30_000 * scale}"'), _READ_BYTES),
    "end of JSON, small objects": _headerless(lambda scale: _values(f"[{'{},' * 6_000 * scale}0]"), _READ_BYTES),
    "end of JSON, escapes": _headerless(lambda scale: _values('"' + r"\\\"" * 6_000 * scale + '"'), _READ_BYTES),
    "end of JSON, never": _headerless(lambda scale: b'{"x":"' + b"\\" * 60_000 * scale, _READ_BYTES),
    "end of JSON, single bytes": _headerless(lambda scale: _values(f'"{"{" * 2_000 * scale}"'), 1),
    "blanks behind JSON": _headerless(lambda scale: b'{"inputs":[]}' + b" " * 60_000 * scale, 1_000),
    "deep, refused": _header(lambda scale: b"[" * 60_000 * scale),
    "deep, many times": _header(lambda scale: _values(f"[{(('[' * _DEEP) + (']' * _DEEP) + ',') * 1_000 * scale}0]")),
    "deep data": _header(lambda scale: _data("INT8", [600 * scale] + [1] * 60, _nested(600 * scale, 60))),
    "long integers": _header(lambda scale: _values(f"[{('9' * 4_000 + ',') * 6 * scale}0]")),
    "an integer too long": _header(lambda scale: _values("9" * 30_000 * scale)),
    "a long fraction": _header(lambda scale: _data("FP64", [1], f"[0.{'1' * 30_000 * scale}]")),
    "a long exponent": _header(lambda scale: _data("FP64", [1], f"[1e-{'1' * 30_000 * scale}]")),
    "escapes": _header(lambda scale: _values('"' + r"\u0041" * 6_000 * scale + '"')),
    "surrogates": _header(lambda scale: _values('"' + r"\ud83d\ude00" * 3_000 * scale + r"\ud83d" + '"')),
    "many members": _header(lambda scale: _values("{" + _named(map(str, range(1_250 * scale))) + "}")),
    "a member twice": _header(lambda scale: _values("{" + _named([*map(str, range(1_250 * scale)), "0"]) + "}")),
    "a member twice, behind values": _header(
        lambda scale: _values('{"a":' * _DEEP + "[" + "0," * 3_000 * scale + "0]" + "}" * _DEEP)[:-1] + b',"x":0}'
    ),
    "members alike but at the end": _header(
        lambda scale: _values("{" + _named("a" * 200 + str(number) for number in range(300 * scale)) + "}")
    ),
    "NaN nowhere else": _header(
        lambda scale: _data("FP64", [3_000 * scale], f"[{'NaN,' * (3_000 * scale - 1)}0]")[:-1] + b',"x":NaN}'
    ),
    "many tensors": _many_tensors,
    "many outputs": _header(
        lambda scale: json.dumps({"inputs": [], "outputs": [{"name": str(i)} for i in range(250 * scale)]}).encode()
    ),
    "single bytes": _single_bytes,
    "elements that break every guess": _unlike_elements,
    "elements of zeros": _zeros,
    "headers that never come again": _new_headers,
    "chunks of single bytes": _served(lambda scale: _CHUNKED + b"1\r\nx\r\n" * 300 * scale + b"0\r\n\r\n"),
    "a chunk's extension": _served(lambda scale: _CHUNKED + (b"1;" + b"a" * 60 + b"\r\nx\r\n") * 125 * scale, 100),
    "many fields": _served(_fields),
    "many fields, single bytes": _served(_fields, 1),
    "blanks in a head": _served(
        lambda scale: b"GET / HTTP/1.1\r\nHost: x\r\nX:" + b" \t" * 250 * scale + b"y\r\n\r\n", 1
    ),
    "pipelined requests": _served(lambda scale: b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 60 * scale),
    "members of gzip": _compressed(lambda scale: gzip.compress(b"") * 300 * scale, 1 << 30),
    "gzip in single bytes": _compressed(lambda scale: gzip.compress(_random_text(scale)), 1),
    "a bomb": _compressed(lambda scale: gzip.compress(bytes(128 * KIB * scale)), _READ_BYTES),
}
"""By name."""


def _nested(count: int, rank: int) -> str:
    return f"[{','.join(['[' * rank + '0' + ']' * rank] * count)}]"
