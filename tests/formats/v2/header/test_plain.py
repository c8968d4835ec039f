"""Plain headers: the fast parser has the results of the strict parser, and leaves unusual headers to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamcodec import (
    DATATYPES,
    DEFAULT_LIMITS,
    Limits,
    RemoteProtocolError,
    RequestHeader,
    ResponseHeader,
    parse_request_header,
    parse_response_header,
)
from streamcodec.engine.json.text import parse_json
from streamcodec.formats.v2.header import parsing as strict_way
from streamcodec.formats.v2.header.plain import parse_plain_entries, read_plainly
from streamcodec.testing import describe_error, describe_header
from tests.effort import examples
from tests.engine.triad import decode
from tests.formats.v2.messages import Members, Message, binary, request, response

Parse = Callable[[bytes, Limits], RequestHeader | ResponseHeader]
TEXT = b'{"inputs":[{"name":"x","shape":[2,3],"datatype":"FP32","parameters":{"binary_data_size":24}}],"id":"a"}'


def verdict(parse: Parse, text: bytes, limits: Limits) -> tuple[object, ...]:
    """Everything that is said of a text."""
    try:
        return describe_header(parse(text, limits))
    except RemoteProtocolError as error:
        return describe_error(error)


def check(text: bytes, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Insist that both ways say the same; tell whether the text was plain."""
    with (
        mock.patch.object(strict_way, "match_compactly", return_value=None),
        mock.patch.object(strict_way, "read_plainly", return_value=None),
    ):
        expected = [verdict(parse, text, limits) for parse in (parse_request_header, parse_response_header)]
    assert [verdict(parse, text, limits) for parse in (parse_request_header, parse_response_header)] == expected
    return any(read_plainly(text, key, limits) is not None for key in ("inputs", "outputs"))


def as_text(*tensors: Any, **members: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return json.dumps({**members, "inputs": tensors}, ensure_ascii=False).encode()


ONE = binary("INT16", [3, 2], 12)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TEXT, id="usual"),
        pytest.param(TEXT.replace(b"inputs", b"outputs"), id="response"),
        pytest.param(TEXT + b" \t\r\n", id="padded"),
        pytest.param(as_text(), id="no-tensors"),
        pytest.param(as_text(binary("BOOL", [], 1)), id="scalar"),
        pytest.param(as_text(*(binary("INT8", [1], 1, name=str(i)) for i in range(99))), id="many-brackets"),
        pytest.param(as_text(binary("INT8", [1], 1, name="é[{")), id="any-name"),
        pytest.param(as_text(ONE, id=7), id="wrong-id"),
        pytest.param(as_text(ONE, parameters={"a": [1.5, None], "b": {"c": {}}}), id="parameters"),
        pytest.param(as_text(ONE, parameters={"a": 10**400}), id="long-integer"),
        pytest.param(as_text(ONE, parameters={"binary_data_output": 1}), id="wrong-flag"),
        pytest.param(as_text(ONE, outputs=[{"name": "y", "parameters": {"binary_data": True}}, {"name": "z"}]), id="o"),
        pytest.param(as_text(ONE, outputs=[{"name": "y"}, {"name": "y"}]), id="outputs-twice"),
        pytest.param(as_text(ONE | {"parameters": {"binary_data_size": 12, "a": "b", "c": True}}), id="more"),
        pytest.param(TEXT[:-1] + b',"more":{"x":1e999}}', id="unknown-member"),
        pytest.param(TEXT.replace(b'"x"', rb'"\u0078\n\\"'), id="escape"),
        pytest.param(TEXT.replace(b'"x"', b'"a:0"'), id="colon-in-a-name"),
        pytest.param(TEXT.replace(b'"a"}', b'"a:","parameters":{"b:":"c: d"}}'), id="colons"),
        pytest.param(as_text(binary("BYTES", [2], 8)), id="empty-elements"),
        pytest.param(as_text(binary("BYTES", [2], 9), ONE | {"name": "y"}), id="elements"),
        pytest.param(as_text(ONE, id="0f3b-0a1e"), id="zero-behind-a-hyphen"),
    ],
)
def test_usual_headers_are_plain(text: bytes) -> None:
    assert check(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff", id="not-utf8"),
        pytest.param(b"\xef\xbb\xbf" + TEXT, id="byte-order-mark"),
        pytest.param(b" " + TEXT, id="space-before"),
        pytest.param(TEXT + b"x", id="text-after"),
        pytest.param(TEXT + "\u3000".encode(), id="wide-space-after"),
        pytest.param(b"[1]", id="array"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"inputs":7}', id="no-array"),
        pytest.param(b'{"id":"inputs"}', id="no-inputs"),
        pytest.param(TEXT.replace(b'"x"', rb'"\uD83E\uDD8A"'), id="surrogates"),
        pytest.param(TEXT.replace(b'"x"', b'" :0"'), id="colon-behind-a-space"),
        pytest.param(TEXT.replace(b'"x"', b'":0"'), id="colon-behind-a-quote"),
        pytest.param(TEXT.replace(b'"name":"x"', b'"name" :"a:"'), id="colons-of-both-kinds"),
        pytest.param(TEXT.replace(b'"id":"a"', b'"id" :"a","id":"a"'), id="member-twice-with-a-space"),
        pytest.param(TEXT[:-1] + b',"id":"b"}', id="member-twice"),
        pytest.param(TEXT.replace(b'"shape":[2,3],', b'"shape":[2,3],"shape":[6],'), id="shape-twice"),
        pytest.param(TEXT.replace(b'{"binary', b'{"binary_data_size":24,"binary'), id="size-twice"),
        pytest.param(TEXT[:-1] + b',"p":[1,{"a":1,"a":2}]}', id="twice-somewhere"),
        pytest.param(as_text(ONE, ONE), id="name-twice"),
        pytest.param(as_text(ONE, parameters={"a": float("nan")}), id="constant"),
        pytest.param(as_text(binary("BYTES", [1], 3)), id="elements-that-are-too-short"),
        pytest.param(as_text(binary("INT8", [0], 0)), id="no-elements"),
        pytest.param(as_text(ONE | {"more": 1}), id="fifth-member"),
        pytest.param(as_text({"name": "x", "datatype": "INT8", "shape": [1]}), id="no-parameters"),
        pytest.param(as_text(ONE | {"parameters": {"a": 1}}), id="no-size"),
        pytest.param(as_text(ONE | {"parameters": None}), id="parameters-null"),
        pytest.param(as_text(ONE | {"parameters": {"binary_data_size": 12, "a": None}}), id="null-parameter"),
        pytest.param(as_text(ONE | {"parameters": {"binary_data_size": 12, "a": 1.5}}), id="fraction"),
        pytest.param(as_text(ONE | {"datatype": "FP33"}), id="datatype"),
        pytest.param(as_text(ONE | {"datatype": ["FP32"]}), id="datatype-array"),
        pytest.param(as_text(ONE | {"name": ""}), id="empty-name"),
        pytest.param(as_text(ONE | {"name": 1}), id="number-as-name"),
        pytest.param(as_text(ONE | {"shape": 6}), id="shape-number"),
        pytest.param(as_text(ONE | {"shape": [3, 2.0]}), id="shape-fraction"),
        pytest.param(as_text(ONE | {"shape": [6, True]}), id="shape-boolean"),
        pytest.param(as_text(ONE | {"shape": [-3, -2]}), id="shape-negative"),
        pytest.param(as_text(ONE | {"shape": [1] * 65}), id="rank"),
        pytest.param(as_text(ONE | {"shape": [1 << 41]}), id="long-dimension"),
        pytest.param(as_text(ONE | {"shape": [1 << 30, 1 << 30]}), id="many-elements"),
        pytest.param(as_text(binary("INT8", [1], 2)), id="wrong-size"),
        pytest.param(as_text(binary("INT8", [1], True)), id="size-boolean"),
        pytest.param(as_text(7, "a", None, ["name"]), id="entries-of-other-kinds"),
    ],
)
def test_what_is_unusual_is_left_to_the_strict_way(text: bytes) -> None:
    assert not check(text)


