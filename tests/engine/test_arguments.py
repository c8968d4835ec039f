"""Arguments of another type: each is refused with what is right, and integers of numpy are integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    Datatype,
    Limits,
    LocalProtocolError,
    Pool,
    RequestHeader,
    Tensor,
    Windows,
    binary_form,
    chosen,
    compress_message,
    datatype_of,
    encode_raw_request,
    encode_request,
    encode_response,
    format_decoder,
    message_of,
    parse_content_encoding,
    parse_header_length,
    request_decoder,
)
from streamcodec.engine.decoder import Decoder
from streamcodec.formats import npy, safetensors
from streamcodec.transports.sockets.received import Collecting, Received

MESSAGE = encode_request({"x": np.arange(6, dtype="<f4")})
BODY = b"".join(map(bytes, MESSAGE.buffers))
MASKED = np.ma.masked_array([1, 2], [False, True])
MASKED_TEXTS = np.ma.masked_array([b"a", b"b"], [False, True])


def request(**options: Any) -> Decoder[RequestHeader]:  # noqa: ANN401 - wrong on purpose
    lengths = {"header_length": MESSAGE.header_length, "body_length": MESSAGE.body_length}
    return request_decoder(**(lengths | options))


def declared(length: Any) -> Decoder[Any]:  # noqa: ANN401 - wrong on purpose
    return format_decoder(npy.reading.read, length=length)


def encoded(**options: Any) -> object:  # noqa: ANN401 - wrong on purpose
    return encode_request(options.pop("inputs", {"x": np.zeros(1)}), **options)


ANYTHING: Any = object()
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a length as text": (lambda: request(header_length="128"), r"header_length is an int, not str: int\('128'\)"),
    "a length with a point": (lambda: request(header_length=128.0), "header_length is an int, not float$"),
    "no length": (lambda: request(header_length=True), "header_length is an int, not bool$"),
    "a negative length": (lambda: request(header_length=-1), "a length is negative"),
    "a body's length as text": (lambda: request(body_length="152"), "the length of a message is an int, not str"),
    "a format's length as text": (lambda: declared("10"), "the length of a message is an int, not str"),
    "limits": (lambda: request(limits={}), r"limits are a Limits object, as Limits\(.*\), not dict"),
    "a format's limits": (lambda: format_decoder(ANYTHING, limits=ANYTHING), "limits are a Limits object"),
    "headers": (lambda: request(headers={}), r"headers are a HeaderCache, as HeaderCache\(.*\), not dict"),
    "windows": (lambda: Windows(max_window_bytes="1"), "not '1' and 1"),  # type: ignore[arg-type]
    "a pool": (lambda: Pool(max_idle_bytes="1"), "max_idle_bytes is an int, not str"),  # type: ignore[arg-type]
    "limits in text": (lambda: Limits(max_rank="1"), "max_rank must be an integer"),  # type: ignore[arg-type]
    "one name": (lambda: chosen("x"), r"names are a set or list of str, as \{'x'\}, not str"),
    "no names": (lambda: chosen(ANYTHING), "names are a set or list of str"),
    "chosen for a pool": (lambda: chosen({"x"}, Pool()), "place is a function"),  # type: ignore[arg-type]
    "a place in a message": (lambda: MESSAGE.buffers_from("1"), "has no byte '1'"),  # type: ignore[arg-type]
    "a type": (lambda: datatype_of(np.float32), r"takes a numpy dtype, not type: array.dtype or"),  # type: ignore[arg-type]
    "a name of a dtype": (lambda: Datatype("x", "f1"), "has a numpy dtype, as .*: data type 'f1'"),  # type: ignore[arg-type]
    "nothing to encode": (lambda: encoded(inputs=None), "tensors are given as Tensor objects, .* not as None"),
    "one tensor": (lambda: encoded(inputs=Tensor(name="x", array=np.zeros(1))), "not as .*Tensor"),
    "names of outputs": (lambda: encoded(outputs=["y"]), r"as \[RequestedOutput\(name='y'\)\], not str"),
    "an output": (lambda: encoded(outputs=ANYTHING), "outputs are RequestedOutput objects"),
    "parameters": (lambda: encoded(parameters=[1]), "parameters are a mapping of names to values, not list"),
    "an id": (lambda: encoded(request_id=7), "an id is a str, as '7', not int"),
    "an id of an answer": (lambda: encode_response({}, model_name="m", request_id=ANYTHING), "an id is a str"),
    "bytes to compress": (lambda: compress_message(BODY, "gzip"), "takes an EncodedMessage"),  # type: ignore[arg-type]
    "text of a field": (lambda: parse_header_length(["128"]), r"list of bytes, as \[b'128'\]; text.encode"),  # type: ignore[list-item]
    "a number of a field": (lambda: parse_header_length([5]), "list of bytes"),  # type: ignore[list-item]
    "text of a coding": (lambda: parse_content_encoding(["gzip"]), "list of bytes"),  # type: ignore[list-item]
    "a masked array": (lambda: encoded(inputs={"x": MASKED}), r"tensor 'x': .* masked array, .* array.filled\(value\)"),
    "masked texts": (lambda: encoded(inputs={"x": MASKED_TEXTS}), "masked array"),
    "masked as JSON": (lambda: encoded(inputs=[Tensor(name="x", array=MASKED, is_binary=False)]), "masked array"),
    "masked and raw": (lambda: encode_raw_request(MASKED), "masked array"),
    "masked in a file": (lambda: npy.encode(MASKED), "masked array"),
    "masked in another file": (lambda: safetensors.encode({"x": MASKED}), "masked array"),
}


@pytest.mark.parametrize(("act", "words"), WRONG.values(), ids=WRONG)
def test_an_argument_of_another_type_is_refused_with_what_is_right(act: Callable[[], object], words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        act()


def test_integers_of_numpy_are_integers() -> None:
    for kind in (np.uint8, np.int64):
        decoder = request(header_length=kind(len(BODY) - 24), body_length=kind(len(BODY)))
        assert decoder.feed(BODY) == len(BODY)
        assert decoder.is_complete
        assert type(Limits(max_rank=kind(9)).max_rank) is int  # type: ignore[arg-type]
        assert sum(map(len, MESSAGE.buffers_from(kind(2)))) == len(BODY) - 2  # type: ignore[arg-type]
        assert Windows(max_window_bytes=kind(9)).max_window_bytes == 9  # type: ignore[arg-type]
        assert Pool(max_idle_bytes=kind(9)).max_idle_bytes == 9  # type: ignore[arg-type]
    part, _ = binary_form(np.zeros(3, np.int8), DATATYPES["INT8"])
    assert message_of(b"", [(part, np.int64(3))]).nbytes == 3  # type: ignore[list-item]


def test_a_received_message_is_asked_and_iterated_as_a_mapping() -> None:
    decoder, collecting = request(), Collecting[RequestHeader]()
    decoder.feed(BODY)
    received: Received[RequestHeader] | None = None
    while received is None:
        received = collecting.receive(decoder.next_event())  # type: ignore[arg-type]  # all bytes have come
    assert "x" in received
    assert "y" not in received
    assert list(received) == ["x"]
    assert len(received) == 1
    assert received["x"].tolist() == [0, 1, 2, 3, 4, 5]
