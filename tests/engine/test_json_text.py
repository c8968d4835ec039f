"""Rulebook, "JSON header": strict UTF-8, RFC 8259 to the letter, unique keys, bounded depth."""

from __future__ import annotations

import json

import pytest

from streamcodec import ErrorCode, LimitExceededError
from tests.engine.triad import accept, decode, refuse
from tests.formats.v2.messages import json_message, message

pytestmark = pytest.mark.usefixtures("json_parser")


def in_place_of(value: bytes) -> bytes:
    """A header with this text as the value of a member that nobody knows."""
    return b'{"inputs":[],"x":' + value + b"}"


AT = len(in_place_of(b"")) - 1
"""Offset of the value in it."""


@pytest.mark.parametrize(
    "value",
    [
        b"0",
        b"-0",
        b"-1.5e+10",
        b"1E5",
        b"12345678901234567890123456789",
        b"1e400",
        b'"\\u00e9\\ud83d\\ude00\\uD83D\\uDE00\\\\ud800\\"\\/\\b\\f\\n\\r\\t"',
        '"é\N{GRINNING FACE}\N{REPLACEMENT CHARACTER}\x7f"'.encode(),
        b'"\\ufeff"',
        '"\ufeff"'.encode(),
        b'{"":{"":[]}}',
        b'{"inputs":{"inputs":1}}',
        b" [ 1 , 2 ] \r\n\t",
        b"9" * 4300,
        b'"' + b"[{" * 500 + b'"',
        b"[" + b"[]," * 300 + b"[]]",
    ],
    ids=lambda value: value[:20].decode("ascii", "replace"),
)
def test_accepted(value: bytes) -> None:
    json.loads(in_place_of(value))
    accept(json_message(in_place_of(value)))


