"""A string that is decoded in pieces comes to the same as one that is parsed whole, wherever the pieces end."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamcodec import DEFAULT_LIMITS, Limits, RemoteProtocolError, parse_request_header
from streamcodec.engine.json.longtext import LongText
from streamcodec.formats.v2.header.parsing import long_request_header
from streamcodec.formats.v2.json import slices as jsonslices
from streamcodec.testing import ErrorDescription
from tests.effort import examples
from tests.formats.v2.header.test_stream import ACCEPTED, REFUSED, assert_same, in_blocks, whole, with_data

pytestmark = pytest.mark.usefixtures("json_parser", "long_strings_are_short")

SIZES = (1, 3, 7, 16, 61)


@pytest.fixture
def long_strings_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nearly every string taken out."""
    monkeypatch.setattr(jsonslices, "LONG_BYTES", 4)


def texts(*contents: bytes, shape: bytes | None = None, datatype: bytes = b"BYTES") -> bytes:
    values = b",".join(b'"%b"' % content for content in contents)
    return header(b"[%b]" % values, shape or b"[%d]" % len(contents), datatype)


def header(data: bytes, shape: bytes, datatype: bytes = b"BYTES") -> bytes:
    return b'{"inputs":[{"name":"x","datatype":"%b","shape":%b,"data":%b}]}' % (datatype, shape, data)


def assert_alike(text: bytes) -> None:
    """Compare all but the one thing that is not known before the end: by how much values are too many."""
    expected = whole(text)
    for size in SIZES:
        found = in_blocks(text, size)
        if isinstance(found, ErrorDescription):
            found = found._replace(message=found.message.replace(" or more", ""))
        assert found == expected, (size, text)


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("members", ACCEPTED, ids=range(len(ACCEPTED)))
def test_headers_that_are_accepted(members: dict[str, object], indent: int | None) -> None:
    assert_same(json.dumps(members, indent=indent).encode())
    assert_same(json.dumps(members, indent=indent, ensure_ascii=False).encode())


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[-40:].decode("latin-1"))
def test_headers_that_are_refused(text: bytes) -> None:
    assert_alike(text)


STRINGS = [
    b"abcdefghijklmnopqrstuvwxyz" * 3,
    rb"\n" * 20,
    rb"\\" * 20,
    rb"\\\\\"" * 10,
    rb"\u00e9" * 10,
    rb"\ud83d\ude00" * 10,
    rb"\ud83d\ude00\\ud83d" * 5,
    rb"\ud800\udc00" * 10,
    rb"\udbff\udfff" * 10,
    "é".encode() * 20,
    "\N{GRINNING FACE}".encode() * 10,
    "\u20ac".encode() * 10,
    b'\\",],[{}' * 8,
    b"0123456789" + rb"\ud83d" + b"0123456789",
    b"0123456789" + rb"\ude00" + b"0123456789",
    b"0123456789" + rb"\ude00\ud83d" + b"0123456789",
    rb"0123456789\ud83d",
    rb"0123456789\ud83d\n",
    rb"0123456789\ud83d\ud83d\ude00",
    b"0123456789" + rb"\ud83d" + "\N{GRINNING FACE}".encode(),
    b"0123456789\n0123456789",
    rb"0123456789\x0123456789",
    rb"0123456789\u12",
    rb"0123456789\u12x456789",
    rb"0123456789\u",
    b"0123456789\xff0123456789",
    b"0123456789\xc30123456789",
    b"0123456789\xe2\x820123456789",
    b"0123456789\xed\xa0\xbd0123456789",
    b"0123456789" + b"\x80" * 30,
    b"0123456789\\\xc3\xa90123456789",
    b"0123456789\xc3",
    b'0123456789" "0123456789',
    b'0123456789" x',
    b'0123456789":1',
]


@pytest.mark.parametrize("content", STRINGS, ids=repr)
def test_strings_right_and_wrong(content: bytes) -> None:
    assert_alike(texts(content))
    assert_alike(texts(b"a", content, b"b"))
    assert_alike(header(b'[ [ "%b" ] , ["b"]]' % content, b"[2,1]"))
    assert_alike(b'{"inputs":[{"data":["a","%b"],"name":"x","datatype":"BYTES","shape":[2]}]}' % content)
    if isinstance(whole(texts(content)), ErrorDescription):
        return  # else of two mistakes the first one wins
    assert_alike(texts(content, b"another long one", content))
    assert_alike(texts(content, datatype=b"FP32"))
    assert_alike(texts(content, b"b", shape=b"[1]"))
    assert_alike(header(b'[["a","%b"],["b","%b"]]' % (content, content), b"[2,2]"))
    assert_alike(header(b'["a" "%b"]' % content, b"[2]"))
    assert_alike(header(b'[1 "%b" 2,3]' % content, b"[2]"))
    assert_alike(header(b'["%b",{"a":1}]' % content, b"[2]"))
    assert_alike(header(b'["%b"{"a":1}]' % content, b"[2]"))
    assert_alike(texts(content)[:-10])


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_text_that_ends_within_a_string(cut: int) -> None:
    text = rb'{"inputs":[{"name":"x","datatype":"BYTES","shape":[2],"data":["a","0123456789\n\ud83d\ude00x'
    assert_alike(text[:-cut])


