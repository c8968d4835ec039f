"""Limits: each that the core enforces, at N and at N + 1, and what `Limits` itself refuses."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from streamcodec import (
    DATATYPES,
    DEFAULT_LIMITS,
    NEED_DATA,
    EndOfMessage,
    ErrorCode,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    TensorReceived,
    TensorSpec,
    raw_request_decoder,
)
from streamcodec.engine.record import field_names
from tests.engine.triad import accept, decode, refuse
from tests.formats.v2.messages import Message, binary, json_message, jsonic, message, request, response

OUTPUTS = [{"name": "y"}, {"name": "z"}]
TEXT = json_message({"inputs": [jsonic("INT8", [1], [5])]})
BINARY = request(binary("INT32", [2], 8), payload=bytes(8))
TWO = request(binary("INT32", [1], 4, name="a"), binary("INT32", [1], 4, name="b"), payload=bytes(8))
STRINGS = request(binary("BYTES", [3], 15), payload=b"\1\0\0\0a" * 3)
UNEVEN = request(binary("BYTES", [3], 17), payload=b"\1\0\0\0a\4\0\0\0abcd\0\0\0\0")
TEXTS = request(jsonic("BYTES", [2, 2], [["a", "b"], ["c", "four"]]))
SIZE_PATH = "$.inputs[0].parameters.binary_data_size"
WITH_64_BITS = pytest.mark.skipif(sys.maxsize < 1 << 61, reason="with 32 bits, so much cannot even be addressed")


@pytest.mark.parametrize(
    ("limit", "fits", "at", "path", "offset"),
    [
        pytest.param("max_header_bytes", BINARY, BINARY.header_length, None, 0, id="header"),
        pytest.param("max_header_bytes", TEXT, len(TEXT.body), None, 0, id="header-is-body"),
        pytest.param("max_header_bytes", TEXT.chunked(), len(TEXT.body), None, 0, id="header-of-unknown-length"),
        pytest.param("max_message_bytes", BINARY, len(BINARY.body), None, 0, id="message"),
        pytest.param("max_message_bytes", BINARY.chunked(), len(BINARY.body), "$.inputs[0]", None, id="tensors"),
        pytest.param("max_message_bytes", TWO.chunked(), len(TWO.body), "$.inputs[1]", None, id="tensors-of-two"),
        pytest.param("max_message_bytes", TEXT, len(TEXT.body), None, 0, id="message-of-json"),
        pytest.param("max_message_bytes", TEXT.chunked(), len(TEXT.body), None, 0, id="message-of-unknown-length"),
        pytest.param("max_json_depth", TEXT, 4, None, TEXT.body.index(b"[1]"), id="depth"),
        pytest.param("max_tensors", TWO, 2, "$.inputs", None, id="inputs"),
        pytest.param("max_tensors", request(outputs=OUTPUTS), 2, "$.outputs", None, id="requested-outputs"),
        pytest.param(
            "max_tensors",
            response(jsonic("INT8", [1], [1], name="a"), jsonic("INT8", [1], [1], name="b")),
            2,
            "$.outputs",
            None,
            id="outputs",
        ),
        pytest.param("max_rank", request(jsonic("INT8", [1] * 5, [1])), 5, "$.inputs[0].shape", None, id="rank"),
        pytest.param("max_elements", request(jsonic("INT8", [2, 3], [1] * 6)), 6, "$.inputs[0].shape", None, id="json"),
        pytest.param("max_elements", BINARY, 2, "$.inputs[0].shape", None, id="elements"),
        pytest.param(
            "max_elements", request(binary("INT8", [0, 7], 0)), 7, "$.inputs[0].shape", None, id="beside-zero"
        ),
        pytest.param("max_tensor_bytes", BINARY, 8, "$.inputs[0].parameters.binary_data_size", None, id="tensor-bytes"),
        pytest.param(
            "max_tensor_bytes", STRINGS, 15, "$.inputs[0].parameters.binary_data_size", None, id="strings-bytes"
        ),
        pytest.param("max_json_tensor_bytes", TEXT, 1, "$.inputs[0].data", None, id="json-tensor"),
        pytest.param(
            "max_json_tensor_bytes", request(jsonic("FP64", [2, 3], [0] * 6)), 48, "$.inputs[0].data", None, id="floats"
        ),
        pytest.param("max_json_tensor_bytes", TEXTS, 32, "$.inputs[0].data", None, id="json-strings"),
        pytest.param("max_bytes_elements", TEXTS, 4, "$.inputs[0].data", None, id="json-string-count"),
        pytest.param("max_element_bytes", TEXTS, 4, "$.inputs[0].data", None, id="json-element"),
        pytest.param("max_element_bytes", STRINGS, 1, SIZE_PATH, None, id="element-on-average"),
        pytest.param("max_element_bytes", UNEVEN, 4, None, len(UNEVEN.body) - 12, id="element"),
        pytest.param("max_bytes_elements", STRINGS, 3, "$.inputs[0].parameters.binary_data_size", None, id="strings"),
    ],
)
def test_message_at_a_limit_passes_and_one_beyond_is_refused(
    limit: str, fits: Message, at: int, path: str | None, offset: int | None
) -> None:
    accept(fits.under(**{limit: at}))
    error = refuse(fits.under(**{limit: at - 1}))
    assert isinstance(error, LimitExceededError)
    assert (error.code, error.limit) == (ErrorCode.LIMIT_EXCEEDED, limit)
    assert (error.path, error.offset) == (path, offset)
    assert error.status_hint == (400 if limit == "max_json_depth" else 413)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "length", "size"),
    [("binary", 200, 4_099), ("binary", 5, 1 << 30), ("JSON", 200, 1 << 30), ("JSON", 5, 4_099)],
)
def test_as_many_tensors_as_may_be_fit_into_all_default_limits(form: str, length: int, size: int) -> None:
    count = DEFAULT_LIMITS.max_tensors
    names = [f"{index:0{length}}" for index in range(count)]
    parameters = {"a": 1, "b": "x", "c": True, "d": 1.5}
    inputs = [
        binary("INT8", [1, 1], 1, name=name, parameters={"binary_data_size": 1, **parameters})
        if form == "binary"
        else {**jsonic("INT8", [1, 1], [5], name=name), "parameters": parameters}
        for name in names
    ]
    outputs = [{"name": name, "parameters": parameters} for name in names]
    whole = request(*inputs, outputs=outputs, payload=bytes(count) if form == "binary" else b"")
    decoder = whole.decoder()
    received = 0
    for start in range(0, len(whole.body), size):
        decoder.feed(whole.body[start : start + size])
        while (event := decoder.next_event()) is not NEED_DATA and not isinstance(event, EndOfMessage):
            received += isinstance(event, TensorReceived)
    assert received == count
    assert decoder.is_complete


def test_raw_element_at_its_limit_passes_and_one_beyond_is_refused() -> None:
    spec = TensorSpec(name="x", datatype=DATATYPES["BYTES"], shape=(1,), nbytes=5, offset=0, is_single_element=True)
    decoder = raw_request_decoder(spec, limits=Limits(max_element_bytes=5))
    assert decoder.feed(b"12345") == 5
    decoder = raw_request_decoder(spec, limits=Limits(max_element_bytes=4))
    with pytest.raises(LimitExceededError, match="5 bytes, 4 are allowed") as caught:
        decoder.next_event()
    assert (caught.value.limit, decoder.offset) == ("max_element_bytes", 0)


def test_no_element_is_too_long_where_there_is_none() -> None:
    accept(request(binary("BYTES", [0], 0)).under(max_element_bytes=0))
    accept(request(jsonic("BYTES", [0], [])).under(max_element_bytes=0))


def test_header_of_unknown_length_is_not_read_far_beyond_its_limit() -> None:
    endless = TEXT.chunked().under(max_header_bytes=10).decoder()
    assert endless.feed(TEXT.body + bytes(1 << 20)) == 11
    endless = TEXT.chunked().under(max_message_bytes=10).decoder()
    assert endless.feed(TEXT.body + bytes(1 << 20)) == 11


def test_declared_header_beyond_its_limit_is_refused_before_any_memory_is_taken() -> None:
    outcome = decode(message(b"{}"))
    assert outcome.taken == 2
    for length in (DEFAULT_LIMITS.max_header_bytes + 1, 10**19 - 1):
        bad = Message(body=b"{}", header_length=length, body_length=None)
        assert decode(bad).taken == 0
        assert isinstance(refuse(bad), LimitExceededError)


def test_shape_is_multiplied_without_overflow() -> None:
    for shape in ([2**32, 2**32], [2**63, 2], [10**4000, 10**4000], [2**21] * 3):
        error = refuse(request(binary("INT8", shape, 0)))
        assert isinstance(error, LimitExceededError)
        assert (error.limit, error.path) == ("max_elements", "$.inputs[0].shape")


def test_message_longer_than_memory_is_refused_by_its_header() -> None:
    huge = request(binary("FP32", [1 << 32], 4 << 32))
    error = refuse(Message(body=huge.body, header_length=len(huge.body), body_length=len(huge.body) + (4 << 32)))
    assert isinstance(error, LimitExceededError)
    assert error.limit in {"max_tensor_bytes", "max_message_bytes"}


@WITH_64_BITS
@pytest.mark.parametrize("datatype", ["FP64", "BYTES"])
def test_memory_that_the_machine_does_not_have_is_an_answer_to_the_peer(datatype: str) -> None:
    beyond = 1 << 50
    huge = request(binary(datatype, [beyond // 8], beyond))
    bad = huge.chunked().under(
        max_tensor_bytes=beyond,
        max_message_bytes=2 * beyond,
        max_elements=beyond,
        max_bytes_elements=beyond,
    )
    outcome = decode(bad)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.status_hint) == (ErrorCode.OUT_OF_MEMORY, 503)
    assert outcome.header is not None


def test_a_long_header_takes_no_memory_before_it_comes() -> None:
    bad = Message(
        body=b"",
        header_length=1 << 60,
        body_length=None,
        limits=Limits(max_header_bytes=1 << 62, max_message_bytes=1 << 62),
    )
    assert refuse(bad).code is ErrorCode.TRUNCATED


def test_every_limit_is_finite_by_default_and_documented() -> None:
    assert Limits() == DEFAULT_LIMITS
    for name in field_names(Limits):
        assert name.startswith("max_")
        assert 0 < getattr(DEFAULT_LIMITS, name) < 1 << 62


@pytest.mark.parametrize("name", field_names(Limits))
@pytest.mark.parametrize("value", [-1, 1.0, "1", None, True])
def test_limits_are_integers_from_0(name: str, value: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(LocalProtocolError, match=name):
        Limits(**{name: value})
    assert getattr(Limits(**{name: 0}), name) == 0


@pytest.mark.parametrize(
    ("name", "ceiling"),
    [
        ("max_json_depth", 256),
        ("max_rank", 64),
        ("max_elements", 1 << 59),
        ("max_header_bytes", 1 << 62),
        ("max_tensor_bytes", 1 << 62),
    ],
)
def test_limits_end_where_the_machinery_below_does(name: str, ceiling: int) -> None:
    assert getattr(Limits(**{name: ceiling}), name) == ceiling
    with pytest.raises(LocalProtocolError, match=f"{name} must be at most {ceiling}"):
        Limits(**{name: ceiling + 1})


@WITH_64_BITS
def test_ceilings_are_safe() -> None:
    deep = message(b'{"inputs":[],"x":' + b"[" * 255 + b"]" * 255 + b"}").under(max_json_depth=256)
    assert decode(deep).error is None
    empty = request(binary("FP64", [0, 1 << 59], 0)).under(max_elements=1 << 59)
    assert accept(empty)[0].shape == (0, 1 << 59)
    huge = request(binary("FP64", [1 << 59], 1 << 62)).chunked()
    huge = huge.under(max_elements=1 << 59, max_tensor_bytes=1 << 62, max_message_bytes=1 << 63)
    assert refuse(huge).code is ErrorCode.OUT_OF_MEMORY
