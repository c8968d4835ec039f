"""Inputs and requested outputs, beside those of tritonclient."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from streamcodec.tritonclient import http as ours


@pytest.fixture
def theirs() -> ModuleType:
    module: ModuleType = pytest.importorskip("tritonclient.http", reason="tritonclient is not here")
    return module


def _header(http: Any, inputs: list[Any], outputs: list[Any]) -> Any:  # noqa: ANN401 - a module of either package
    body, length = http.InferenceServerClient.generate_request_body(inputs, outputs)
    return json.loads(body[:length]), body[len(body) if length is None else length :]


def test_what_an_input_says_of_itself(theirs: ModuleType) -> None:
    for http in (ours, theirs):
        shape = [2, 3]
        tensor = http.InferInput("x", shape, "INT8")
        assert (tensor.name(), tensor.shape(), tensor.datatype()) == ("x", shape, "INT8")
        assert tensor.set_shape([3, 2]) is tensor
        assert tensor.shape() == [3, 2]
        assert http.InferRequestedOutput("y").name() == "y"


def test_an_input_has_the_values_that_it_was_given_last(theirs: ModuleType) -> None:
    array = np.arange(4, dtype=np.int8)
    for steps in ("bj", "jb", "bm", "mb", "jm", "mj", "", "m"):
        headers = []
        for http in (ours, theirs):
            tensor = http.InferInput("x", [4], "INT8")
            for step in steps:
                if step == "m":
                    assert tensor.set_shared_memory("region", 4, offset=2) is tensor
                else:
                    assert tensor.set_data_from_numpy(array, binary_data=step == "b") is tensor
            headers.append(_header(http, [tensor], []))
        assert headers[0] == headers[1], steps


def test_bf16(theirs: ModuleType) -> None:
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    headers = [
        _header(http, [http.InferInput("x", [2], "BF16").set_data_from_numpy(array)], []) for http in (ours, theirs)
    ]
    assert headers[0] == headers[1]
    for http in (ours, theirs):
        tensor = http.InferInput("x", [2], "BF16")
        with pytest.raises(http.InferenceServerException, match=r"got unexpected datatype FP32 .*ml_dtypes.bfloat16"):
            tensor.set_data_from_numpy(array.astype(np.float32))
        with pytest.raises(http.InferenceServerException, match="BF16 inputs must be sent as binary data over HTTP"):
            tensor.set_data_from_numpy(array, binary_data=False)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int8).reshape(2, 3).T,
        np.asfortranarray(np.arange(6.0).reshape(3, 2)),
        np.arange(6, dtype=np.int8)[::-2].reshape(3, 1),
        np.broadcast_to(np.float32(3), (3, 2)),
    ],
    ids=["transposed", "Fortran", "reversed", "broadcast"],
)
def test_arrays_that_are_not_contiguous(theirs: ModuleType, array: np.ndarray[Any, Any]) -> None:
    from streamcodec.tritonclient.utils import np_to_triton_dtype  # noqa: PLC0415 - for this test alone

    datatype = np_to_triton_dtype(array.dtype) or ""
    headers = [
        _header(http, [http.InferInput("x", array.shape, datatype).set_data_from_numpy(array)], [])
        for http in (ours, theirs)
    ]
    assert headers[0] == headers[1]


def test_an_output_in_shared_memory_and_back(theirs: ModuleType) -> None:
    headers = []
    for http in (ours, theirs):
        outputs = [http.InferRequestedOutput("y", binary_data=is_binary) for is_binary in (True, False)]
        for output in outputs:
            output.set_shared_memory("region", 8, offset=4)
        before = _header(http, [], outputs)
        for output in outputs:
            output.unset_shared_memory()
        headers.append((before, _header(http, [], outputs)))
    assert headers[0] == headers[1]
