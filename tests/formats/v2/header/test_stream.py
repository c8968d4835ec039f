"""A header that is read block by block comes to the same as one that is parsed whole, wherever its blocks end."""

from __future__ import annotations

import gc
import json
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcodec import (
    DEFAULT_LIMITS,
    EndOfMessage,
    HeaderReceived,
    Into,
    Limits,
    RemoteProtocolError,
    TensorReceived,
    parse_request_header,
    parse_response_header,
    request_decoder,
)
from streamcodec.engine.json.scan import LONG_BYTES
from streamcodec.formats.v2.header.parsing import long_request_header, long_response_header
from streamcodec.formats.v2.header.stream import MOST_BLOCK_BYTES
from streamcodec.testing import ErrorDescription, describe_error, describe_header
from tests.corpus.notation import read_bytes
from tests.corpus.reading import Case, read_corpus
from tests.corpus.running import declared_lengths
from tests.effort import examples
from tests.engine.test_paced import take
from tests.formats.v2.messages import Members, binary, jsonic, request
from tests.stalls import STALL_SECONDS, slowness

pytestmark = pytest.mark.usefixtures("json_parser")


def whole(text: bytes, *, is_response: bool = False, limits: Limits = DEFAULT_LIMITS) -> Any:  # noqa: ANN401
    """Describe what a text comes to when it is parsed in one go."""
    assert len(text) <= LONG_BYTES
    parse = parse_response_header if is_response else parse_request_header
    try:
        return describe_header(parse(text, limits))
    except RemoteProtocolError as error:
        return describe_error(error)


def in_blocks(
    text: bytes, size: int, *, is_response: bool = False, limits: Limits = DEFAULT_LIMITS, is_known: bool = True
) -> Any:  # noqa: ANN401
    """Describe what it comes to when it is read in blocks of a size."""
    make = long_response_header if is_response else long_request_header
    stream = make(limits, start=len(text) if is_known else None)
    try:
        for start in range(0, len(text), size):
            for _ in stream.feed(text[start : start + size]):
                assert stream.held_bytes >= 0
        work: Any = stream.finish(len(text))
        while True:
            try:
                next(work)
            except StopIteration as end:
                return describe_header(end.value)
    except RemoteProtocolError as error:
        return describe_error(error)


def assert_same(text: bytes, *, is_response: bool = False, sizes: Any = (1, 2, 3, 7, 16, 61, 64 << 10)) -> None:  # noqa: ANN401
    expected = whole(text, is_response=is_response)
    for size in sizes:
        for is_known in (True, False):
            found = in_blocks(text, size, is_response=is_response, is_known=is_known)
            assert found == expected, (size, text)


def tensor(**members: Any) -> Members:  # noqa: ANN401 - any JSON value
    return {"name": "x", "datatype": "FP32", "shape": [4], "data": [1, 2.5, -3, 4], **members}