ONE_STRING = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL)
"""What does not end the string in which it stands. What stands behind its end may be wrong in another way."""

PIECES = st.sampled_from(
    [b"a", b"\\", b"\\\\", b'\\"', b"\\n", rb"\ud83d", rb"\ude00", rb"\u00e9", b"\xc3\xa9", b"\xff"]
)


def mistakes(text: bytes) -> list[object]:
    """Return the mistake of a text, and those that it has with blanks in place of all data before a quote."""
    start = text.index(b"[", text.index(b'"data"')) + 1
    quotes = [place for place in range(start, len(text)) if text[place : place + 1] == b'"']
    return [whole(text), *(whole(text[:start] + b" " * (place - start) + text[place:]) for place in quotes)]


@settings(max_examples=examples(300))
@example(rb'\\"\\"\a', 1)
@given(st.lists(PIECES, min_size=5, max_size=40).map(b"".join), st.integers(1, 20))
def test_any_string(content: bytes, size: int) -> None:
    text = texts(b"a", content, b"b")
    expected, found = whole(text), in_blocks(text, size)
    if isinstance(expected, ErrorDescription) and b"\xff" in content:  # of two mistakes the first one wins
        assert isinstance(found, ErrorDescription)
    elif ONE_STRING.fullmatch(content) is None:
        assert found in mistakes(text)
    else:
        assert found == expected


def test_an_element_may_not_be_too_long() -> None:
    text = texts(b"a", b"0123456789" * 5)
    assert not isinstance(in_blocks(text, 7, limits=Limits(max_element_bytes=50)), ErrorDescription)
    assert in_blocks(text, 7, limits=Limits(max_element_bytes=49)).limit == "max_element_bytes"


def test_a_value_that_is_no_string_may_not_be_too_long() -> None:
    limits = Limits(max_json_text_bytes=50)
    for value in (b"1", b" 1", b"1 "):
        for size, is_refused in ((40, False), (60, True)):
            data = b"[1,%b]" % value.replace(value[:1], value[:1] * size)
            found = in_blocks(header(data, b"[2]", b"FP64"), 8, limits=limits)
            assert (getattr(found, "limit", None) == "max_json_text_bytes") is is_refused
    found = in_blocks(header(b"[1,%b" % (b"1" * 60), b"[2]", b"FP64"), 8, limits=limits)
    assert (found.limit, found.path) == ("max_json_text_bytes", "$.inputs[0].data")
    assert found.message == "a value that is no string has 57 bytes or more, 50 are allowed"
    found = in_blocks(header(b'["0123456789" "0123456789%b"' % (b"x" * 80), b"[1]"), 8, limits=limits)
    assert (found.limit, found.path, found.status_hint) == ("max_json_text_bytes", "$.inputs[0].data", 413)


def test_what_is_held_is_told() -> None:
    start = b'{"inputs":[{"name":"x","datatype":"BYTES","shape":[2],"data":['
    late = b'{"inputs":[{"data":['
    for beginning in (start, late):
        stream, held = long_request_header(DEFAULT_LIMITS), 0
        for text in (beginning + b'"', *[b"x" * 1_000] * 50, b'"', b","):
            for _ in stream.feed(text):
                pass
            held = stream.held_bytes
        assert 50_000 <= held < 51_000


def test_a_long_string_is_not_copied_when_it_ends() -> None:
    text = LongText(0, DEFAULT_LIMITS)
    for _ in range(100):
        text.take(b"x" * 1_000, is_last=False)
    text.take(b"", is_last=True)
    assert text.value is text.value
    assert text.nbytes == 100_000


def test_a_string_of_real_length() -> None:
    content = "é\N{GRINNING FACE}\n\\" * 50_000
    parsed = parse_request_header(with_data(json.dumps([content]), "BYTES", "[1]"), DEFAULT_LIMITS)
    assert parsed.tensors[0].data is not None
    assert parsed.tensors[0].data.tolist() == [content.encode()]
    with pytest.raises(RemoteProtocolError, match="half of a surrogate pair"):
        parse_request_header(with_data(json.dumps(["a", content + "\ud83d"]), "BYTES", "[2]"), DEFAULT_LIMITS)