@pytest.mark.parametrize(
    ("value", "offset"),
    [
        pytest.param(b"\xff", AT, id="ff"),
        pytest.param(b'"ab\x80"', AT + 3, id="continuation-alone"),
        pytest.param(b'"\xc3"', AT + 1, id="sequence-cut"),
        pytest.param(b'"\xc0\xaf"', AT + 1, id="overlong"),
        pytest.param(b'"\xed\xa0\x80"', AT + 1, id="surrogate"),
        pytest.param(b'"\xf4\x90\x80\x80"', AT + 1, id="beyond-unicode"),
        pytest.param('"é"'.encode("latin-1"), AT + 1, id="latin-1"),
    ],
)
def test_bytes_that_are_not_utf8(value: bytes, offset: int) -> None:
    error = refuse(message(in_place_of(value)))
    assert (error.code, error.offset, error.path, error.status_hint) == (ErrorCode.INVALID_UTF8, offset, None, 400)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_and_byte_order_marks_are_not_guessed(encoding: str) -> None:
    error = refuse(message('{"inputs":[]}'.encode(encoding)))
    assert error.code in {ErrorCode.INVALID_UTF8, ErrorCode.INVALID_JSON}
    assert error.offset in {0, 1, 2}  # 2 for UTF-32 on a big-endian machine, whose mark begins with two zeros


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (b'"\\ud800"', "$.x"),
        (b'"\\uDFFF"', "$.x"),
        (b'["", "a\\udc00\\ud800"]', "$.x[1]"),
        (b'[["", "a"], "\\ud800"]', "$.x[1]"),
        (b'"\\ud83d\\ud83d\\ude00"', "$.x"),
        (b'"\\\\\\ud800"', "$.x"),
        (b'"\\\\ud83d\\ude00"', "$.x"),
        (b'"\\ud83d\\\\ude00"', "$.x"),
        (b'"\\ud83d\\n\\ude00"', "$.x"),
        (b'{"\\ud800":1}', "$.x (a member's name)"),
        (b'{"a b":{"\\ud800":1}}', "$.x['a b'] (a member's name)"),
    ],
)
def test_half_of_a_surrogate_pair_is_refused_wherever_it_stands(value: bytes, path: str) -> None:
    error = refuse(message(in_place_of(value)))
    assert (error.code, error.path, error.offset) == (ErrorCode.INVALID_UTF8, path, None)


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        pytest.param(b" ", 1, id="blank"),
        pytest.param(b"{", 1, id="open"),
        pytest.param(b'{"inputs":[]}}', 13, id="extra"),
        pytest.param(b'{"inputs":[]}{}', 13, id="second-object"),
        pytest.param(b'{"inputs":[]}\0', 13, id="padded-with-nul"),
        pytest.param(b'{"inputs":[]}\x0c', 13, id="form-feed"),
        pytest.param('{"inputs":[]}\u00a0'.encode(), 13, id="no-break-space"),
        pytest.param(b"{'inputs':[]}", 1, id="single-quotes"),
        pytest.param(b"{inputs:[]}", 1, id="bare-key"),
        pytest.param(in_place_of(b"01"), AT + 1, id="leading-zero"),
        pytest.param(in_place_of(b"+1"), AT, id="plus"),
        pytest.param(in_place_of(b".5"), AT, id="bare-fraction"),
        pytest.param(in_place_of(b"1."), AT + 1, id="bare-point"),
        pytest.param(in_place_of(b"0x10"), AT + 1, id="hexadecimal"),
        pytest.param(in_place_of(b"1_0"), AT + 1, id="underscore"),
        pytest.param(in_place_of("\N{ARABIC-INDIC DIGIT FIVE}".encode()), AT, id="other-digits"),
        pytest.param(in_place_of(b"True"), AT, id="python-literal"),
        pytest.param(in_place_of(b"nan"), AT, id="lower-case-nan"),
        pytest.param(in_place_of(b"+Infinity"), AT, id="plus-infinity"),
        pytest.param(in_place_of(b"-NaN"), AT, id="minus-nan"),
        pytest.param(in_place_of(b'"a\nb"'), AT + 2, id="line-end-in-string"),
        pytest.param(in_place_of(b'"\\x41"'), AT + 1, id="bad-escape"),
        pytest.param(in_place_of(b"/**/1"), AT, id="comment"),
        pytest.param('{"é\N{GRINNING FACE}":?}'.encode(), 10, id="offset-counts-bytes"),
        pytest.param(b'{"x":NaN,"y":?}', 13, id="behind-a-nan"),
        pytest.param(b'{"x":1,"x":2,"y":{?}}', 18, id="behind-a-duplicate-that-is-not-closed"),
    ],
)
def test_text_that_is_not_json(text: bytes, offset: int) -> None:
    error = refuse(message(text))
    assert (error.code, error.offset, error.path, error.status_hint) == (ErrorCode.INVALID_JSON, offset, None, 400)


@pytest.mark.slow
@pytest.mark.parametrize("value", [b"9" * 4301, b"[-" + b"1" * 80_000 + b"]"], ids=["4301", "80000"])
def test_integer_of_thousands_of_digits(value: bytes) -> None:
    error = refuse(message(in_place_of(value))) if len(value) < 5000 else decode(message(in_place_of(value))).error
    assert error is not None
    assert (error.code, error.offset, error.path) == (ErrorCode.INVALID_JSON, None, None)


@pytest.mark.parametrize(
    ("text", "key", "path"),
    [
        (b'{"inputs":[],"inputs":[]}', "inputs", "$"),
        (b'{"inputs":[],"id":"a","\\u0069d":"a"}', "id", "$"),
        (b'{"inputs":[{"shape":[1],"shape":[2]}]}', "shape", "$.inputs[0]"),
        (b'{"inputs":[],"x":[0,{"y z":{"k":1,"l":2,"k":1}}]}', "k", "$.x[1]['y z']"),
        (b'{"inputs":[],"x":{"a":{"b":1,"b":2},"a":0}}', "a", "$.x"),
        (b'{"inputs":[],"x":NaN,"y":{"a":NaN,"a":0}}', "a", "$.y"),
    ],
)
def test_duplicate_key_is_located(text: bytes, key: str, path: str) -> None:
    error = refuse(message(text))
    assert (error.code, error.path, error.offset, error.status_hint) == (ErrorCode.DUPLICATE_KEY, path, None, 400)
    assert repr(key) in error.message