ACCEPTED = [
    {"inputs": []},
    {"inputs": [tensor()]},
    {"inputs": [tensor(), tensor(name="y", parameters={"a": [1, {"b": "data"}]}), tensor(name="z")], "id": "a"},
    {"id": "a", "inputs": [jsonic("FP64", [2, 2], [[1, 2], [3, 4]])], "outputs": [{"name": "a"}, {"name": "b"}]},
    {"inputs": [jsonic("INT64", [2, 3, 1], [[[1], [2], [3]], [[4], [5], [6]]])]},
    {"inputs": [jsonic("INT64", [2, 3], [2**63 - 1, -(2**63), 2**53 + 1, 0, -1, 1])]},
    {"inputs": [jsonic("UINT64", [2], [2**64 - 1, 2**53 + 1])]},
    {"inputs": [jsonic("BOOL", [3], [True, False, True])]},
    {"inputs": [jsonic("BYTES", [4], ["a,b", '"]},{["', "é\N{GRINNING FACE}\\", ""])]},
    {"inputs": [jsonic("BYTES", [2, 2], [["a,b", '"],["'], ['\\"', "[[["]])]},
    {"inputs": [jsonic("FP32", [], 5), jsonic("FP32", [], [5], name="y"), jsonic("FP32", [0], [], name="z")]},
    {"inputs": [jsonic("INT8", [2, 0], [[], []]), jsonic("INT8", [2, 0], [], name="z")]},
    {"inputs": [jsonic("INT8", [1] * 6, [[[[[[5]]]]]])]},
    {"inputs": [{"data": [1, 2, 3], "datatype": "INT8", "shape": [3], "name": "late"}, tensor()]},
    {"inputs": [{"data": [[1, 2], [3, 4]], "datatype": "INT8", "shape": [2, 2], "name": "late"}]},
    {"inputs": [binary("INT8", [3], 3), tensor(name="y"), binary("INT8", [2], 2, name="z")]},
    {"inputs": [tensor(parameters={"data": [1, 2, 3], "inputs": [1, 2, 3]})], "parameters": {"inputs": [1]}},
    {"inputs": [tensor()], "data": [1, 2, [3]], "x": {"inputs": [{"data": [1, 2]}]}},
    {"inputs": [tensor(x={"data": [1]}, y=[{"data": [2]}])], "outputs": None},
]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("header", ACCEPTED, ids=range(len(ACCEPTED)))
def test_accepted(header: Members, indent: int | None) -> None:
    text = json.dumps(header, indent=indent).encode()
    assert "error" not in str(whole(text))
    assert_same(text)
    assert_same(b" \n" + text + b"  \r\n")


def with_data(data: str, datatype: str = "FP32", shape: str = "[4]") -> bytes:
    return f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{shape},"data":{data}}}]}}'.encode()


