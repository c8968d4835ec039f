"""Whole bodies: what is read in one step is what a decoder reads, and a decoder decides about everything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import (
    Elements,
    EncodedMessage,
    Limits,
    Tensor,
    encode_response,
    parse_response_header,
    response_decoder,
)
from streamcodec.formats.v2.model import ResponseHeader
from streamcodec.formats.v2.whole import MAX_HEADER_BYTES, read_whole
from streamcodec.testing import run_push

LIMITS = Limits()
F32 = np.arange(6, dtype=np.float32).reshape(2, 3)
TEXTS = np.array([b"a", b"", b"\xff" * 9], dtype=object)


def _message(*arrays: Any, **options: Any) -> EncodedMessage:  # noqa: ANN401 - what a tensor takes
    tensors = [Tensor(name=f"y{number}", array=array, **options) for number, array in enumerate(arrays)]
    return encode_response(tensors, model_name="m")


MESSAGES = {
    "nothing": _message(),
    "one": _message(F32),
    "small ones": _message(*[np.full(3, n, np.int64) for n in range(20)]),
    "small and empty ones": _message(np.zeros(0, np.int8), F32, np.zeros((0, 5)), F32),
    "large ones": _message(np.arange(5000.0), np.arange(3, dtype=np.uint8), np.arange(9000.0), np.zeros(0)),
    "falling sizes": _message(np.arange(2000.0), np.arange(1000.0), np.arange(5, dtype=np.int16)),
    "texts": _message(TEXTS, F32),
    "no texts": _message(np.zeros(0, object)),
    "truths": _message(np.array([True, False]), np.zeros(0, bool)),
    "data": _message(F32, is_binary=False),
}


def _body(message: EncodedMessage) -> bytes:
    return b"".join(map(bytes, message.buffers))


def _whole(body: bytes, header_length: int | None, limits: Limits = LIMITS) -> tuple[ResponseHeader, Any] | None:
    return read_whole(parse_response_header, header_length, memoryview(body), limits)


def _same(values: Any, expected: Any) -> bool:  # noqa: ANN401 - arrays or elements
    if isinstance(expected, Elements):
        return isinstance(values, Elements) and [*values] == [*expected]
    return values.dtype == expected.dtype and np.array_equal(values, expected)


@pytest.mark.parametrize("name", MESSAGES)
def test_it_is_what_a_decoder_reads(name: str) -> None:
    body, header_length = _body(MESSAGES[name]), MESSAGES[name].header_length
    found = _whole(body, header_length)
    assert found is not None
    header, values = found
    decoder = response_decoder(header_length=header_length, body_length=len(body))
    outcome = run_push(lambda: decoder, [body])
    assert repr(header) == repr(outcome.header)
    assert [*values] == [event.spec.name for event in outcome.tensors]
    for event in outcome.tensors:
        assert _same(values[event.spec.name], event.values)


def test_what_one_array_keeps_of_the_others_is_small() -> None:
    found = _whole(_body(MESSAGES["large ones"]), MESSAGES["large ones"].header_length)
    assert found is not None
    for array in found[1].values():
        assert array.flags.writeable
        assert array.base.nbytes <= array.nbytes + (8 << 10)


TRUTHS = _message(np.array([True, True]))
REFUSED = {
    "a text that is cut": (MESSAGES["texts"], _body(MESSAGES["texts"]).replace(b"\t\0\0\0", b"\n\0\0\0")),
    "a truth of 2": (TRUTHS, _body(TRUTHS).replace(b"\1\1", b"\1\2")),
    "a header that is none": (MESSAGES["one"], b"?" + _body(MESSAGES["one"])[1:]),
    "less than declared": (MESSAGES["one"], _body(MESSAGES["one"])[:-1]),
    "more than declared": (MESSAGES["one"], _body(MESSAGES["one"]) + b"\0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_to_be_refused_is_left_to_the_decoder(name: str) -> None:
    message, body = REFUSED[name]
    assert _whole(body, message.header_length) is None
    decoder = response_decoder(header_length=message.header_length, body_length=len(body))
    assert run_push(lambda: decoder, [body]).error is not None


def test_what_is_long_is_left_to_the_decoder() -> None:
    body, length = _body(MESSAGES["one"]), MESSAGES["one"].header_length
    assert length is not None
    assert _whole(body, length, Limits(max_header_bytes=length - 1)) is None
    assert _whole(body, length, Limits(max_message_bytes=len(body) - 1)) is None
    assert _whole(body, 0) is None
    assert _whole(body, len(body) + 1) is None
    padded = body[:length] + b" " * (MAX_HEADER_BYTES + 1 - length) + body[length:]
    assert _whole(padded, MAX_HEADER_BYTES + 1) is None
    assert _whole(padded[: MAX_HEADER_BYTES + 1][:-1] + body[length:], MAX_HEADER_BYTES) is not None


def test_elements_have_their_limit() -> None:
    message = MESSAGES["texts"]
    assert _whole(_body(message), message.header_length, Limits(max_element_bytes=4)) is None


def test_a_body_without_a_length_of_its_header_is_all_json() -> None:
    body = _body(MESSAGES["data"])
    found = _whole(body, None)
    assert found is not None
    assert np.array_equal(found[1]["y0"], F32)
    assert _whole(_body(MESSAGES["one"]), None) is None
