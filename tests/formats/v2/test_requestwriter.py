"""The request writer: whatever has been written before, a request is as the encoder writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    Elements,
    EncodedMessage,
    LocalProtocolError,
    RequestedOutput,
    Rows,
    Tensor,
    encode_request,
)
from streamcodec.formats.v2.requestwriter import RequestWriter


class Name(str):
    """A text of another class."""

    __slots__ = ()


BF16 = np.zeros((2, 3), DATATYPES["BF16"].dtype)

ARRAYS: list[Any] = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.arange(6, dtype=">f4").reshape(2, 3),
    np.arange(6, dtype=np.float32).reshape(3, 2),
    np.arange(6, dtype=np.float32).reshape(3, 2).T,
    np.arange(6, dtype=np.float32)[::2],
    np.arange(6, dtype=np.uint16).reshape(2, 3),
    BF16,
    np.zeros((0, 3), np.int8),
    np.array(True),
    np.float32(1.5),
    np.array([b"a", b"bc"], object),
    np.array(["a", "bc"]),
    Elements(np.array([b"a"], object)),
    Rows("FP32", (2, 2), [np.ones((1, 2), np.float32)] * 2),
    np.ma.masked_array(np.ones((2, 3), np.float32), np.eye(2, 3) == 1),
    np.zeros(3, np.complex64),
]

NAMES: list[Any] = ["x", "y", 'é"\n', Name("x"), "", "\ud800", 1]

OUTPUTS: list[Any] = [
    RequestedOutput(name="y"),
    RequestedOutput(name="y", binary_data=False),
    RequestedOutput(name="y", binary_data=1),  # type: ignore[arg-type]  # which equals True
    RequestedOutput(name="y", binary_data=None),
    RequestedOutput(name="y", parameters={"classification": 3}),
    RequestedOutput(name=Name("y")),
]

USUAL: dict[str, Any] = {
    "inputs": {"x": ARRAYS[0]},
    "outputs": [RequestedOutput(name="y")],
    "request_id": "7",
    "parameters": {},
    "is_binary": True,
}

OTHERS: dict[str, list[Any]] = {
    "inputs": [
        {},
        *({"x": array} for array in ARRAYS),
        *({name: ARRAYS[0]} for name in NAMES),
        {"x": ARRAYS[0], "y": ARRAYS[1]},
        {"y": ARRAYS[1], "x": ARRAYS[0]},
    ],
    "outputs": [None, [], *([output] for output in OUTPUTS), OUTPUTS[:2], [OUTPUTS[0], OUTPUTS[4]]],
    "request_id": ["", Name("7"), "8", 7, []],
    "parameters": [{"binary": True}, {"binary": 1}],
    "is_binary": [False, 1],
}


def _outcome(call: Callable[[], EncodedMessage]) -> object:
    try:
        message = call()
    except LocalProtocolError as error:
        return type(error), str(error)
    return b"".join(message.buffers), message.header_length, message.body_length


@pytest.mark.parametrize("changed", OTHERS)
def test_each_request_is_as_the_encoder_writes_it_whatever_came_before(changed: str) -> None:
    requests = [USUAL, *(USUAL | {changed: other} for other in OTHERS[changed])]
    for first in requests:
        writer = RequestWriter()
        for request in [first, first, *requests, *requests]:
            inputs, is_binary = request["inputs"], request["is_binary"]
            tensors = [Tensor(name=name, array=array, is_binary=is_binary) for name, array in inputs.items()]
            encoded = partial(
                encode_request,
                tensors,
                outputs=request["outputs"],
                request_id=request["request_id"],
                parameters={**request["parameters"], "binary_data_output": is_binary},
            )
            assert _outcome(partial(writer.encode, **request)) == _outcome(encoded)


def _write(writer: RequestWriter, inputs: Mapping[str, Any], request_id: str = "7") -> EncodedMessage:
    return writer.encode(inputs, outputs=None, request_id=request_id, parameters={}, is_binary=True)


def test_the_header_of_a_request_that_comes_again_is_kept() -> None:
    writer, arrays = RequestWriter(), [np.full(2, number, "<f4") for number in range(4)]
    messages = [_write(writer, {"x": array}) for array in arrays]
    assert messages[1].parts[0] is messages[2].parts[0] is messages[3].parts[0]
    for array, message in zip(arrays, messages, strict=True):
        assert message.parts[1:] == (array.data.cast("B"),)


@pytest.mark.parametrize("inputs", [{"x": np.zeros(2)}, {"x" * 5000: np.zeros(2)}])
def test_what_is_kept_is_bounded(inputs: Mapping[str, Any]) -> None:
    writer = RequestWriter()
    for number in range(2000):
        for _ in range(2):
            _write(writer, inputs, str(number))
    assert len(writer) <= 256 * (len(next(iter(inputs))) < 5000)