REFUSED = [
    b"",
    b"   ",
    b"[]",
    b"[1,2]",
    b"5",
    b'"abc"',
    b"nul",
    b"{",
    b"}",
    b"\xef\xbb\xbf{}",
    b'{"inputs":[]}x',
    b'{"inputs":[]} {}',
    b'{"inputs":[]} \xff',
    b'{"inputs":[]} \xc3\xa9',
    b'{"inputs":[',
    b'{"inputs":[{"name":"a","datatype":"INT8","shape":[2],"data":[1,',
    b'{"inputs":[{"name":"a","datatype":"INT8","shape":[2],"data":[1',
    b'{"inputs":[{"name":"a","datatype":"BYTES","shape":[2],"data":["a","b',
    b'{"inputs":[{"name":"a","datatype":"INT8","shape":[2],"data":[1,2]',
    b'{"inputs":[{"name":"a","datatype":"INT8","shape":[2],"data":[1,2]}',
    b'{"inputs":[{"name":"a","datatype":"INT8","shape":[2],"data":[1,2]}]',
    b'{"inputs":[{"data":[1,2,3',
    b'{"inputs":[{"data":[1,2,3]',
    b'{"inputs":[{"data":[1,,3,4,',
    b'{"a,"inputs":["}',
    b'{"inputs":[],"inputs":[]}',
    b'{"inputs":[,]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]},]}',
    b'{"inputs":[1,{}]}',
    b'{"inputs":[{"data":[1,2],"data":[1,2]}]}',
    b'{"inputs":[{,"data":[1,2]}]}',
    b'{"inputs":[{"name":"data":[1,2]}]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1],"\\u0064ata":[1]}]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1],"parameters":{"binary_data_size":4}}]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4},"data":[1]}]}',
    b'{"inputs":[{"data":[1,{},2],"name":"x","datatype":"INT8","shape":[3]}]}',
    b'{"inputs":[{"data":[1,{"a":[2,{}]},[3]],"name":"x","datatype":"INT8","shape":[3]}]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","data":[1]}]}',
    b'{"inputs":[{"name":"x","data":[1],"shape":[1]}]}',
    b'{"inputs":[{"datatype":"FP32","shape":[1],"data":[1]}]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]},{"name":"x"}]}',
    b'{"inputs":[{"name":"x","datatype":"FP16","shape":[1],"data":[1]}]}',
    b'{"inputs":[{"name":"x","datatype":"fp32","shape":[1],"data":[1]}]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[-1],"data":[1]}]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1],"a":NaN}]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1],"a":{"k":1,"k":2}}]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1],"a":["\\ud800"]}]}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}],"a":NaN}',
    b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}],"outputs":[{"name":"a","b":[NaN]}]}',
    b'{"inputs":[],"outputs":[{"name":"a"},{"name":"a"}]}',
    b'{"a":"\xff"}',
    b'{"inputs":[{"name":"\xc3"}]}',
    with_data("[1,2,3]"),
    with_data("[1,2,3,4,5]"),
    with_data("[1,2,,4]"),
    with_data("[,1,2,3]"),
    with_data("[1,2,3,4,]"),
    with_data("[1,2 3,4]"),
    with_data("[1,2,true,4]"),
    with_data('[1,2,"3",4]'),
    with_data("[1,2,{},4]"),
    with_data('[1,2,{"a":1},4]'),
    with_data("[1,2,[3],4]"),
    with_data("[1,2}"),
    with_data("[1,2,3,1e39]"),
    with_data("[1,2,3,1" + "0" * 400 + "]"),
    with_data("[1,2,3," + "9" * 5_000 + "]", "INT8"),
    with_data("[1,2,3,null]"),
    with_data("[1,2,01,4]"),
    with_data('[1,2,\\"3,4]'),
    with_data("[1,-,3,4]", "INT8"),
    with_data("[1,200,3,4]", "INT8"),
    with_data("[1,2,3.5,4]", "INT8"),
    with_data("[1,NaN,3,4]", "INT8"),
    with_data("[true,1,false,true]", "BOOL"),
    with_data('["a","b","\\ud800","d"]', "BYTES"),
    with_data('["a","b",3,"d"]', "BYTES"),
    with_data('["a","b","c\xff","d"]', "BYTES").replace("ÿ".encode(), b"\xff"),
    with_data('["a","b","c\nd","d"]', "BYTES"),
    with_data("[[1,2],[3,4,5]]", "INT8", "[2,2]"),
    with_data("[[1,2],[3]]", "INT8", "[2,2]"),
    with_data("[[1,2,3],[3,4]]", "INT8", "[2,2]"),
    with_data("[[1,2],3]", "INT8", "[2,2]"),
    with_data("[[1,2],{}]", "INT8", "[2,2]"),
    with_data("[[1,2],[3,[4]]]", "INT8", "[2,2]"),
    with_data("[[1,2],[3,300]]", "INT8", "[2,2]"),
    with_data("[[1,2]]", "INT8", "[2,2]"),
    with_data("[[1,2],[3,4],[5,6]]", "INT8", "[2,2]"),
    with_data("[[1,2],]", "INT8", "[2,2]"),
    with_data("[[,2],[3,4]]", "INT8", "[2,2]"),
    with_data("[[1,2],[3,4}]", "INT8", "[2,2]"),
    with_data("[[[1],[2]],[[3],[4,4]]]", "INT8", "[2,2,1]"),
    with_data("[[[1],[2]],[[3]]]", "INT8", "[2,2,1]"),
]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[-40:].decode("latin-1"))
def test_refused(text: bytes) -> None:
    expected = whole(text)
    assert isinstance(expected, tuple)
    for size in (1, 2, 3, 5, 16, 64 << 10):
        found = in_blocks(text, size)
        # How many values are too many is not known before the end.
        found = found._replace(message=found.message.replace(" or more", ""))
        assert found == expected, (size, found, expected)


STREAMED = [case for case in read_corpus() if case.kind in {"request", "response"} and "headerless" not in case.options]


