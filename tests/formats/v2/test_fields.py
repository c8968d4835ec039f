"""Rulebook, "Framing": the lengths around a message, and what the fields of an HTTP head say of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamcodec import (
    HEADER_LENGTH_FIELD,
    ErrorCode,
    RemoteProtocolError,
    header_length_of,
    parse_content_encoding,
    parse_header_length,
)
from streamcodec.http import Fields
from tests.engine.triad import accept, decode, refuse
from tests.formats.v2.messages import Message, binary, json_message, jsonic, message, request

ONE = request(binary("INT16", [2], 4), payload=b"\1\0\2\0")
"""A request with one binary tensor."""
LENGTH = ONE.header_length or 0
TEXT = json_message({"inputs": [jsonic("INT16", [2], [1, 2])]})
"""The same as JSON."""


def test_name_of_the_field_is_the_specifications() -> None:
    assert HEADER_LENGTH_FIELD == "Inference-Header-Content-Length"


@pytest.mark.parametrize(
    ("values", "length"),
    [
        ([], None),
        ([b"0"], 0),
        ([b"7"], 7),
        ([b"007"], 7),
        ([b"9223372036854775807"], 9223372036854775807),
        ([b"9" * 19], 10**19 - 1),
    ],
)
def test_header_length_is_one_decimal_number(values: list[bytes], length: int | None) -> None:
    assert parse_header_length(values) == length


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([b""], id="empty"),
        pytest.param([b"+5"], id="plus"),
        pytest.param([b"-5"], id="minus"),
        pytest.param([b"-0"], id="minus-zero"),
        pytest.param([b"1 2"], id="blank-inside"),
        pytest.param([b" 12"], id="blank-before"),
        pytest.param([b"12\n"], id="line-end-behind"),
        pytest.param([b"0x10"], id="hexadecimal"),
        pytest.param([b"1e3"], id="exponent"),
        pytest.param([b"12.0"], id="fraction"),
        pytest.param([b"1_000"], id="underscore"),
        pytest.param([b"abc"], id="text"),
        pytest.param(["\N{ARABIC-INDIC DIGIT FIVE}".encode()], id="other-digits"),
        pytest.param([b"\xb2"], id="latin-1-digit"),
        pytest.param([b"5, 5"], id="list"),
        pytest.param([b"5,"], id="list-of-one"),
        pytest.param([b"5", b"5"], id="repeated-equal"),
        pytest.param([b"5", b"6"], id="repeated"),
        pytest.param([b"1" * 20], id="20-digits"),
        pytest.param([b"1" * 1_000_000], id="a-megabyte-of-digits"),
    ],
)
def test_header_length_that_is_not_one_plain_number_is_refused_and_never_read_as_0(values: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse_header_length(values)
    assert caught.value.code is ErrorCode.INVALID_HEADER_LENGTH
    assert caught.value.status_hint == 400
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("values", "encoding"),
    [
        ([], None),
        ([b""], None),
        ([b"identity"], None),
        ([b"Identity "], None),
        ([b"gzip"], "gzip"),
        ([b"GZip"], "gzip"),
        ([b"x-gzip"], "gzip"),
        ([b" deflate"], "deflate"),
        ([b"\tgzip\t"], "gzip"),
        ([b"DEFLATE"], "deflate"),
    ],
)
def test_content_encoding_is_understood_in_any_letter_case(values: list[bytes], encoding: str | None) -> None:
    assert parse_content_encoding(values) == encoding


@pytest.mark.parametrize(
    "values",
    [
        [b"br"],
        [b"zstd"],
        [b"gzip, gzip"],
        [b"gzip", b"deflate"],
        [b"identity, gzip"],
        [b"\xff\x00"],
        [b"\xa0gzip"],  # blanks to others, but not to HTTP
        [b"gzip\x85"],
        [b"\x0bgzip"],
    ],
)
def test_content_encoding_that_is_not_understood_is_415(values: list[bytes]) -> None:
    with pytest.raises(RemoteProtocolError, match="gzip or deflate") as caught:
        parse_content_encoding(values)
    assert caught.value.code is ErrorCode.UNSUPPORTED_ENCODING
    assert caught.value.status_hint == 415


def test_several_content_encodings_are_shown_as_one_list() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        parse_content_encoding([b"gzip", b"br"])
    assert str(caught.value).endswith("a body can be encoded with gzip or deflate, and not with 'gzip,br'")


def test_x_is_no_blank_around_a_content_encoding() -> None:
    with pytest.raises(RemoteProtocolError, match="xgzip"):
        parse_content_encoding([b"Xgzip"])


def test_the_fields_of_a_head_tell_the_length() -> None:
    assert header_length_of(Fields(((HEADER_LENGTH_FIELD.lower().encode(), b"12"),))) == 12
    assert header_length_of(Fields(())) is None


@pytest.mark.parametrize(
    "good",
    [
        pytest.param(ONE, id="both-lengths"),
        pytest.param(ONE.chunked(), id="header-length"),
        pytest.param(TEXT, id="body-length"),
        pytest.param(TEXT.chunked(), id="no-length"),
        pytest.param(replace(TEXT, header_length=TEXT.body_length), id="header-is-body"),
    ],
)
def test_any_combination_of_declared_lengths(good: Message) -> None:
    [array] = accept(good)
    np.testing.assert_array_equal(array, np.array([1, 2], "<i2"), strict=True)


@pytest.mark.parametrize("blank", [b" ", b"\t", b"\r", b"\n", b" \r\n\t" * 20], ids=repr)
def test_header_may_be_padded_with_white_space_on_both_sides(blank: bytes) -> None:
    padded = message(blank + ONE.body[:LENGTH] + blank, ONE.body[LENGTH:])
    assert accept(padded)[0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("bad", "code", "offset", "taken"),
    [
        pytest.param(replace(ONE, header_length=0), ErrorCode.EMPTY_BODY, 0, 0, id="header-length-0-is-no-header"),
        pytest.param(replace(ONE, body_length=0), ErrorCode.HEADER_EXCEEDS_BODY, 0, 0, id="body-length-0"),
        pytest.param(replace(TEXT, body=b"", body_length=0), ErrorCode.EMPTY_BODY, 0, 0, id="empty-body"),
        pytest.param(replace(TEXT, body=b"", body_length=None), ErrorCode.EMPTY_BODY, 0, 0, id="empty-chunked-body"),
        pytest.param(
            replace(ONE, header_length=len(ONE.body) + 1),
            ErrorCode.HEADER_EXCEEDS_BODY,
            0,
            0,
            id="header-longer-than-body",
        ),
        pytest.param(
            replace(ONE, body_length=len(ONE.body) - 1),
            ErrorCode.BODY_LENGTH_MISMATCH,
            len(ONE.body) - 1,
            LENGTH,
            id="body-too-short-for-the-tensors",
        ),
        pytest.param(
            replace(ONE, body=ONE.body + b"!", body_length=len(ONE.body) + 1),
            ErrorCode.BODY_LENGTH_MISMATCH,
            len(ONE.body),
            LENGTH,
            id="body-too-long-for-the-tensors",
        ),
        pytest.param(
            replace(ONE, body=ONE.body[:LENGTH], header_length=None, body_length=LENGTH),
            ErrorCode.BODY_LENGTH_MISMATCH,
            LENGTH,
            LENGTH,
            id="binary-tensor-without-header-length",
        ),
        pytest.param(
            replace(ONE, body=ONE.body[:LENGTH], header_length=None, body_length=None),
            ErrorCode.BODY_LENGTH_MISMATCH,
            LENGTH,
            LENGTH,
            id="binary-tensor-without-any-length",
        ),
        pytest.param(replace(ONE, header_length=LENGTH - 1), ErrorCode.INVALID_JSON, LENGTH - 1, LENGTH - 1, id="cut"),
        pytest.param(
            replace(ONE, header_length=LENGTH + 1), ErrorCode.INVALID_JSON, LENGTH, LENGTH + 1, id="header-and-one-byte"
        ),
    ],
)
def test_lengths_that_do_not_fit_are_refused_before_any_tensor_byte(
    bad: Message, code: ErrorCode, offset: int, taken: int
) -> None:
    outcome = decode(bad)
    assert outcome.error is not None
    error = outcome.error
    assert (error.code, error.offset, error.path, error.status_hint) == (code, offset, None, 400)
    assert outcome.taken == taken
    assert outcome.header is None


@pytest.mark.parametrize("whole", [ONE, ONE.chunked(), TEXT], ids=["binary", "chunked", "json"])
def test_truncation_at_every_length(whole: Message) -> None:
    for length in range(len(whole.body)):
        error = refuse(replace(whole, body=whole.body[:length]))
        assert (error.code, error.offset, error.path) == (ErrorCode.TRUNCATED, length, None)


def test_truncation_of_json_of_unknown_length_at_every_length() -> None:
    for length in range(len(TEXT.body)):
        error = refuse(replace(TEXT.chunked(), body=TEXT.body[:length]))
        if length == 0:
            assert error.code is ErrorCode.EMPTY_BODY
        else:
            assert error.code is ErrorCode.INVALID_JSON
            assert error.offset is not None
            assert error.offset <= length


@pytest.mark.parametrize("length", [65_535, 65_536, 65_537, 200_000])
def test_json_of_unknown_length_ends_where_the_input_ends(length: int) -> None:
    body = TEXT.body.ljust(length)
    decoder = TEXT.chunked().decoder()
    assert decoder.feed(body) == length
    assert decoder.needs_data
    decoder.receive_eof()
    assert decoder.is_complete
    assert decoder.offset == length


def test_what_follows_json_of_unknown_length_belongs_to_it() -> None:
    error = refuse(replace(TEXT.chunked(), body=TEXT.body + b"{}"))
    assert (error.code, error.offset) == (ErrorCode.INVALID_JSON, len(TEXT.body))
