"""The texts of local errors, word for word: what is wrong, and where it helps, what to do.

`test_refusals` has the texts of remote errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    Decoder,
    Elements,
    HeaderCache,
    Into,
    Limits,
    LocalProtocolError,
    Pool,
    RequestedOutput,
    RequestHeader,
    Rows,
    Slab,
    Tensor,
    TensorSpec,
    Windows,
    compress_message,
    encode_raw_request,
    encode_request,
    parse_request_header,
    request_decoder,
)
from streamcodec.engine.compression.inflate import Inflater
from streamcodec.engine.elements.payloads import check_length
from streamcodec.engine.memory.rows import row_buffers
from tests.formats.v2.messages import binary, request

FLOATS: Final = np.zeros((2, 3), "<f4")
MESSAGE: Final = request(binary("INT16", [2], 4), binary("INT16", [2], 4, name="y"), payload=bytes(8))


async def _later() -> AsyncIterator[np.ndarray[Any, Any]]:
    yield FLOATS


def _write(array: Any, **members: Any) -> None:  # noqa: ANN401 - also what is wrong
    encode_request([Tensor(**{"name": "x", "array": array, **members})])


def _send(windows: Any, shape: tuple[int, ...] = (2, 3)) -> None:  # noqa: ANN401 - also what is wrong
    list(row_buffers(Rows("FP32", shape, windows)))


def _decoder(**arguments: Any) -> Decoder[RequestHeader]:  # noqa: ANN401 - anything
    return request_decoder(header_length=MESSAGE.header_length, body_length=MESSAGE.body_length, **arguments)


def _receive(place: Callable[[TensorSpec], Any]) -> None:
    decoder = _decoder(place=place)
    decoder.feed(MESSAGE.body)
    while decoder.next_event() is not NEED_DATA:
        pass


class _Odd:
    """Gives whatever memory it is told to."""

    def __init__(self, *buffers: memoryview) -> None:
        self._buffers = buffers

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:  # noqa: ARG002 - the signature of Placement
        for buffer in self._buffers:
            yield Slab(buffer=buffer, array=None)


def _complete() -> None:
    decoder = _decoder()
    decoder.feed(MESSAGE.body)
    decoder.get_buffer()


def _paused() -> None:
    decoder = _decoder(place=lambda _: Windows(max_window_bytes=2))
    decoder.feed(MESSAGE.body)
    decoder.get_buffer()


def _update(nbytes: int, *, asks: bool = True) -> None:
    decoder = _decoder()
    if asks:
        decoder.get_buffer()
    decoder.buffer_updated(nbytes)


def _update_twice() -> None:
    decoder = _decoder()
    decoder.get_buffer()
    decoder.buffer_updated(1)
    decoder.buffer_updated(1)


def _update_after_feed() -> None:
    decoder = _decoder()
    decoder.get_buffer()
    decoder.feed(MESSAGE.body[:3])
    decoder.buffer_updated(1)


def _call_from_within() -> None:
    decoders: list[Decoder[RequestHeader]] = []
    decoders.append(_decoder(check=lambda _: decoders[0].feed(b"")))
    decoders[0].feed(MESSAGE.body)
    decoders[0].next_event()


def _share() -> None:
    memory = Into(np.zeros(2, "<i2"))
    _receive(lambda _: memory)


def _compress_twice() -> None:
    message = compress_message(encode_request([Tensor(name="x", array=np.zeros(1000, "u1"))]), "gzip")
    compress_message(message, "gzip")


HEADERS: Final = HeaderCache(parse_request_header, Limits(max_rank=3))
FROZEN: Final = np.zeros(2, "<i2")
FROZEN.flags.writeable = False
FLAG: Final = "the parameter binary_data is a bool, not 1"

COMPLAINTS: Final[list[tuple[str, Callable[[], object]]]] = [
    ("the message is complete; make a new decoder for the next one", _complete),
    ("the memory is still in use; call next_event() until it returns NEED_DATA", _paused),
    (
        "a decoder cannot be used from its own callbacks, by two threads at once, or after one was interrupted",
        _call_from_within,
    ),
    ("no buffer was asked for since the last bytes; get_buffer() comes before buffer_updated()", _update_twice),
    ("no buffer was asked for since the last bytes; get_buffer() comes before buffer_updated()", _update_after_feed),
    ("0 bytes cannot have been written to a buffer of 190; the end of input is receive_eof()", lambda: _update(0)),
    ("-1 bytes cannot have been written to a buffer of 190", lambda: _update(-1)),
    ("191 bytes cannot have been written to a buffer of 190", lambda: _update(191)),
    (
        "no buffer was asked for since the last bytes; get_buffer() comes before buffer_updated()",
        lambda: _update(1, asks=False),
    ),
    ("a length is negative", lambda: request_decoder(header_length=-1, body_length=None)),
    ("a length is negative", lambda: request_decoder(header_length=None, body_length=-1)),
    (
        "the limits of a decoder must be the limits of its header cache",
        lambda: _decoder(headers=HEADERS, limits=Limits()),
    ),
    (
        "the limits must be those that the header cache was made with",
        lambda: HEADERS.parse(b"{}", Limits()),
    ),
    ("tensors 'x' and 'y' were given memory that overlaps", _share),
    ("the memory to receive tensor 'x' is read-only", lambda: _receive(lambda _: _Odd(memoryview(b"1234")))),
    (
        "the placement gave 2 bytes of memory or more, the tensor has 4",
        lambda: _receive(lambda _: _Odd(memoryview(bytearray(2)))),
    ),
    (
        "the placement gave 5 bytes of memory or more, the tensor has 4",
        lambda: _receive(lambda _: _Odd(memoryview(bytearray(5)))),
    ),
    ("array is int16 [3], the tensor is int16 [2]", lambda: _receive(lambda _: Into(np.zeros(3, "<i2")))),
    ("array is uint16 [2], the tensor is int16 [2]", lambda: _receive(lambda _: Into(np.zeros(2, "<u2")))),
    (
        "the array to receive a tensor must be C-contiguous and writable",
        lambda: _receive(lambda _: Into(np.zeros(4, "<i2")[::2])),
    ),
    ("the array to receive a tensor must be C-contiguous and writable", lambda: _receive(lambda _: Into(FROZEN))),
    ("windows have at least 1 byte and 1 or 2 buffers, not 0 and 1", lambda: Windows(max_window_bytes=0)),
    (
        "windows have at least 1 byte and 1 or 2 buffers, not 8 and 3",
        lambda: Windows(max_window_bytes=8, buffer_count=3),
    ),
    ("a pool's numbers of bytes are not negative, unlike -1", lambda: Pool(max_idle_bytes=-1)),
    ("a pool's numbers of bytes are not negative, unlike -2", lambda: Pool(min_bytes=-2)),
    ("max_rank must be an integer >= 0, not -1", lambda: Limits(max_rank=-1)),
    ("max_rank must be an integer >= 0, not True", lambda: Limits(max_rank=True)),
    (
        "max_json_depth must be at most 256: the JSON parser recurses, and the interpreter's stack must hold it",
        lambda: Limits(max_json_depth=257),
    ),
    ("an encoding is gzip or deflate, not 'br'", lambda: Inflater("br", Limits())),
    ("the message is compressed already, with gzip", _compress_twice),
    (
        "a streamed message cannot be compressed: its length must be known before its bytes are made",
        lambda: compress_message(encode_request([Tensor(name="x", array=Rows("INT8", (1,), []))]), "gzip"),
    ),
    (
        "tensor 'x': numpy dtype complex128 has no datatype in the V2 protocol; convert the array first",
        lambda: _write(np.zeros(1, complex)),
    ),
    (
        "names are str, unique in a message and not empty, unlike ''",
        lambda: encode_request([Tensor(name="", array=FLOATS)]),
    ),
    (
        "names are str, unique in a message and not empty, unlike 'x'",
        lambda: encode_request([Tensor(name="x", array=FLOATS)] * 2),
    ),
    (FLAG, lambda: encode_request([], outputs=[RequestedOutput(name="x", parameters={"binary_data": 1})])),
    (
        (
            "the header cannot be written as JSON: 'utf-8' codec can't encode character '\\ud800' in position 20: "
            "surrogates not allowed"
        ),
        lambda: _write(FLOATS, name="\ud800"),
    ),
    ("tensor 'x': names of parameters are str", lambda: _write(FLOATS, parameters={3: 4})),
    (
        "tensor 'x': a parameter has no form in JSON: Object of type object is not JSON serializable",
        lambda: _write(FLOATS, parameters={"a": object()}),
    ),
    ("a raw binary request holds one BYTES element, not 2", lambda: encode_raw_request(np.array([b"a", b"b"], object))),
    (
        "tensor 'x': an element of a BYTES tensor is a str with a lone surrogate, which has no UTF-8 form",
        lambda: _write(np.array(["\ud800"], object)),
    ),
    ("tensor 'x': elements of a BYTES tensor are bytes or str, not int", lambda: _write(np.array([b"a", 3], object))),
    (
        "an element of a BYTES tensor has 4294967296 bytes; the length prefix ends at 4 GiB",
        lambda: check_length(1 << 32),
    ),
    (
        "the offsets are those of 2 elements, unlike the shape [3]",
        lambda: Elements.from_compact([0, 1, 2], b"ab", (3,)),
    ),
    ("offsets are integers of shape [count + 1], unlike float64 [2]", lambda: Elements.from_compact([0.0, 1.0], b"a")),
    (
        "offsets are integers of shape [count + 1], unlike int64 [0]",
        lambda: Elements.from_compact(np.zeros(0, int), b"a"),
    ),
    (
        "offsets are ascending from 0 or more to 1, the length of the data, at most",
        lambda: Elements.from_compact([0, 2], b"a"),
    ),
    (
        "a tensor given in windows is of one of the datatypes of fixed size, not 'BYTES'",
        lambda: Rows("BYTES", (1,), []),
    ),
    ("a shape is a sequence of integers >= 0, unlike (-1,)", lambda: Rows("FP32", (-1,), [])),
    ("a window has 3 rows where 2 of 2 were missing", lambda: _send([np.zeros((3, 3), "<f4")])),
    ("a window has 1 rows where 0 of 2 were missing", lambda: _send([FLOATS, FLOATS[:1]])),
    ("the windows ended after 1 of 2 rows", lambda: _send([FLOATS[:1]])),
    (
        "the windows of a tensor are asynchronous; only an asynchronous program can send them, in binary form",
        lambda: _send(_later()),
    ),
]
"""Words, and the mistake that they are about."""


@pytest.mark.parametrize(("words", "mistake"), COMPLAINTS, ids=range(len(COMPLAINTS)))
def test_a_mistake_is_named_with_what_was_found(words: str, mistake: Callable[[], object]) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        mistake()
    assert str(caught.value) == words