TWICE_WRONG = {
    "nested, for a shape of one dimension",
    "nested like the transposed shape",
    "a row behind values",
    "few values for a shape of very many",
    "a header one byte longer than the body",
    "depth before the text ends",
}
"""Where a value is wrong, and then their count; or no header at all."""


@pytest.mark.parametrize("case", STREAMED, ids=lambda case: f"{case.file}: {case.name}")
def test_cases_of_the_corpus(case: Case) -> None:
    sent = read_bytes(case.message)
    length, _ = declared_lengths(case)
    text = sent.data[: len(sent.data) if length is None else length]
    limits = Limits(**{name: int(value) for name, value in case.options.items() if name.startswith("max_")})
    if len(text) > 4_000 or case.name in TWICE_WRONG:
        pytest.skip("the depth of long texts has tests of its own, and of two mistakes the first one wins")
    expected = whole(text, is_response=case.kind == "response", limits=limits)
    for size in (1, 7):
        found = in_blocks(text, size, is_response=case.kind == "response", limits=limits)
        if isinstance(expected, ErrorDescription):
            found, expected = (error._replace(message="") for error in (found, expected))
        assert found == expected, size


SMALL = st.sampled_from([1e-5, -2.5e-07, 6.103515625e-05, 3e-08, 1e-10])
"""Floats whose exponents have the sign and the zero of a negative zero."""
NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | SMALL | st.sampled_from([0, 1, -1, 255, 256, -0.0, 1e39])
SCALARS = NUMBERS | st.none() | st.booleans() | st.text('ab,"[]{}\\\\:é', max_size=5)


@st.composite
def tensors(draw: st.DrawFn) -> Members:
    datatype = draw(st.sampled_from(["FP32", "FP64", "INT8", "UINT64", "BOOL", "BYTES"]))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    kind: st.SearchStrategy[Any] = {"B": st.text('ab,"[]', max_size=4), "F": NUMBERS}.get(
        datatype[0], st.integers(0, 9)
    )
    kind = st.booleans() if datatype == "BOOL" else kind
    if draw(st.integers(0, 9)) == 0:
        kind = SCALARS
    values = draw(st.lists(kind, min_size=(count := int(np.prod(shape))), max_size=count))
    data: Any = np.array([None, *values], object)[1:].reshape(shape).tolist() if draw(st.booleans()) else values
    members = {**jsonic(datatype, shape, data, name=draw(st.text("ab", min_size=1, max_size=3))), "parameters": {}}
    names = draw(st.permutations(list(members)))
    return {name: members[name] for name in names}


@settings(max_examples=examples(300))
@given(st.lists(tensors(), max_size=4), st.dictionaries(st.text("ab:", max_size=2), SCALARS), st.data(), st.booleans())
def test_headers_right_and_wrong(inputs: list[Members], rest: Members, data: st.DataObject, is_response: bool) -> None:
    text = json.dumps(
        {**rest, "outputs" if is_response else "inputs": inputs}, indent=data.draw(st.none() | st.just(1))
    )
    size = data.draw(st.integers(1, 64))
    expected = whole(text.encode(), is_response=is_response)
    found = in_blocks(text.encode(), size, is_response=is_response)
    if isinstance(expected, ErrorDescription):  # several things may be wrong, and the first one wins
        assert isinstance(found, ErrorDescription)
    else:
        assert found == expected
    damaged = bytearray(text.encode())
    place = data.draw(st.integers(0, len(damaged) - 1))
    damaged[place : place + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(MARKS))
    expected = whole(bytes(damaged), is_response=is_response)
    found = in_blocks(bytes(damaged), size, is_response=is_response)
    assert isinstance(found, ErrorDescription) is isinstance(expected, ErrorDescription)
    assert found == expected or isinstance(found, ErrorDescription)


MARKS = [b'"', b":", b",", b"{", b"}", b"[", b"]", b"\\", b"-", b".", b"0", b" ", b"e", b"\xff", b"", b"NaN"]