@pytest.mark.parametrize("others", ['{"a":1}', "{}", '{"a":1,"a":1}'])
def test_what_has_much_else_than_tensors_is_not_parsed_twice(others: str) -> None:
    text = as_text(ONE, parameters={"a": "here"}).replace(b'"here"', b"[%b]" % ",".join([others] * 4000).encode())
    with mock.patch("streamcodec.formats.v2.header.plain.parse_unguarded", mock.Mock(side_effect=AssertionError)):
        assert not check(text)


def test_tensors_by_the_thousand_are_plain_with_some_parameters_each() -> None:
    more = {f"a{number}": number for number in range(7)}
    tensors = [ONE | {"name": str(number), "parameters": ONE["parameters"] | more} for number in range(4000)]
    assert check(as_text(*tensors))


@pytest.mark.parametrize(
    ("limits", "is_plain"),
    [
        (Limits(max_json_depth=4), True),
        (Limits(max_json_depth=3), False),
        (Limits(max_tensors=1), True),
        (Limits(max_tensors=0), False),
        (Limits(max_rank=2), True),
        (Limits(max_rank=1), False),
        (Limits(max_elements=6), True),
        (Limits(max_elements=5), False),
        (Limits(max_elements=2), False),
        (Limits(max_tensor_bytes=24), True),
        (Limits(max_tensor_bytes=23), False),
        (Limits(max_message_bytes=len(TEXT) + 24), True),
        (Limits(max_message_bytes=len(TEXT) + 23), False),
    ],
    ids=repr,
)
def test_limits_are_kept(limits: Limits, is_plain: bool) -> None:
    assert check(TEXT, limits) is is_plain


ELEMENTS = as_text(binary("BYTES", [2], 20))


