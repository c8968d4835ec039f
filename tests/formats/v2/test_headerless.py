"""Rulebook, "Framing", headerless form: the end of the JSON object is found, the rest must be exactly the tensors."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamcodec import (
    ErrorCode,
    LimitExceededError,
    Limits,
    Placement,
    RemoteProtocolError,
    TensorReceived,
    TensorSpec,
    new_array,
    request_decoder,
)
from streamcodec.engine.json.objectend import ObjectEnd
from streamcodec.formats.v2.layout import Layout
from tests.effort import places
from tests.engine.triad import accept, decode, refuse
from tests.formats.v2.messages import Message, binary, json_message, jsonic, message, request, response

BLOCK = 64 << 10
ONE = request(binary("INT16", [2], 4), payload=b"\1\0\2\0").headerless()
"""A request with one binary tensor."""
OBJECT = ONE.body[:-4]
TRICKY = 'quote " backslash \\ both \\" brace } bracket ] é 🦊'
"""Text that looks like the end to whoever does not mind strings."""

both_lengths = pytest.mark.parametrize("body_length", [True, False], ids=["length", "no length"])


def as_it_comes(source: Message, *, body_length: bool) -> Message:
    return source if body_length else source.chunked()


@both_lengths
def test_tensors_follow_the_object_at_once(body_length: bool) -> None:
    (array,) = accept(as_it_comes(ONE, body_length=body_length))
    assert array.dtype == "<i2"
    assert array.tolist() == [1, 2]


@both_lengths
def test_a_body_that_is_all_json_is_what_it_was(body_length: bool) -> None:
    source = json_message({"inputs": [jsonic("INT16", [2], [1, 2])]}).headerless()
    (array,) = accept(as_it_comes(source, body_length=body_length))
    assert array.tolist() == [1, 2]


@both_lengths
@pytest.mark.parametrize("payload", [b"}", b"{", b'"', b"\\", b" ", b"\n", b"\0", b"\xff"])
def test_the_first_byte_of_a_tensor_may_be_any(payload: bytes, body_length: bool) -> None:
    source = request(binary("UINT8", [1], 1), payload=payload).headerless()
    (array,) = accept(as_it_comes(source, body_length=body_length))
    assert array.tobytes() == payload


@pytest.mark.parametrize("form", ["compact", "indented", "ascii"])
def test_strings_escapes_and_nesting_do_not_end_the_object(form: str) -> None:
    members = {
        "id": TRICKY,
        TRICKY: {"deep": [{"deeper": [TRICKY, {"}": {}}]}]},
        "inputs": [binary("BOOL", [3], 3, name=TRICKY)],
        "parameters": {"last": "ends with a backslash \\"},
    }
    text = json.dumps(members, ensure_ascii=form == "ascii", indent=2 if form == "indented" else None)
    outcome = decode(message(text.encode(), b"\1\0\1").headerless())
    assert outcome.header is not None
    assert outcome.header.id == TRICKY
    assert outcome.arrays[0].tolist() == [True, False, True]


def test_white_space_may_stand_before_the_object() -> None:
    source = replace(ONE, body=b" \r\n\t" + ONE.body, body_length=len(ONE.body) + 4)
    assert accept(source)[0].tolist() == [1, 2]


@both_lengths
@pytest.mark.parametrize("count", [3, BLOCK])
def test_white_space_may_follow_an_object_without_binary_tensors(count: int, body_length: bool) -> None:
    source = message(b'{"inputs":[]}', b" \r\n\t" * count).headerless()
    decoder = as_it_comes(source, body_length=body_length).decoder()
    decoder.feed(source.body)
    decoder.receive_eof()
    assert decoder.is_complete
    assert decoder.offset == len(source.body)


@both_lengths
def test_white_space_before_tensors_would_be_tensor_bytes(body_length: bool) -> None:
    source = message(OBJECT, b"\n\1\0\2\0").headerless()
    error = refuse(as_it_comes(source, body_length=body_length))
    length, unknown = ErrorCode.BODY_LENGTH_MISMATCH, ErrorCode.TRAILING_BYTES
    assert (error.code, error.offset) == (length if body_length else unknown, len(ONE.body))


def test_several_tensors_each_get_their_part_of_what_was_read_ahead() -> None:
    texts = np.array([b"", b"\0}", b"{"], dtype=object)
    inputs = [
        binary("INT16", [2], 4, name="a"),
        jsonic("FP32", [1], [0.5], name="b"),
        binary("BYTES", [3], 15, name="c"),
        binary("INT8", [0], 0, name="d"),
        binary("BOOL", [1], 1, name="e"),
    ]
    elements = b"\0\0\0\0" + b"\2\0\0\0\0}" + b"\1\0\0\0{"
    arrays = accept(request(*inputs, payload=b"\1\0\2\0" + elements + b"\1").headerless())
    assert [array.tolist() for array in arrays] == [[1, 2], [0.5], texts.tolist(), [], [True]]


@both_lengths
@pytest.mark.parametrize("surplus", [-1, 0, 1])
@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("nbytes", [2, BLOCK - 1, BLOCK, 3 * BLOCK + 1])
def test_objects_and_tensors_may_end_anywhere_in_the_blocks(
    nbytes: int, blocks: int, surplus: int, body_length: bool
) -> None:
    values = np.random.default_rng(nbytes).bytes(nbytes)
    text = request(binary("UINT8", [nbytes], nbytes)).body
    text = text[:-1] + b" " * (blocks * BLOCK + surplus - len(text)) + b"}"
    source = as_it_comes(message(text, values).headerless(), body_length=body_length)
    decoder = source.decoder()
    assert decoder.feed(source.body) == len(source.body)
    decoder.receive_eof()
    decoder.next_event()
    event = decoder.next_event()
    assert isinstance(event, TensorReceived)
    assert event.array.tobytes() == values
    assert decoder.is_complete


def test_the_size_of_a_body_is_compared_before_any_tensor_is_placed() -> None:
    placed: list[str] = []

    def place(spec: TensorSpec) -> Placement:
        placed.append(spec.name)
        return new_array(spec)

    body = OBJECT + b"\1\0\2\0\3"
    decoder = request_decoder(header_length=None, body_length=len(body), allow_headerless=True, place=place)
    decoder.feed(body)
    with pytest.raises(
        RemoteProtocolError, match=f"has {len(body)} bytes, its header and tensors need {len(body) - 1}"
    ):
        decoder.next_event()
    assert not placed


@both_lengths
def test_a_body_that_ends_early_is_truncated(body_length: bool) -> None:
    for end in places(range(1, len(ONE.body))):
        source = replace(ONE, body=ONE.body[:end])
        error = refuse(as_it_comes(source, body_length=body_length))
        if body_length or end >= len(OBJECT):
            assert (error.code, error.offset) == (ErrorCode.TRUNCATED, end)
        else:
            assert error.code is ErrorCode.INVALID_JSON


@both_lengths
def test_bytes_after_the_last_tensor_are_refused(body_length: bool) -> None:
    source = message(OBJECT, b"\1\0\2\0\3").headerless()
    error = refuse(as_it_comes(source, body_length=body_length))
    length, unknown = ErrorCode.BODY_LENGTH_MISMATCH, ErrorCode.TRAILING_BYTES
    assert (error.code, error.offset) == (length if body_length else unknown, len(ONE.body))


@pytest.mark.parametrize("byte", [b"\1", b"\x0b", b"\x0c"], ids=["control", "vertical tab", "form feed"])
@both_lengths
def test_bytes_after_an_object_without_tensors_are_refused(byte: bytes, body_length: bool) -> None:
    source = message(b'{"inputs":[]}', b" " + byte).headerless()
    error = refuse(as_it_comes(source, body_length=body_length))
    assert (error.code, error.offset) == (ErrorCode.TRAILING_BYTES, 14)


def test_white_space_that_ends_too_early_is_truncated() -> None:
    source = replace(message(b'{"inputs":[]}', b"  ").headerless(), body_length=20)
    error = refuse(source)
    assert (error.code, error.offset) == (ErrorCode.TRUNCATED, 15)


def test_without_bytes_after_the_last_tensor_the_end_is_awaited() -> None:
    decoder = ONE.chunked().decoder()
    decoder.feed(ONE.body)
    assert not decoder.is_complete
    decoder.receive_eof()
    assert decoder.is_complete


def test_after_a_long_tensor_of_a_body_without_length_one_more_byte_is_refused() -> None:
    header = request(binary("UINT8", [BLOCK], BLOCK)).body
    body = header + b"x" * BLOCK
    decoder = request_decoder(header_length=None, body_length=None, allow_headerless=True)
    assert decoder.feed(body) == len(body)
    assert not decoder.is_complete
    assert decoder.feed(b"!?") == 1
    decoder.next_event()
    decoder.next_event()
    with pytest.raises(RemoteProtocolError, match="goes on") as refused:
        decoder.next_event()
    assert refused.value.offset == len(body)


@pytest.mark.parametrize(
    ("body", "offset"),
    [
        pytest.param(b"[1]", 0, id="array"),
        pytest.param(b' "x"', 1, id="string"),
        pytest.param(b"\xef\xbb\xbf{}", 0, id="byte order mark"),
        pytest.param(b"\x1f\x8b", 0, id="gzip"),
        pytest.param(b"\n}", 1, id="brace"),
        pytest.param(b" \x0b{", 1, id="vertical tab"),
        pytest.param(b" " * (BLOCK + 1) + b"7", BLOCK + 1, id="late"),
    ],
)
def test_what_does_not_begin_like_an_object_is_refused_at_its_first_byte(body: bytes, offset: int) -> None:
    decoder = request_decoder(header_length=None, body_length=1 << 30, allow_headerless=True)
    decoder.feed(body + b"," * BLOCK)
    with pytest.raises(RemoteProtocolError, match="opening brace") as refused:
        decoder.next_event()
    assert (refused.value.code, refused.value.offset) == (ErrorCode.INVALID_HEADER, offset)


@pytest.mark.parametrize("body", [b"   ", b'{"inputs":[', b'{"inputs":["}'], ids=["blank", "open", "in a string"])
@both_lengths
def test_an_object_that_never_ends_is_no_json(body: bytes, body_length: bool) -> None:
    error = refuse(as_it_comes(message(body).headerless(), body_length=body_length))
    assert error.code is ErrorCode.INVALID_JSON


@both_lengths
def test_an_empty_body_is_no_message(body_length: bool) -> None:
    assert refuse(as_it_comes(message(b"").headerless(), body_length=body_length)).code is ErrorCode.EMPTY_BODY


@both_lengths
def test_the_object_obeys_the_limit_of_a_header_but_the_tensors_do_not(body_length: bool) -> None:
    source = request(binary("UINT8", [300], 300), payload=bytes(300)).headerless()
    length = len(source.body) - 300
    accept(as_it_comes(source, body_length=body_length).under(max_header_bytes=length))
    error = refuse(as_it_comes(source, body_length=body_length).under(max_header_bytes=length - 1))
    assert isinstance(error, LimitExceededError)
    assert error.limit == "max_header_bytes"


@both_lengths
def test_white_space_behind_the_object_counts_as_header(body_length: bool) -> None:
    source = as_it_comes(message(b'{"inputs":[]}', b" " * 10).headerless(), body_length=body_length)
    decode(source.under(max_header_bytes=23))
    error = refuse(source.under(max_header_bytes=22))
    assert isinstance(error, LimitExceededError)


def test_an_object_longer_than_the_limit_is_refused_without_reading_it_all() -> None:
    decoder = request_decoder(
        header_length=None, body_length=1 << 30, allow_headerless=True, limits=Limits(max_header_bytes=100)
    )
    assert decoder.feed(b'{"id":"' + b"x" * 1000) == 101


def test_a_body_longer_than_a_message_may_be_is_refused_before_its_first_byte() -> None:
    source = replace(ONE, body=b"").under(max_message_bytes=len(ONE.body) - 1)
    error = refuse(source)
    assert isinstance(error, LimitExceededError)
    assert (error.limit, error.offset) == ("max_message_bytes", 0)


@pytest.mark.parametrize("payload", [b" " * (1 << 20), b"x" * 40], ids=["all header", "tensor"])
def test_the_memory_of_the_header_is_free_when_the_message_is_complete(payload: bytes) -> None:
    nbytes = len(payload.strip())
    text = request(*([binary("UINT8", [nbytes], nbytes)] if nbytes else [])).body
    body = text[:-1] + b" " * (1 << 20) + b"}" + payload
    source = message(body).headerless().under(max_json_text_bytes=4 << 20)
    source.decoder().feed(body)  # imports what is imported once
    tracemalloc.start()
    try:
        decoder = source.decoder()
        decoder.feed(body)
        assert tracemalloc.get_traced_memory()[1] > 1 << 20
        assert tracemalloc.get_traced_memory()[0] < 1 << 17
        assert decoder.is_complete
    finally:
        tracemalloc.stop()


def test_responses_may_be_headerless_too() -> None:
    source = response(binary("INT8", [1], 1), payload=b"\5").headerless()
    assert accept(source)[0].tolist() == [5]


def test_a_declared_header_length_is_obeyed_whatever_is_allowed() -> None:
    padded = message(OBJECT + b"  ", b"\1\0\2\0")
    assert accept(replace(padded, allow_headerless=True))[0].tolist() == [1, 2]


def test_a_bare_decoder_takes_all_of_such_a_body_for_json() -> None:
    error = refuse(replace(ONE, allow_headerless=False))
    assert error.code in {ErrorCode.INVALID_JSON, ErrorCode.INVALID_UTF8}


def test_text_that_is_not_json_has_its_end_somewhere_too() -> None:
    finder = ObjectEnd()
    assert [finder.find(memoryview(piece)) for piece in (b"{", rb"\}", b"\\", b"}", b"}")] == [None] * 4 + [6]


values = st.recursive(
    st.none() | st.integers() | st.text('"\\{}[]a \n', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('"\\{}a', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text('"\\{}a', max_size=3), values, max_size=4), st.binary(max_size=6), st.data())
@example({"\\": "\\"}, b"}", None)
def test_the_end_is_where_a_parser_finds_it_however_the_bytes_are_cut(
    members: dict[str, object], rest: bytes, data: st.DataObject | None
) -> None:
    text = json.dumps(members).encode()
    body = text + rest
    size = 1 if data is None else data.draw(st.integers(1, len(body)))
    finder, found = ObjectEnd(), None
    for start in range(0, len(body), size):
        found = finder.find(memoryview(body)[start : start + size])
        if found is not None:
            break
    assert found == len(text)


FLOATS = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1.5,-0.25]}]}'
SEVEN = b",".join([b"1.428571"] * 1000)
BODIES = {
    "usual": FLOATS,
    "of some kilobytes": FLOATS.replace(b"[2]", b"[1000]").replace(b"1.5,-0.25", SEVEN),
    "with tensors": OBJECT + b"\1\0\2}",
    "with another object": FLOATS + b"{}",
    "with tensors that are missing": OBJECT,
    "with white space": FLOATS + b" \n",
    "not JSON": FLOATS.replace(b"1.5", b"1.5.}"),
    "not UTF-8": FLOATS.replace(b"x", b"\xff"),
    "too deep": b'{"a":' + b"[" * 99 + b"]" * 99 + b"}",
    "a wrong value": FLOATS.replace(b"1.5", b'"a"'),
    "no object": b"[{}]}",
    "a brace": b"}",
    "nothing": b"",
}


@pytest.mark.parametrize("missing", [0, 1, -1])
@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_ends_with_a_brace_is_read_as_any_other(name: str, missing: int) -> None:
    source = json_message(BODIES[name]).headerless()
    source = replace(source, body_length=max(len(source.body) + missing, 0))
    with mock.patch.object(Layout, "_read_whole", return_value=()):
        expected = decode(source)
    assert decode(source).log == expected.log


def test_the_ordinary_way_begins_with_what_has_come() -> None:
    (array,) = accept(message(OBJECT, b"\1\0\2}").headerless())
    assert array.tobytes() == b"\1\0\2}"
