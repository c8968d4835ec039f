"""What a client of a language, written in the first way that comes to mind, gets wrong: we read it, or refuse it.

Each of these is a surprise that waits for users of these languages, and each leads to something better: binary data.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.interop.seed_clients.jobs import Caller, ClientError, as_input, assert_same, floats
from tests.interop.seed_clients.systems import CHROMIUM, GO, JAVASCRIPT, PYTHON, only
from tests.interop.tensors import NOT_FINITE, PLAIN, elements

Deviation = Callable[[str], None]
_IN_BINARY = {"parameters": {"binary_data_output": True}}
_OF_FLOATS = pytest.mark.parametrize("name", NOT_FINITE)


@only(PYTHON)
@pytest.mark.interop(feature="64-bit extremes")
def test_type_that_is_not_in_the_table_of_the_page_is_called_fp32(client: Caller, deviation: Deviation) -> None:
    """numpy has two types of 64-bit integers, and the page of KServe knows one."""
    answer = client.send([as_input("x", np.array([1, 2])) | {"dtype": "longlong"}])
    assert answer.status == 400
    assert "binary_data_size is 16, datatype and shape need 8" in answer.error
    deviation(
        "declares dtypes that are not in its table (`numpy.longlong`) as FP32; refused (400) if the size does not fit"
    )


@only(PYTHON)
@pytest.mark.interop(feature="binary tensors")
def test_big_endian_array_is_sent_as_it_lies_in_memory(client: Caller, deviation: Deviation) -> None:
    answer = client.send([as_input("x", np.array([1, 2])) | {"dtype": ">f4"}], members=_IN_BINARY)
    assert_same(answer.outputs, {"x": np.array([1, 2], dtype="<f4").byteswap()})
    deviation(
        "sends big-endian arrays without swapping their bytes; this cannot be detected, so the model gets wrong numbers"
    )


@only(PYTHON)
@pytest.mark.interop(feature="non-finite as JSON")
@_OF_FLOATS
def test_null_that_the_server_writes_on_demand_is_read_as_nan(compressing_client: Caller, name: str) -> None:
    """Started with `--nonfinite null`, it writes the infinities so, too."""
    array = NOT_FINITE[name]
    assert_same(compressing_client.infer({"x": array}).outputs, {"x": np.full_like(array, np.nan)})


@only(*JAVASCRIPT, GO)
@pytest.mark.interop(feature="non-finite as JSON")
@_OF_FLOATS
def test_null_that_the_server_writes_on_demand_is_read_as_zero(
    compressing_client: Caller, name: str, deviation: Deviation
) -> None:
    answer = compressing_client.infer({"x": NOT_FINITE[name]})
    assert answer.document["outputs"][0]["data"] == [None] * 3
    assert_same(answer.outputs, {"x": np.zeros_like(NOT_FINITE[name])})
    deviation("an array of floats made from `null`s holds zeros; request binary data if NaN is possible")


@only(*JAVASCRIPT, GO)
@pytest.mark.interop(feature="non-finite as JSON")
@_OF_FLOATS
def test_literal_nan_in_an_answer_cannot_be_read(client: Caller, name: str, deviation: Deviation) -> None:
    with pytest.raises(ClientError, match=r"not valid JSON|invalid character 'N|invalid character 'I"):
        client.infer({"x": NOT_FINITE[name]})
    deviation("cannot read the literal NaN of an answer; request binary data, or serve with `--nonfinite null`")


@only(*JAVASCRIPT)
@pytest.mark.interop(feature="non-finite as JSON")
@_OF_FLOATS
def test_nan_is_written_as_null_and_refused(client: Caller, name: str, deviation: Deviation) -> None:
    answer = client.infer({"x": NOT_FINITE[name]}, as_json="x")
    assert answer.status == 400
    assert answer.error == "a value is not a number ($.inputs[0].data[0])"
    deviation("writes NaN and the infinities as `null`; refused (400), because null is not a number")


@only(GO)
@pytest.mark.interop(feature="non-finite as JSON")
@_OF_FLOATS
def test_nan_is_not_written(client: Caller, name: str, deviation: Deviation) -> None:
    with pytest.raises(ClientError, match="json: unsupported value"):
        client.infer({"x": NOT_FINITE[name]}, as_json="x")
    deviation("cannot write NaN and infinities as JSON; nothing is sent")


@only(*JAVASCRIPT)
@pytest.mark.interop(feature="64-bit extremes")
@pytest.mark.parametrize("name", ["INT64", "UINT64"])
def test_64_bit_integers_are_not_written_as_json(client: Caller, name: str, deviation: Deviation) -> None:
    with pytest.raises(ClientError, match="BigInt"):
        client.infer({"x": PLAIN[name]}, as_json="x")
    deviation("does not write 64-bit integers as JSON (`JSON.stringify` takes no BigInt); nothing is sent")


@only(*JAVASCRIPT)
@pytest.mark.interop(feature="64-bit extremes")
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_64_bit_integers_of_a_json_answer_are_rounded(
    client: Caller, dtype: type[np.int64 | np.uint64], deviation: Deviation
) -> None:
    answer = client.infer({"x": np.array([2**53 - 1, 2**53 + 1], dtype=dtype)})
    assert_same(answer.outputs, {"x": np.array([2**53 - 1, 2**53], dtype=dtype)})
    deviation("rounds integers beyond 2^53 when it reads JSON; our JSON is exact; request binary data")


@only(*JAVASCRIPT)
@pytest.mark.interop(feature="JSON tensors")
@pytest.mark.parametrize("name", ["FP32", "FP64"])
@pytest.mark.parametrize("back", [True, False], ids=["binary", "json"])
def test_minus_zero_is_written_as_zero_and_all_other_floats_exactly(
    client: Caller, name: str, back: bool, deviation: Deviation
) -> None:
    array = PLAIN[name]
    answer = client.infer({"x": array}, as_json="x", binary_output=back)
    assert np.signbit(array.flat[0])
    assert_same(answer.outputs, {"x": array + 0})
    deviation("writes -0 as `0`; the sign is lost before it is sent")


@only(GO)
@pytest.mark.interop(feature="JSON tensors")
@pytest.mark.parametrize("name", ["FP32", "FP64"])
@pytest.mark.parametrize("back", [True, False], ids=["binary", "json"])
def test_minus_zero_that_looks_like_an_integer_keeps_its_sign(client: Caller, name: str, back: bool) -> None:
    """Go writes it as `-0`, which is the integer 0 to the JSON parsers of Python."""
    array = PLAIN[name]
    assert np.signbit(array.flat[0])
    assert_same(client.infer({"x": array}, as_json="x", binary_output=back).outputs, {"x": array})


@only(GO)
@pytest.mark.interop(feature="JSON tensors")
def test_bytes_of_go_are_written_as_base64_and_refused(client: Caller, deviation: Deviation) -> None:
    answer = client.infer({"x": PLAIN["UINT8"]}, as_json="x")
    assert answer.status == 400
    assert answer.error == "data is not an array ($.inputs[0].data)"
    deviation("writes UINT8 (`[]uint8`) as a Base64 text; refused (400)")


@only(GO)
@pytest.mark.interop(feature="BYTES hostile to text")
def test_bytes_that_are_not_utf_8_are_replaced_when_written_as_json(client: Caller, deviation: Deviation) -> None:
    answer = client.infer({"x": elements(b"a\xff")}, as_json="x")
    assert_same(answer.outputs, {"x": elements("a\N{REPLACEMENT CHARACTER}".encode())})
    deviation("writes bytes that are not UTF-8 as U+FFFD in JSON, without an error; they arrive as they were sent")


@only(GO)
@pytest.mark.interop(feature="scalars")
def test_shape_that_nobody_made_is_written_as_null_and_refused(client: Caller, deviation: Deviation) -> None:
    """A nil slice is as good as an empty one in Go, and the shape of a scalar is empty."""
    answer = client.send([as_input("x", floats(1)) | {"shape": None}])
    assert answer.status == 400
    assert answer.error == "the member shape is missing ($.inputs[0].shape)"
    deviation("writes a shape that is a nil slice as `null`; refused (400); a scalar needs `[]int{}`")


@only(*JAVASCRIPT)
@pytest.mark.interop(feature="ids and parameters")
def test_integer_parameter_beyond_2_53_is_rounded_before_it_is_sent(client: Caller, deviation: Deviation) -> None:
    answer = client.infer({"x": floats()}, model="seen", members={"parameters": {"count": 2**53 + 1}})
    assert answer.seen["parameters"]["count"] == 2**53
    deviation("has no exact integers above 2^53 in its JSON; a parameter arrives rounded, as it was sent")


@only(CHROMIUM)
@pytest.mark.interop(feature="large tensors")
def test_page_cannot_send_a_body_in_chunks(client: Caller, deviation: Deviation) -> None:
    with pytest.raises(ClientError, match="Failed to fetch"):
        client.infer({"x": floats()}, chunk_bytes=10)
    assert_same(client.infer({"x": floats()}).outputs, {"x": floats()})
    deviation("streams request bodies over HTTP/2 and later only, so a page sends a tensor whole; nothing")
