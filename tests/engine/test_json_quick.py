"""The quick JSON parser and the standard library's: the same values, to the last bit, and the same verdicts."""

from __future__ import annotations

import json
import math
import mmap
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamcodec import DEFAULT_LIMITS, Limits, RemoteProtocolError, parse_request_header, parse_response_header
from streamcodec.engine.json import quick as quickjson
from streamcodec.engine.json import text as jsontext
from streamcodec.engine.json.text import parse_json
from streamcodec.testing import describe_error, describe_header
from tests.effort import examples
from tests.formats.v2.messages import jsonic, message

pytest.importorskip("msgspec", reason="not every processor has the quick parser")


def by(parser: str, text: bytes, limits: Limits = DEFAULT_LIMITS) -> object:
    """Parse a text, and describe what came of it; floats with their signs, errors with all they say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "LEAST_BYTES", 0 if parser == "quick" else 1 << 62)
        try:
            return repr(parse_json(text, limits))
        except RemoteProtocolError as error:
            return describe_error(error)


def assert_same(text: bytes, limits: Limits = DEFAULT_LIMITS) -> None:
    assert by("quick", text, limits) == by("standard", text, limits)


def test_the_package_is_there_and_is_used() -> None:
    assert quickjson.parse_quickly(b'{"a":[1.5]}') == [{"a": [1.5]}]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b'{"a":1,"a":2}', id="a member twice"),
        pytest.param(b'{"a":[{"b":{"c":1,"c":1}}]}', id="a member twice, deep inside"),
        pytest.param(b'{"a":[1,{"b":1,"b":2}]}', id="a member twice, in a list of something else"),
        pytest.param(b'{"a" \t\r\n:1,"a" :2}', id="a member twice, with white space"),
        pytest.param(rb'{"a\\":1,"a\\":2,"b":":"}', id="a member twice, and a colon in a string"),
        pytest.param(b'{"a":NaN}', id="NaN"),
        pytest.param(b'{"a":"\\ud800"}', id="half of a surrogate pair"),
        pytest.param(b'{"a":1e999}', id="a number beyond any double"),
        pytest.param(b'{"a":' + b"9" * 5000 + b"}", id="an integer of thousands of digits"),
        pytest.param(b"\xef\xbb\xbf{}", id="a byte order mark"),
        pytest.param(b'{"a":"\xff"}', id="what is not UTF-8"),
        pytest.param(b'{"a":1,}', id="what is not JSON"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_what_the_quick_parser_cannot_vouch_for_is_left_to_the_strict_one(text: bytes) -> None:
    assert quickjson.parse_quickly(text) == []
    assert_same(text)


@pytest.mark.parametrize("text", [b'{"a":"b: c","d":1}', b'{"a":" : ","b":":"}'])
def test_colons_in_strings_cost_time_at_most(text: bytes) -> None:
    assert_same(text)


def test_colons_are_found_at_the_seams_of_the_blocks_they_are_looked_for_in() -> None:
    for filler in range((64 << 10) - 12, (64 << 10) + 4):
        text = b'{"x":"' + b"y" * filler + b'","a":1,"a":2}'
        assert quickjson.parse_quickly(text) == []
        assert quickjson.parse_quickly(text.replace(b'"a":2', b'"b":2')) != []


def test_depth_is_limited_before_either_parser_recurses() -> None:
    limits = Limits(max_json_depth=3)
    assert_same(b'{"a":[[1]]}', limits)
    assert_same(b'{"a":[[[1]]]}', limits)
    assert_same(b"[" * 100_000, limits)


def test_without_the_package_all_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "msgspec.json", None)
    quickjson._decoder.cache_clear()  # noqa: SLF001 - as in a process that has never had it
    try:
        assert quickjson.parse_quickly(b"{}") == []
        assert by("quick", b'{"a":[1.5]}') == by("standard", b'{"a":[1.5]}')
    finally:
        quickjson._decoder.cache_clear()  # noqa: SLF001 - for those that come after


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70))
@example(5e-324)
@example(2**64)
@example(-0.0)
@example(9007199254740993)
def test_numbers_are_the_same_to_the_last_bit(value: float) -> None:
    assert_same(json.dumps([value]).encode())


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
@example("-0")
@example("2.2250738585072011e-308")
@example("0.1000000000000000055511151231257827021181583404541015625")
def test_numbers_as_nobody_would_write_them_are_the_same_too(text: str) -> None:
    assert_same(b"[" + text.encode() + b"]")


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([":", '":', '\\":']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('ab:\\" ', max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(values, st.booleans(), st.data())
@settings(max_examples=examples(400))
def test_texts_right_and_wrong_come_to_the_same(value: object, is_ascii: bool, data: st.DataObject) -> None:
    text = bytearray(json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass"))
    assert_same(bytes(text))
    place = data.draw(st.integers(0, len(text) - 1))
    text[place : place + data.draw(st.integers(0, 3))] = data.draw(
        st.binary(max_size=2) | st.sampled_from(list(_MARKS))
    )
    assert_same(bytes(text))


_MARKS = [b'"', b":", b",", b"{", b"}", b"[", b"]", b"\\", b"-", b".", b"0", b" ", b"e"]


@given(
    st.sampled_from(["FP32", "FP64", "INT64", "UINT8", "BOOL", "BYTES"]),
    st.lists(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3), max_size=6),
    st.booleans(),
)
@settings(max_examples=examples(300))
def test_tensors_right_and_wrong_come_to_the_same(datatype: str, data: list[Any], is_response: bool) -> None:
    key, parse = ("outputs", parse_response_header) if is_response else ("inputs", parse_request_header)
    text = message({key: [jsonic(datatype, [len(data)], data)]}).body
    seen: list[object] = []
    for least in (0, 1 << 62):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jsontext, "LEAST_BYTES", least)
            try:
                seen.append(describe_header(parse(text, DEFAULT_LIMITS)))
            except RemoteProtocolError as error:
                seen.append(describe_error(error))
    assert seen[0] == seen[1]


def test_large_texts_are_parsed_quickly_by_default() -> None:
    values = np.linspace(-1, 1, 20_000).tolist()
    text = message({"inputs": [jsonic("FP64", [20_000], values)]}).body
    assert len(text) > quickjson.LEAST_BYTES
    (tensor,) = parse_request_header(text, DEFAULT_LIMITS).tensors
    assert tensor.data is not None
    assert tensor.data.tolist() == values
    assert not any(map(math.isnan, values))


FLOATS = [1e-4, -1e-4, 1 / 3, 9999999999999998.0, 0.0, -0.0, 2.0**-13, 2.0**53]


def test_floats_are_written_as_repr_writes_them() -> None:
    assert quickjson.write_floats(FLOATS) == f"[{','.join(map(repr, FLOATS))}]".encode()
    assert quickjson.write_floats([]) == b"[]"
    many = np.linspace(-1, 1, 5_001).tolist()
    assert quickjson.write_floats(many) == json.dumps(many, separators=(",", ":")).encode()


@pytest.mark.parametrize("count", [1, 5_000])
def test_floats_are_not_written_where_there_is_no_reserve(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(quickjson, "bytes", refuse, raising=False)
    monkeypatch.setattr(mmap, "mmap", refuse)
    assert quickjson.write_floats([0.5] * count) is None


@pytest.fixture
def _found_anew() -> Iterator[None]:
    """Have the writer of floats found by this test, and again by the next one."""
    quickjson._float_encoder.cache_clear()  # noqa: SLF001 - the cache would hide the test
    yield
    quickjson._float_encoder.cache_clear()  # noqa: SLF001 - as before


@pytest.mark.usefixtures("_found_anew")
def test_floats_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec.json", None)
    assert not quickjson.writes_floats()
    assert quickjson.write_floats(FLOATS) is None


@pytest.mark.usefixtures("_found_anew")
def test_a_package_that_writes_floats_in_another_form_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Mock(return_value=Mock(encode=lambda values: json.dumps(values).encode()))  # with spaces
    monkeypatch.setattr("msgspec.json.Encoder", other)
    assert not quickjson.writes_floats()


@pytest.mark.parametrize("datatype", [np.float32, np.float64])
def test_a_text_of_floats_shows_where_repr_writes_another(datatype: type[np.floating[Any]]) -> None:
    bits = np.random.default_rng(0).integers(0, 256, (20_000, np.dtype(datatype).itemsize), np.uint8)
    with np.errstate(invalid="ignore"):
        wild = bits.view(datatype)[:, 0].tolist()
        usual = (np.random.default_rng(1).standard_normal(20_000) * 10.0 ** np.arange(-10, 10).repeat(1000)).tolist()
    same = 0
    for value in [*wild, *usual]:
        text = quickjson.write_floats([value])
        assert text is not None
        if not quickjson.may_differ(text):
            same += 1
            assert text.decode() == f"[{value!r}]"
    assert same > 10_000


@pytest.mark.usefixtures("_found_anew")
def test_a_package_that_writes_exponents_in_another_form_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(values: list[float]) -> bytes:
        return json.dumps(values, separators=(",", ":")).replace("e", "E").encode()

    monkeypatch.setattr("msgspec.json.Encoder", Mock(return_value=Mock(encode=encode)))
    assert not quickjson.writes_floats()