@pytest.mark.parametrize(
    ("limits", "is_plain"),
    [
        (Limits(max_bytes_elements=2), True),
        (Limits(max_bytes_elements=1), False),
        (Limits(max_element_bytes=12), True),
        (Limits(max_element_bytes=11), False),
        (Limits(max_element_bytes=5), False),
        (Limits(max_tensor_bytes=20), True),
        (Limits(max_tensor_bytes=19), False),
    ],
    ids=repr,
)
def test_limits_of_elements_are_kept(limits: Limits, is_plain: bool) -> None:
    assert check(ELEMENTS, limits) is is_plain


NESTED = b'{"inputs":[],"a":[[[[[[[[]]]]]]]]}'


@pytest.mark.parametrize("text", [NESTED, NESTED.replace(b"[]", b"{}"), NESTED[:24], b"[" * 40, b'{"a":' * 8])
def test_depth_is_checked_at_each_limit(text: bytes) -> None:
    for limit in range(50):
        check(text, Limits(max_json_depth=limit))


@pytest.mark.parametrize(
    "message",
    [
        request(binary("INT16", [3, 2], 12), payload=bytes(12)),
        request(ONE, payload=bytes(12), id="a", parameters={"binary_data_output": True}, outputs=[{"name": "y"}]),
        request(ONE, payload=bytes(12), parameters={"binary_data_output": 1}),
        request(ONE, ONE, payload=bytes(24)),
        request(binary("INT16", [3, 2], 13), payload=bytes(13)),
        request(ONE, payload=bytes(11)),
        response(ONE, payload=bytes(12), model_name="m", model_version="1", id="a", parameters={"a": 1}),
        response(ONE, payload=bytes(12), id=7),
    ],
)
def test_whole_and_in_pieces_both_ways_report_the_same(message: Message) -> None:
    with (
        mock.patch.object(strict_way, "match_compactly", return_value=None),
        mock.patch.object(strict_way, "read_plainly", return_value=None),
    ):
        expected = decode(message)
    assert decode(message).log == expected.log


VALUES: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, 1, 2, 6, 24, -1, 1.5, "", "x", "FP32", "INT8", "a:b", "\ud800", [], [2, 3], {}]
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "y", "x:0"]) | VALUES,
        "datatype": st.sampled_from([*DATATYPES, "INT8"]) | VALUES,
        "shape": st.lists(st.integers(0, 3), max_size=3) | VALUES,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": VALUES, "a": VALUES}) | VALUES,
        "more": VALUES,
    },
)
HEADERS = st.fixed_dictionaries(
    {"inputs": st.lists(st.just(ONE) | ENTRIES, max_size=3) | VALUES},
    optional={"id": VALUES, "parameters": VALUES | st.dictionaries(st.text(max_size=2), VALUES), "outputs": VALUES},
)


@settings(max_examples=examples(300))
@given(HEADERS, st.booleans())
def test_any_members(members: Members, is_ascii: bool) -> None:
    check(json.dumps(members, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass"))


@settings(max_examples=examples(300))
@given(
    st.integers(0, len(TEXT)), st.integers(0, 3), st.sampled_from([b"", *map(bytes, zip(rb'{}[],:"\0-.e ax')), TEXT])
)
@example(0, len(TEXT), TEXT)
def test_any_change_of_a_plain_text(place: int, removed: int, added: bytes) -> None:
    check(TEXT[:place] + added + TEXT[place + removed :])


ENTRY = b'{"name":"x","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}}'


@pytest.mark.parametrize("text", [ENTRY, ENTRY + b" , " + ENTRY, b'{"name":"y"}', ENTRY + b',{"parameters":1}'])
def test_plain_entries_are_what_the_strict_way_reads(text: bytes) -> None:
    assert parse_plain_entries(text) == parse_json(b"[%b]" % text, DEFAULT_LIMITS)[0] != []


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"1",
        ENTRY + b",",
        ENTRY + b",0",
        ENTRY + b"]",
        ENTRY[:-1],
        b'{"name":"x","name":"y"}',
        b'{"name":"x","name":"y"},"a"',  # as many members and characters as colons
        b'{"parameters":{"a":1,"a":2}}',
        b'{"parameters":{"a":{"b":1}}}',
        b'{"name":"a:b"}',
        b'{"name":NaN}',
        b'{"name":"\\ud800"}',
        b'{"name":"\xff"}',
        b'{"name":1%b}' % (b"0" * 5000),
    ],
)
def test_unusual_entries_are_left_to_the_strict_way(text: bytes) -> None:
    assert parse_plain_entries(text) == []


@settings(max_examples=examples(300))
@given(
    st.integers(0, len(ENTRY)), st.integers(0, 3), st.sampled_from([b"", *map(bytes, zip(rb'{}[],:"\0-.e ax')), ENTRY])
)
def test_any_change_of_a_plain_entry(place: int, removed: int, added: bytes) -> None:
    text = ENTRY[:place] + added + ENTRY[place + removed :]
    if entries := parse_plain_entries(text):
        assert entries == parse_json(b"[%b]" % text, DEFAULT_LIMITS)[0]