def test_key_that_is_shown_is_cut() -> None:
    text = b'{"%s":1,"%s":2}' % (b"k" * 5000, b"k" * 5000)
    error = decode(message(text)).error
    assert error is not None
    assert len(str(error)) < 200


@pytest.mark.parametrize(("length", "shows"), [(60, ".{}"), (61, "['{:.60}'...]")])
def test_key_in_a_path_is_cut(length: int, shows: str) -> None:
    error = refuse(message(in_place_of(b'{"%s":NaN}' % (b"k" * length))))
    assert error.path == "$.x" + shows.format("k" * length)


@pytest.mark.parametrize(
    ("value", "path"),
    [(b"NaN", "$.x"), (b"[1,-Infinity]", "$.x[1]"), (b'{"a":{"b":Infinity}}', "$.x.a.b")],
)
def test_non_finite_number_outside_of_data(value: bytes, path: str) -> None:
    error = refuse(message(in_place_of(value)))
    assert (error.code, error.path, error.offset) == (ErrorCode.NON_FINITE_NUMBER, path, None)


NESTED = b'{"inputs":[],"x":'


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        pytest.param(NESTED + b"[" * 127 + b"]" * 127 + b"}", None, id="arrays-at-the-limit"),
        pytest.param(NESTED + b"[" * 128 + b"]" * 128 + b"}", len(NESTED) + 127, id="arrays-beyond"),
        pytest.param(NESTED + b'{"a":' * 127 + b"1" + b"}" * 128, None, id="objects-at-the-limit"),
        pytest.param(NESTED + b'{"a":' * 128 + b"1" + b"}" * 129, len(NESTED) + 5 * 127, id="objects-beyond"),
        pytest.param(NESTED + b'["[[[' + b"[" * 200 + b'"]}', None, id="brackets-in-a-string"),
        pytest.param(NESTED + b'["\\"' + b"[" * 200 + b'"]}', None, id="behind-an-escaped-quote"),
        pytest.param(NESTED + b'["\\\\",' + b"[" * 126 + b"]" * 126 + b"]}", None, id="behind-an-escaped-backslash"),
        pytest.param(
            NESTED + b'["\\\\",' + b"[" * 127 + b"]" * 127 + b"]}",
            len(NESTED) + 6 + 126,
            id="beyond-behind-a-backslash",
        ),
        pytest.param("{é:".encode() + b"[" * 200, 4 + 127, id="offset-counts-bytes"),
    ],
)
def test_depth(text: bytes, offset: int | None) -> None:
    outcome = decode(message(text))
    if offset is None:
        assert outcome.error is None
        return
    error = outcome.error
    assert isinstance(error, LimitExceededError)
    assert (error.limit, error.offset, error.path, error.status_hint) == ("max_json_depth", offset, None, 400)


@pytest.mark.parametrize("before", [65_535 - 17, 65_536 - 17, 65_537 - 17, 200_000])
def test_depth_is_counted_across_the_blocks_it_is_counted_in(before: int) -> None:
    for closing, is_deep in ((b"", True), (b"]", False)):
        text = NESTED + b'["' + b"[" * before + b'",' + b"[" * 60 + b"]" * 60 + b"," + b"[" * (127 - len(closing))
        decoder = message(text + b"]" * 127 + b"}").decoder()
        decoder.feed(text + b"]" * 127 + b"}")
        if is_deep:
            with pytest.raises(LimitExceededError):
                decoder.next_event()
        else:
            assert not decoder.needs_data


@pytest.mark.parametrize("filler", [b"[" * 1_000_000, b'{"a":' * 200_000], ids=["arrays", "objects"])
def test_a_million_brackets_do_not_reach_the_recursive_parser(filler: bytes) -> None:
    decoder = message(filler).decoder()
    decoder.feed(filler)
    with pytest.raises(LimitExceededError):
        decoder.next_event()


def test_depth_is_kept_across_blocks_without_brackets() -> None:
    text = b'{"inputs":[],"x":[' + b"[]," * 100 + b"[" * 126 + b" " * 200_000 + b"["
    decoder = message(text).decoder()
    decoder.feed(text)
    with pytest.raises(LimitExceededError) as refused:
        decoder.next_event()
    assert refused.value.offset == len(text) - 1