def long_values(count: int) -> bytes:
    return b"[" + b"1," * count + b"1]"


@pytest.mark.parametrize("size", [1_000, 64 << 10])
def test_values_besides_data_are_counted_where_the_text_is_long(size: int) -> None:
    limits = Limits(max_json_values=40_000)
    entry = b'{"name":"x","datatype":"FP32","shape":[40000],"data":[%b],"parameters":{"a":%b}}'
    data = b",".join([b"2.5"] * 40_000)
    for count, path in ((39_000, None), (40_100, "$.inputs[0]")):
        text = b'{"inputs":[' + entry % (data, long_values(count)) + b"]}"
        found = in_blocks(text, size, limits=limits)
        assert getattr(found, "path", None) == path
        text = b'{"inputs":[],"x":' + long_values(count) + b"}"
        found = in_blocks(text, size, limits=limits)
        assert getattr(found, "path", None) == (path and "$")
        if path is not None:
            assert (found.limit, found.status_hint) == ("max_json_values", 413)
    short = b'{"inputs":[],"x":' + long_values(15_000) + b"}"
    assert not isinstance(in_blocks(short, size, limits=Limits(max_json_values=0)), ErrorDescription)


def test_text_and_values_besides_data_are_refused_in_words() -> None:
    for name, most, text, words in (
        ("max_json_text_bytes", 70_000, b'"%b"' % (b"y" * 80_000), "more than 70000 bytes of JSON"),
        ("max_json_values", 40_000, long_values(40_100), "more than 40000 JSON values"),
    ):
        found = in_blocks(b'{"inputs":[],"x":' + text + b"}", 64 << 10, limits=Limits(**{name: most}))
        assert (found.limit, found.path) == (name, "$")
        assert found.message == f"{words} stand here, besides the data of tensors"


def test_tensors_are_counted_as_they_come() -> None:
    entries = ",".join(json.dumps(binary("INT8", [1], 1, name=str(index))) for index in range(2_000))
    text = f'{{"inputs":[{entries}]}}'.encode()
    limits = Limits(max_tensors=1_999)
    found = in_blocks(text, 64 << 10, limits=limits)
    assert (found.limit, found.path) == ("max_tensors", "$.inputs")
    with pytest.raises(RemoteProtocolError):
        parse_request_header(text, limits)
    header = parse_request_header(text, DEFAULT_LIMITS)
    assert header.tensors[-1].offset == len(text) + 1_999
    assert in_blocks(text, 1_000, is_known=False) == describe_header(header)
    limits = Limits(max_message_bytes=len(text) + 1_998)
    known, unknown = (in_blocks(text, 1_000, limits=limits, is_known=is_known) for is_known in (True, False))
    assert known.path == unknown.path == "$.inputs[1998]"


@pytest.mark.parametrize(("key", "make"), [("inputs", long_request_header), ("outputs", long_response_header)])
def test_what_does_not_fit_the_message_is_refused_before_the_header_has_ended(key: str, make: Any) -> None:  # noqa: ANN401
    text = json.dumps({key: [binary("INT8", [9], 9)], "parameters": {}}).encode()
    stream = make(Limits(max_message_bytes=len(text) + 8), start=len(text))
    pieces = (text[start : start + 16] for start in range(0, len(text) - 16, 16))
    with pytest.raises(RemoteProtocolError, match="message"):
        deque(chain.from_iterable(map(stream.feed, pieces)), maxlen=0)


@pytest.mark.parametrize("size", [20, 1 << 20])
def test_a_zero_below_zero_is_one_in_a_long_header_too(size: int) -> None:
    text = with_data("[-0,1e-05,-0.0,0]", "FP64")
    decoder, body = request_decoder(header_length=None, body_length=len(text) + LONG_BYTES), text + b" " * LONG_BYTES
    for start in range(0, len(body), size):
        decoder.feed(body[start : start + size])
    event = decoder.next_event()
    assert isinstance(event, HeaderReceived)
    data = event.header.tensors[0].data
    assert isinstance(data, np.ndarray)
    assert str(data.tolist()) == "[-0.0, 1e-05, -0.0, 0.0]"
    assert_same(text)


