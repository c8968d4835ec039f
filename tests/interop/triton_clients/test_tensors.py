"""Tensors: all datatypes, in both forms, there and back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from tritonclient.http import InferRequestedOutput
from tritonclient.utils import InferenceServerException

from tests.interop.tensors import NOT_FINITE, PLAIN, datatype, elements, feature, fingerprint
from tests.interop.triton_clients.clients import (
    BYTES_ONLY,
    LARGE_BODY,
    Client,
    as_input,
    assert_same,
    floats,
    is_binary,
    seen,
)

Deviation = Callable[[str], None]
FORMS = ("binary", "json")
BOTH_WAYS = PLAIN | NOT_FINITE


def _mark(name: str, *forms: str) -> pytest.MarkDecorator:
    return pytest.mark.interop(feature=feature(name, *forms))


_ROUND_TRIPS = [
    pytest.param(name, there, back, id=f"{name}, {there} to {back}", marks=_mark(name, there, back))
    for name, there, back in product(BOTH_WAYS, FORMS, FORMS)
]


def _some(*names: str) -> list[object]:
    return [pytest.param(name, marks=_mark(name)) for name in names]


@pytest.mark.parametrize(("name", "there", "back"), _ROUND_TRIPS)
def test_tensor_comes_back_as_sent(client: Client, name: str, there: str, back: str) -> None:
    array = BOTH_WAYS[name]
    result = client.infer(
        "identity",
        [as_input("x", array, datatype(name), binary=there == "binary")],
        outputs=[InferRequestedOutput("x", binary_data=back == "binary")],
    )
    assert_same(result, "x", array)
    assert is_binary(result, "x") is (back == "binary")
    assert result.get_output("x")["datatype"] == datatype(name)


@pytest.mark.parametrize("name", _some(*BYTES_ONLY))
def test_tensor_without_json_form_comes_back_bit_by_bit(client: Client, name: str) -> None:
    result = client.infer("identity", [as_input("x", BYTES_ONLY[name], datatype(name))])
    assert_same(result, "x", BYTES_ONLY[name])


@pytest.mark.parametrize("name", _some("FP16", "BF16", "BYTES not in UTF-8"))
def test_tensor_without_json_form_asked_for_as_json_is_refused(client: Client, name: str) -> None:
    with pytest.raises(InferenceServerException, match="binary") as refused:
        client.infer(
            "identity",
            [as_input("x", BYTES_ONLY[name], datatype(name))],
            outputs=[InferRequestedOutput("x", binary_data=False)],
        )
    assert refused.value.status() == "400"


@pytest.mark.interop(feature="FP16")
def test_fp16_as_json_is_sent_and_refused_by_the_server(client: Client, deviation: Deviation) -> None:
    with pytest.raises(InferenceServerException) as refused:
        client.infer("identity", [as_input("x", BYTES_ONLY["FP16"], "FP16", binary=False)])
    assert refused.value.status() == "400"
    assert refused.value.message().startswith("FP16 has no JSON form; send it as binary data with binary_data_size")
    deviation("sends FP16 as JSON on request; the protocol has no such form; refused (400), as by Triton")


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("name", _some("BF16", "BYTES not in UTF-8"))
def test_client_itself_does_not_send_as_json(name: str) -> None:
    with pytest.raises(InferenceServerException, match="binary"):
        as_input("x", BYTES_ONLY[name], datatype(name), binary=False)


@pytest.mark.interop(feature="NaN payloads")
@pytest.mark.parametrize("name", [name for name in BYTES_ONLY if "payloads" in name])
def test_signalling_nan_reaches_the_model_unchanged(client: Client, name: str) -> None:
    result = client.infer("seen", [as_input("x", BYTES_ONLY[name], datatype(name))])
    assert seen(result)["inputs"]["x"] == fingerprint(BYTES_ONLY[name])


@pytest.mark.interop(feature="non-finite as JSON")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_null_that_the_server_writes_on_demand_is_read_as_nan(
    compressing_client: Client, dtype: type[np.floating[Any]]
) -> None:
    """Started with `--nonfinite null`, it writes the infinities so, too."""
    values = np.array([1.5, np.nan, np.inf, -np.inf], dtype=dtype)
    result = compressing_client.infer(
        "identity",
        [as_input("x", values, "FP32" if dtype is np.float32 else "FP64")],
        outputs=[InferRequestedOutput("x", binary_data=False)],
    )
    assert result.get_output("x")["data"] == [1.5, None, None, None]
    assert_same(result, "x", np.array([1.5, np.nan, np.nan, np.nan], dtype=dtype))


@pytest.mark.interop(feature="binary and JSON mixed")
def test_all_tensors_in_one_request_binary_and_json_mixed_both_ways(client: Client) -> None:
    """Binary tensors are found although JSON tensors and tensors of size 0 stand between them."""
    names = [*PLAIN, *BYTES_ONLY]
    there = [name not in PLAIN or index % 2 == 0 for index, name in enumerate(names)]
    back = [name not in PLAIN or index % 3 == 0 for index, name in enumerate(names)]
    arrays = PLAIN | BYTES_ONLY
    result = client.infer(
        "identity",
        [as_input(n, arrays[n], datatype(n), binary=binary) for n, binary in zip(names, there, strict=True)],
        outputs=[InferRequestedOutput(n, binary_data=binary) for n, binary in zip(names, back, strict=True)],
    )
    for name, binary in zip(names, back, strict=True):
        assert_same(result, name, arrays[name])
        assert is_binary(result, name) is binary


@pytest.mark.interop(feature="binary and JSON mixed")
def test_sink_counts_the_bytes_of_all_inputs(client: Client) -> None:
    inputs = [as_input("a", floats(16), "FP32"), as_input("b", elements(b"abc", b""), "BYTES", binary=False)]
    assert client.infer("sink", inputs).as_numpy("COUNT").tolist() == [16 * 4 + (4 + 3) + 4]


@pytest.mark.interop(feature="binary tensors")
def test_requests_at_once(client: Client) -> None:
    arrays = [np.full(50_000 + index, index, dtype=np.int32) for index in range(8)]
    results = client.infer_at_once([[as_input("x", array, "INT32")] for array in arrays])
    for array, result in zip(arrays, results, strict=True):
        assert_same(result, "x", array)


@pytest.mark.slow
@LARGE_BODY
@pytest.mark.interop(feature="large tensors")
def test_tensor_of_64_mib(client: Client) -> None:
    array = np.arange(1 << 24, dtype=np.float32)
    result = client.infer("identity", [as_input("x", array, "FP32")])
    assert np.array_equal(result.as_numpy("x"), array)
