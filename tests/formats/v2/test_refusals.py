"""What a refusal says: its code, its words and its place, for one example of each rule.

People read these words in logs and in answers, and programs log them, so they are a part of the product and change on
purpose only. Syntax errors that Python's versions word differently are left out.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamcodec import NEED_DATA, ErrorCode, LimitExceededError, RemoteProtocolError
from tests.engine.triad import refuse
from tests.formats.v2.messages import Message, binary, json_message, jsonic, message, request, response

ONE = binary("UINT8", [2], 2)
LONG = binary("UINT8", [2], 2) | {"comment": "c" * (32 << 10)}
UNDECLARED = "; Inference-Header-Content-Length is missing, which says where binary tensors begin"

REFUSALS: list[tuple[Message, str, str]] = [
    (
        request(ONE, payload=b"\0"),
        "body-length-mismatch",
        "the body has 102 bytes, its header and tensors need 103 (byte 102)",
    ),
    (
        request(ONE, payload=b"\0\0\0"),
        "body-length-mismatch",
        "the body has 104 bytes, its header and tensors need 103 (byte 103)",
    ),
    (
        request(binary("BOOL", [3], 3), payload=b"\0\1\2"),
        "invalid-bool",
        "a byte of a BOOL tensor is neither 0 nor 1 (byte 102)",
    ),
    (
        request(binary("BYTES", [2], 6), payload=b"\2\0\0\0ab"),
        "binary-size-mismatch",
        (
            "binary_data_size is 6, datatype and shape need at least 8: a 4-byte length for each of 2 elements "
            "($.inputs[0].parameters.binary_data_size)"
        ),
    ),
    (
        request(binary("BYTES", [1], 5), payload=b"\2\0\0\0a"),
        "invalid-elements",
        "element 0 of 1 declares 2 bytes, 1 are left (byte 101)",
    ),
    (
        request(binary("BYTES", [0], 4), payload=bytes(4)),
        "binary-size-mismatch",
        (
            "binary_data_size is 4, datatype and shape need 0: without elements there are no lengths of elements "
            "either ($.inputs[0].parameters.binary_data_size)"
        ),
    ),
    (
        request(binary("FP32", [2], 7), payload=bytes(7)),
        "binary-size-mismatch",
        (
            "binary_data_size is 7, datatype and shape need 8: 2 elements of 4 bytes "
            "($.inputs[0].parameters.binary_data_size)"
        ),
    ),
    (
        request(binary("FP33", [2], 8), payload=bytes(8)),
        "unknown-datatype",
        "'FP33' is not a datatype of the protocol ($.inputs[0].datatype)",
    ),
    (
        request(binary("fp32", [2], 8), payload=bytes(8)),
        "unknown-datatype",
        "'fp32' is not a datatype of the protocol; datatypes are upper case ($.inputs[0].datatype)",
    ),
    (
        request(binary("UINT8", [-1], 1), payload=b"a"),
        "invalid-shape",
        "a dimension is not an integer >= 0 ($.inputs[0].shape[0])",
    ),
    (
        request(binary("UINT8", [True], 1), payload=b"a"),
        "invalid-shape",
        "a dimension is not an integer >= 0 ($.inputs[0].shape[0])",
    ),
    (
        request({**ONE, "shape": 3}, payload=b"ab"),
        "invalid-shape",
        "shape is not an array ($.inputs[0].shape)",
    ),
    (
        request({**ONE, "shape": "3"}, payload=b"ab"),
        "invalid-shape",
        "shape is not an array ($.inputs[0].shape)",
    ),
    (request({**ONE, "name": ""}, payload=b"ab"), "invalid-member", "the name is empty ($.inputs[0].name)"),
    (
        request({**ONE, "name": 3}, payload=b"ab"),
        "invalid-member",
        "name is a JSON integer, not a JSON string ($.inputs[0].name)",
    ),
    (
        request({**ONE, "data": [1, 2]}, payload=b"ab"),
        "ambiguous-source",
        "the tensor has both data and parameters.binary_data_size ($.inputs[0])",
    ),
    (
        request({"name": "x", "datatype": "UINT8", "shape": [1]}),
        "missing-member",
        "the tensor has neither data nor parameters.binary_data_size ($.inputs[0])",
    ),
    (
        request({"name": "x", "shape": [1], "data": [1]}),
        "missing-member",
        "the member datatype is missing ($.inputs[0].datatype)",
    ),
    (
        request({"datatype": "UINT8", "shape": [1], "data": [1]}),
        "missing-member",
        "the member name is missing ($.inputs[0].name)",
    ),
    (
        request({"name": "x", "datatype": "UINT8", "data": [1]}),
        "missing-member",
        "the member shape is missing ($.inputs[0].shape)",
    ),
    (
        request({"name": "x", "datatype": 5, "shape": [1], "data": [1]}),
        "invalid-member",
        "datatype is a JSON integer, not a JSON string ($.inputs[0].datatype)",
    ),
    (request(ONE, ONE, payload=b"abcd"), "duplicate-name", "the name 'x' is used twice ($.inputs[1].name)"),
    (message({"inputs": [3]}), "invalid-member", "an object belongs here, not a JSON integer ($.inputs[0])"),
    (
        message({"inputs": [], "outputs": [{"name": "a", "parameters": 3}]}),
        "invalid-member",
        "parameters is a JSON integer, not a JSON object ($.outputs[0].parameters)",
    ),
    (
        message(b'{"a":' + b"9" * 5000 + b"}"),
        "invalid-json",
        "the header holds an integer with thousands of digits",
    ),
    (
        request(jsonic("INT8", [4], [-128, 127, 128, 129])),
        "invalid-data",
        "a value is not within INT8 ($.inputs[0].data[2])",
    ),
    (
        replace(request(ONE, payload=b""), body_length=None),
        "truncated",
        "the message ends 2 bytes too early (byte 101)",
    ),
    (message({"inputs": [None]}), "invalid-member", "an object belongs here, not a JSON null ($.inputs[0])"),
    (message({}), "missing-member", "the member inputs is missing ($.inputs)"),
    (message({"inputs": [], "id": 7}), "invalid-member", "id is a JSON integer, not a JSON string ($.id)"),
    (
        message({"inputs": [], "outputs": [{}]}),
        "missing-member",
        "the member name is missing ($.outputs[0].name)",
    ),
    (
        message({"inputs": [], "outputs": [{"name": "y"}, {"name": "y"}]}),
        "duplicate-name",
        "the name 'y' is used twice ($.outputs[1].name)",
    ),
    (
        message({"inputs": [], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}),
        "invalid-member",
        "binary_data is a JSON integer, not a JSON boolean ($.outputs[0].parameters.binary_data)",
    ),
    (
        message({"inputs": [], "parameters": {"binary_data_output": "yes"}}),
        "invalid-member",
        "binary_data_output is a JSON string, not a JSON boolean ($.parameters.binary_data_output)",
    ),
    (
        message({"model_name": 1, "outputs": []}, is_response=True),
        "invalid-member",
        "model_name is a JSON integer, not a JSON string ($.model_name)",
    ),
    (
        message({"model_name": "m"}, is_response=True),
        "missing-member",
        "the member outputs is missing ($.outputs)",
    ),
    (message(b"[]"), "invalid-header", "the header is a JSON array, not an object ($)"),
    (message(b"3"), "invalid-header", "the header is a JSON integer, not an object ($)"),
    (message(b"null"), "invalid-header", "the header is a JSON null, not an object ($)"),
    (message(b"true"), "invalid-header", "the header is a JSON boolean, not an object ($)"),
    (message(b'"text"'), "invalid-header", "the header is a JSON string, not an object ($)"),
    (
        message(b'{"inputs": [], "inputs": []}'),
        "duplicate-key",
        "an object of the header has the member 'inputs' twice ($)",
    ),
    (
        message(b'{"inputs": [], "parameters": {"a": {"b": 1, "b": 2}}}'),
        "duplicate-key",
        "an object of the header has the member 'b' twice ($.parameters.a)",
    ),
    (
        message(b'{"inputs": [], "parameters": {"a": NaN}}'),
        "non-finite-number",
        "NaN and Infinity may stand only in the data of an FP32 or FP64 tensor ($.parameters.a)",
    ),
    (
        message(b'{"inputs": [], "parameters": {"a": 1e999}}'),
        "invalid-member",
        "the number is larger than any double ($.parameters.a)",
    ),
    (
        message(b'{"inputs": [], "parameters": {"a": [1, -Infinity]}}'),
        "non-finite-number",
        "NaN and Infinity may stand only in the data of an FP32 or FP64 tensor ($.parameters.a[1])",
    ),
    (message(b'{"inputs": []'), "invalid-json", "the header is not JSON: expecting ',' delimiter (byte 13)"),
    (message(b'{"inputs": []} x'), "invalid-json", "the header is not JSON: extra data (byte 15)"),
    (
        message(b'{"inputs": [] "id": 1}'),
        "invalid-json",
        "the header is not JSON: expecting ',' delimiter (byte 14)",
    ),
    (
        message(b"{inputs: []}"),
        "invalid-json",
        "the header is not JSON: expecting property name enclosed in double quotes (byte 1)",
    ),
    (message(b'{"inputs": [], "id": "\xff"}'), "invalid-utf8", "the header is not UTF-8 (byte 22)"),
    (
        message(b'\xef\xbb\xbf{"inputs": []}'),
        "invalid-utf8",
        "the header starts with a byte order mark, which RFC 8259 forbids (byte 0)",
    ),
    (
        message(b'{"inputs": [], "id": "\\ud800"}'),
        "invalid-utf8",
        "a string of the header holds half of a surrogate pair ($.id)",
    ),
    (
        message(b'{"inputs": [], "parameters": {"a key": {"\\udc00": 1}}}'),
        "invalid-utf8",
        "a string of the header holds half of a surrogate pair ($.parameters['a key'] (a member's name))",
    ),
    (
        request(jsonic("INT8", [2], [1])),
        "invalid-data",
        "data has 1 values, the shape needs 2 ($.inputs[0].data)",
    ),
    (
        request(jsonic("INT8", [2], [1, 128])),
        "invalid-data",
        "a value is not within INT8 ($.inputs[0].data[1])",
    ),
    (
        request(jsonic("INT8", [2], [1, 1.5])),
        "invalid-data",
        "a value is not an integer ($.inputs[0].data[1])",
    ),
    (
        request(jsonic("INT8", [2], [1, True])),
        "invalid-data",
        "a value is not an integer ($.inputs[0].data[1])",
    ),
    (
        request(jsonic("UINT8", [2, 2], [[1, 2], [3, -4]])),
        "invalid-data",
        "a value is not within UINT8 ($.inputs[0].data[1][1])",
    ),
    (
        request(jsonic("UINT8", [2, 2], [[1, 2], [3]])),
        "invalid-data",
        "data is not nested like the shape: here an array of 2 belongs ($.inputs[0].data[1])",
    ),
    (
        request(jsonic("UINT8", [2, 2], [[1, 2], 3])),
        "invalid-data",
        "data is not nested like the shape: here an array of 2 belongs ($.inputs[0].data[1])",
    ),
    (request(jsonic("UINT8", [2], 3)), "invalid-data", "data is not an array ($.inputs[0].data)"),
    (
        request(jsonic("BOOL", [2], [True, 2])),
        "invalid-data",
        "a value is not true or false ($.inputs[0].data[1])",
    ),
    (
        request(jsonic("BYTES", [2], ["a", 2])),
        "invalid-data",
        "a value is not a string ($.inputs[0].data[1])",
    ),
    (
        request(jsonic("FP32", [2], [1, "x"])),
        "invalid-data",
        "a value is not a number ($.inputs[0].data[1])",
    ),
    (
        request(jsonic("FP32", [2], [1, 1e39])),
        "invalid-data",
        "a value is not within FP32 ($.inputs[0].data[1])",
    ),
    (
        request(jsonic("FP32", [2], [1, None])),
        "invalid-data",
        "a value is not a number ($.inputs[0].data[1])",
    ),
    (
        request(jsonic("FP16", [1], [1])),
        "json-not-supported",
        "FP16 has no JSON form; send it as binary data with binary_data_size ($.inputs[0].data)",
    ),
    (
        request(jsonic("BF16", [1], [1])),
        "json-not-supported",
        "BF16 has no JSON form; send it as binary data with binary_data_size ($.inputs[0].data)",
    ),
    (
        replace(request(ONE, payload=b"ab"), header_length=2),
        "invalid-json",
        "the header is not JSON: unterminated string starting (byte 1)",
    ),
    (
        replace(request(ONE, payload=b"ab"), header_length=500),
        "header-exceeds-body",
        "the declared header length 500 exceeds the body's 103 bytes (byte 0)",
    ),
    (
        replace(request(ONE, payload=b"ab"), header_length=0),
        "empty-body",
        "the body is empty; an inference message starts with a JSON header (byte 0)",
    ),
    (
        replace(request(ONE, payload=b"ab"), header_length=None),
        "invalid-json",
        f"the header is not JSON: extra data{UNDECLARED} (byte 101)",
    ),
    (
        replace(request(ONE, payload=b"\xff\0"), header_length=None),
        "invalid-utf8",
        f"the header is not UTF-8{UNDECLARED} (byte 101)",
    ),
    (
        replace(request(ONE, payload=b""), header_length=None),
        "body-length-mismatch",
        f"the body has 101 bytes, its header and tensors need 103{UNDECLARED} (byte 101)",
    ),
    (
        json_message(b"\xff"),
        "invalid-utf8",
        "the header is not UTF-8 (byte 0)",
    ),
    (
        request(ONE, payload=b"abc").headerless(),
        "body-length-mismatch",
        f"the body has 104 bytes, its header and tensors need 103{UNDECLARED} (byte 103)",
    ),
    (
        request(ONE, payload=b"a").headerless(),
        "body-length-mismatch",
        "the body has 102 bytes, its header and tensors need 103 (byte 102)",
    ),
    (
        replace(json_message(b""), body_length=None),
        "empty-body",
        "the body is empty; an inference message starts with a JSON header (byte 0)",
    ),
    (
        json_message(b""),
        "empty-body",
        "the body is empty; an inference message starts with a JSON header (byte 0)",
    ),
    (
        message(b""),
        "empty-body",
        "the body is empty; an inference message starts with a JSON header (byte 0)",
    ),
    (
        replace(request(ONE, payload=b"a"), body_length=None),
        "truncated",
        "the message ends 1 byte too early (byte 102)",
    ),
    (
        replace(request(ONE, payload=b"ab").headerless(), body_length=None, body=request(ONE, payload=b"abc").body),
        "trailing-bytes",
        f"the body goes on after the message has ended{UNDECLARED} (byte 103)",
    ),
]
"""A message, the code, and the words with the place; the status is 400."""

LIMITED: list[tuple[Message, str, int, str]] = [
    (
        request(ONE, payload=b"ab").under(max_header_bytes=20),
        "the header has 101 bytes or more, 20 are allowed (byte 0)",
        413,
        "max_header_bytes",
    ),
    (
        request(ONE, payload=b"ab").chunked().under(max_header_bytes=20),
        "the header has 101 bytes or more, 20 are allowed (byte 0)",
        413,
        "max_header_bytes",
    ),
    (
        replace(request(ONE, payload=b"ab"), header_length=None).under(max_header_bytes=20),
        f"the header has 103 bytes or more, 20 are allowed{UNDECLARED} (byte 0)",
        413,
        "max_header_bytes",
    ),
    (
        request(ONE, payload=b"ab").under(max_message_bytes=20),
        "the message has 103 bytes or more, 20 are allowed (byte 0)",
        413,
        "max_message_bytes",
    ),
    (
        request(ONE, payload=b"ab").chunked().headerless().under(max_header_bytes=20),
        "the header has 21 bytes or more, 20 are allowed (byte 0)",
        413,
        "max_header_bytes",
    ),
    (
        request(ONE, payload=b"ab").chunked().under(max_message_bytes=100),
        "the message has 101 bytes or more, 100 are allowed (byte 0)",
        413,
        "max_message_bytes",
    ),
    (
        request(ONE, payload=b"ab").under(max_tensor_bytes=1),
        "the tensor has 2 bytes, 1 are allowed ($.inputs[0].parameters.binary_data_size)",
        413,
        "max_tensor_bytes",
    ),
    (
        request(ONE, payload=b"ab").under(max_elements=1),
        "the shape has more than 1 elements ($.inputs[0].shape)",
        413,
        "max_elements",
    ),
    (
        request(ONE, payload=b"ab").under(max_rank=0),
        "the shape has 1 dimensions, 0 are allowed ($.inputs[0].shape)",
        413,
        "max_rank",
    ),
    (
        request(ONE, ONE, payload=b"ab").under(max_tensors=1),
        "inputs has 2 entries, 1 are allowed ($.inputs)",
        413,
        "max_tensors",
    ),
    (
        message({"inputs": [], "outputs": [{"name": "a"}, {"name": "b"}]}).under(max_tensors=1),
        "outputs has 2 entries, 1 are allowed ($.outputs)",
        413,
        "max_tensors",
    ),
    (
        message(b'{"inputs": [[[]]]}').under(max_json_depth=3),
        "the header nests deeper than 3 arrays and objects (byte 13)",
        400,
        "max_json_depth",
    ),
    (
        request(jsonic("BYTES", [2], ["a", "b"])).under(max_bytes_elements=1),
        "the BYTES tensor has 2 elements, 1 are allowed ($.inputs[0].data)",
        413,
        "max_bytes_elements",
    ),
    (
        request(jsonic("BYTES", [2], ["a", "bcd"])).under(max_element_bytes=2),
        "an element of the BYTES tensor has 3 bytes, 2 are allowed ($.inputs[0].data)",
        413,
        "max_element_bytes",
    ),
    (
        request(jsonic("INT16", [2], [1, 2])).under(max_json_tensor_bytes=3),
        "the values of the tensor take 4 bytes, 3 are allowed as JSON ($.inputs[0].data)",
        413,
        "max_json_tensor_bytes",
    ),
    (
        request(binary("BYTES", [2], 8), payload=bytes(8)).under(max_bytes_elements=1),
        "the BYTES tensor has 2 elements, 1 are allowed ($.inputs[0].parameters.binary_data_size)",
        413,
        "max_bytes_elements",
    ),
]
"""A message, the words with the place, the status, and the limit."""


@pytest.mark.parametrize(("source", "code", "words"), REFUSALS, ids=range(len(REFUSALS)))
def test_a_refusal_says_what_was_found_what_was_expected_and_where(source: Message, code: str, words: str) -> None:
    error = refuse(source)
    assert (error.code, str(error), error.status_hint) == (code, words, 400)


@pytest.mark.parametrize(("source", "words", "status", "limit"), LIMITED, ids=range(len(LIMITED)))
def test_a_limit_is_named_with_what_was_found(source: Message, words: str, status: int, limit: str) -> None:
    error = refuse(source)
    assert isinstance(error, LimitExceededError)
    assert (error.code, str(error), error.status_hint, error.limit) == ("limit-exceeded", words, status, limit)


@pytest.mark.parametrize("chunk_bytes", [1000, 1 << 20])
@pytest.mark.parametrize(
    ("tail", "words"), [(b"ab", "the header is not JSON: extra data"), (b"\xff", "the header is not UTF-8")]
)
def test_a_long_header_that_tensors_follow_undeclared(tail: bytes, words: str, chunk_bytes: int) -> None:
    """A header that is read in blocks; the cuts of a short one are all tried above."""
    source = replace(request(LONG, payload=tail), header_length=None)
    decoder = source.decoder()
    chunks = [source.body[start : start + chunk_bytes] for start in range(0, len(source.body), chunk_bytes)]
    for chunk in chunks[:-1]:
        decoder.feed(chunk)
        assert decoder.next_event() is NEED_DATA
    decoder.feed(chunks[-1])
    with pytest.raises(RemoteProtocolError) as refused:
        decoder.next_event()
    assert str(refused.value) == f"{words}{UNDECLARED} (byte {len(source.body) - len(tail)})"


@pytest.mark.parametrize(("length", "shown"), [(60, f"'{'n' * 60}'"), (61, f"'{'n' * 60}'...")])
def test_a_peers_words_are_shown_up_to_60_characters(length: int, shown: str) -> None:
    tensor = binary("UINT8", [1], 1, name="n" * length)
    assert str(refuse(request(tensor, tensor, payload=b"ab"))) == f"the name {shown} is used twice ($.inputs[1].name)"
    unknown = binary("n" * length, [1], 1)
    assert f"{shown} is not a datatype of the protocol" in str(refuse(request(unknown, payload=b"a")))


def test_tensors_behind_a_long_response_say_that_its_length_is_missing() -> None:
    undeclared = replace(response(LONG, payload=b"\0\0"), header_length=None)
    assert refuse(undeclared).message.endswith(UNDECLARED)


def test_a_long_header_that_is_itself_wrong_says_nothing_of_its_length() -> None:
    twice = response(LONG, LONG, payload=b"\0\0" * 2)
    error = refuse(replace(twice, header_length=None))
    assert error.code == ErrorCode.DUPLICATE_NAME
    assert UNDECLARED not in error.message


def test_an_input_in_memory_that_is_shared_is_told_that_it_is_not_read() -> None:
    region = {"shared_memory_region": "r", "shared_memory_byte_size": 4}
    error = refuse(request({"name": "x", "datatype": "INT8", "shape": [4], "parameters": region}))
    assert (error.code, error.path) == (ErrorCode.MISSING_MEMBER, "$.inputs[0]")
    assert error.message.endswith("; memory that is shared with a client is not read")


def test_a_long_text_that_is_no_data_of_a_tensor_is_refused() -> None:
    error = refuse(request(ONE | {"comment": "c" * (64 << 10)}, payload=b"\0\0").under(max_json_text_bytes=40 << 10))
    assert isinstance(error, LimitExceededError)
    assert (error.limit, error.path) == ("max_json_text_bytes", "$.inputs[0]")