def test_a_long_response_is_read_in_blocks_too() -> None:
    outputs = [binary("INT8", [1], 1, name=str(index)) for index in range(1_000)]
    text = json.dumps({"model_name": "m", "outputs": outputs}).encode()
    assert len(text) > LONG_BYTES
    header = parse_response_header(text, DEFAULT_LIMITS)
    assert (header.model_name, [int(tensor.name) for tensor in header.tensors]) == ("m", [*range(1_000)])
    assert header.tensors[-1].offset == len(text) + 999
    assert in_blocks(text, 1_000, is_response=True) == describe_header(header)


def test_integers_of_thousands_of_digits_count_as_many_values() -> None:
    entry = b'{"inputs":[],"x":[' + b",".join([b"9" * 4_000] * 22) + b"]}"
    assert in_blocks(entry, 64 << 10).limit == "max_json_values"
    assert not isinstance(in_blocks(entry, 64 << 10, limits=Limits(max_json_values=20_000)), ErrorDescription)


@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_a_placed_array_is_the_one_that_was_filled(datatype: str) -> None:
    values = ["a"] * 50_000 if datatype == "BYTES" else [1.5] * 50_000
    text = json.dumps({"inputs": [jsonic(datatype, [50_000], values)]}).encode()
    decoder = request_decoder(header_length=len(text), body_length=len(text))
    decoder.feed(text)
    header, tensor = decoder.next_event(), decoder.next_event()
    assert isinstance(header, HeaderReceived)
    assert isinstance(tensor, TensorReceived)
    assert tensor.array is header.header.tensors[0].data
    assert tensor.array.flags.writeable
    assert datatype == "BYTES" or tensor.array.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    ("values", "most"),
    [
        (b"0.12345678901234567," * 40_000, MOST_BLOCK_BYTES),
        (b"0.25," * 40_000, 40 << 10),
        (b"1," * 100_000, LONG_BYTES),
    ],
    ids=["long", "short", "shortest"],
)
def test_a_block_has_no_more_values_than_have_the_time_of_a_turn(values: bytes, most: int) -> None:
    count = values.count(b",") + 1
    text = b'{"inputs":[{"name":"x","shape":[%d],"datatype":"FP64","data":[%b1]}]}' % (count, values)
    stream, lengths = long_request_header(DEFAULT_LIMITS), []
    while text:
        lengths.append(stream.block_bytes)
        block, text = text[: stream.block_bytes], text[stream.block_bytes :]
        deque(stream.feed(block), maxlen=0)
    assert lengths[0] == LONG_BYTES
    assert most * 0.99 < max(lengths) < most * 1.01
    assert stream.block_bytes == LONG_BYTES, "usual again"


def test_values_go_to_the_callers_own_array_in_pieces() -> None:
    count = 1 << 20
    text = request(jsonic("FP64", [count], [1] * count)).body
    array = np.zeros(count, "<f8")
    decoder = request_decoder(header_length=len(text), body_length=len(text), place=lambda _: Into(array), paced=True)
    _, turns = take(decoder, text)
    assert array.all()
    assert turns > len(text) // LONG_BYTES + 6


STEPS: dict[str, Callable[[int], bytes]] = {
    "values of FP32, the last too large": lambda n: data_of("FP32", n, "1," * (n - 1) + "1e39"),
    "empty texts": lambda n: data_of("BYTES", n, '"",' * (n - 1) + '""'),
    "NaN": lambda n: data_of("FP32", n, "NaN," * (n - 1) + "1"),
    "lists of one": lambda n: data_of("INT8", n, "[1]," * (n - 1) + "[1]", f"[{n},1]"),
    "values before their shape": lambda n: (
        b'{"inputs":[{"data":[' + b"1," * (n - 1) + b'1],"name":"x","datatype":"INT8","shape":[%d]}]}' % n
    ),
    "objects": lambda n: b'{"inputs":[],"x":[' + b"{}," * (n // 10) + b"0]}",
    "tensors": lambda n: json.dumps({"inputs": [binary("INT8", [0], 0, name=str(i)) for i in range(n // 20)]}).encode(),
    "outputs": lambda n: json.dumps({"inputs": [], "outputs": [{"name": str(i)} for i in range(n // 20)]}).encode(),
    "long names": lambda n: b'{"inputs":[],"parameters":{"a":[' + b'{"%s":1},' % (b"a" * 90) * (n // 12) + b"1e999]}}",
    "commas": lambda n: b'{"inputs":[' + b"," * n + b"]}",
}


def data_of(datatype: str, count: int, values: str, shape: str | None = None) -> bytes:
    return with_data(f"[{values}]", datatype, shape or f"[{count}]")


@pytest.mark.quiet
@pytest.mark.parametrize("name", STEPS)
def test_no_piece_of_work_is_long(name: str) -> None:
    """The quickest of three runs counts, since others may use the machine; `test_pieces` has many more shapes."""
    text = STEPS[name](100_000)
    gc.disable()  # which would go through all objects of the tests
    try:
        assert min(longest_piece(text) for _ in range(3)) < STALL_SECONDS * slowness()
    finally:
        gc.enable()


def longest_piece(text: bytes) -> float:
    decoder = request_decoder(header_length=len(text), body_length=len(text), paced=True)
    view, longest = memoryview(text), 0.0
    with suppress(RemoteProtocolError):
        while True:
            view = view[decoder.feed(view) :]
            event = decoder.next_event()
            if isinstance(event, EndOfMessage):
                break
            start = time.thread_time()
            decoder.work()
            longest = max(longest, time.thread_time() - start)
    return longest


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text() -> None:
    count = 400_000
    text = data_of("FP32", count, "1.2345678901," * (count - 1) + "1")
    parse_request_header(text, DEFAULT_LIMITS)  # imports what is imported once
    tracemalloc.start()
    try:
        parse_request_header(text, DEFAULT_LIMITS)
        assert tracemalloc.get_traced_memory()[1] < 4 * count + (3 << 20)
    finally:
        tracemalloc.stop()


def calls_per_tensor(count: int) -> float:
    """Calls of functions, each of which is counted, to read a header of so many plain tensors."""
    entry = '{"name":"tensor%d","datatype":"FP32","shape":[16],"parameters":{"binary_data_size":64}}'
    text = b'{"inputs":[%b]}' % ",".join(entry % number for number in range(count)).encode()
    calls = 0

    def called(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    parse_request_header(text, DEFAULT_LIMITS)  # what is looked up once is looked up now
    sys.setprofile(called)
    try:
        parse_request_header(text, DEFAULT_LIMITS)
    finally:
        sys.setprofile(None)
    return calls / count


def test_plain_tensors_of_a_long_header_are_read_like_those_of_a_short_one() -> None:
    """Three calls more for each: to keep its name, and itself, and one of ours. To parse all strictly were seven."""
    assert calls_per_tensor(5000) <= calls_per_tensor(300) + 5


def test_outputs_of_a_long_header_by_the_hundred() -> None:
    outputs = [{"name": f"output{index}", "parameters": {"binary_data": True}} for index in range(1_000)]
    text = json.dumps({"inputs": [], "outputs": outputs}).encode()
    stream = long_request_header(DEFAULT_LIMITS, start=len(text))
    turns = sum(1 for start in range(0, len(text), 30_000) for _ in stream.feed(text[start : start + 30_000]))
    assert turns >= 1_000 // 64
    assert in_blocks(text, 30_000) == describe_header(parse_request_header(text, DEFAULT_LIMITS))
