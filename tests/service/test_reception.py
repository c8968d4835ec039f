"""Requests to endpoints that are not the service's: received, checked, and answered in the form they ask for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EncodedMessage,
    EndOfMessage,
    ErrorCode,
    HeaderReceived,
    LocalProtocolError,
    RemoteProtocolError,
    RequestedOutput,
    RequestHeader,
    Tensor,
    TensorReceived,
    Windows,
    encode_request,
    new_array,
)
from streamcodec.service.reception import ReceivedRequest, Reception
from tests.service.requests import answer, head

X = np.arange(6, dtype=np.float32)


def receive(message: EncodedMessage, fields: Iterable[tuple[str, str]] = (), **options: Any) -> ReceivedRequest:  # noqa: ANN401 - those of Reception
    """Bring a whole message in pieces of 50 bytes."""
    data = memoryview(b"".join(message.buffers))
    request = head("/double", "POST", [*message.headers, *fields], len(data))
    reception = Reception(request, place=new_array, **options)
    while True:
        event = reception.body.next_event()
        if event is NEED_TURN:
            reception.body.work()
        elif event is NEED_DATA:
            reception.body.feed(data[:50])
            data = data[50:]
        elif (received := reception.receive(event)) is not None:
            return received


@pytest.mark.parametrize("is_paced", [False, True])
def test_a_request_is_received_and_answered(is_paced: bool) -> None:
    received = receive(encode_request({"x": X}, request_id="7"), paced=is_paced)
    assert received.header.id == "7"
    assert np.array_equal(received.inputs["x"], X)
    answered = answer(received.reply({"y": received.inputs["x"]}, model_name="double", model_version="1"))
    assert answered.document["id"] == "7"
    assert (answered.document["model_name"], answered.document["model_version"]) == ("double", "1")
    assert np.array_equal(answered.outputs["y"], X)


def test_outputs_come_in_the_form_that_is_asked_for() -> None:
    asked = encode_request({"x": X}, outputs=[RequestedOutput(name="b", binary_data=False)])
    answered = answer(receive(asked).reply({"a": X, "b": [1, 2]}, model_name="m"))
    assert [(output["name"], output["data"]) for output in json.loads(answered.body)["outputs"]] == [("b", [1, 2])]


def test_an_output_that_there_is_not_is_refused() -> None:
    received = receive(encode_request({"x": X}, outputs=[RequestedOutput(name="z")]))
    with pytest.raises(RemoteProtocolError, match="z"):
        received.reply({"y": X}, model_name="m")


def test_an_output_that_has_no_form_is_an_error_of_the_endpoint() -> None:
    with pytest.raises(LocalProtocolError, match="complex64"):
        receive(encode_request({"x": X})).reply({"y": X.astype(np.complex64)}, model_name="m")


def test_the_answer_has_the_media_type_of_the_request() -> None:
    message = encode_request({"x": X}, parameters={"binary_data_output": True})
    media_type = "application/vnd.sagemaker-triton.binary+json"
    with_length = f"{media_type};json-header-size={message.header_length}"
    data = b"".join(message.buffers)
    reception = Reception(head("/x", "POST", [("Content-Type", with_length)], len(data)), place=new_array)
    reception.body.feed(data)
    received = None
    while received is None:
        received = reception.receive(reception.body.next_event())  # type: ignore[arg-type] # there is all of it
    assert received.media_type == media_type
    reply = received.reply({"y": X}, model_name="m")
    assert dict(reply.headers)["Content-Type"].startswith(f"{media_type};json-header-size=")


def test_a_check_refuses_before_there_is_memory() -> None:
    def check(_: RequestHeader) -> None:
        msg = "no"
        raise RemoteProtocolError(msg, code=ErrorCode.MODEL_MISMATCH)

    with pytest.raises(RemoteProtocolError, match="no"):
        receive(encode_request({"x": X}), check=check)


def test_a_head_may_be_reason_enough() -> None:
    with pytest.raises(RemoteProtocolError, match="Inference-Header-Content-Length"):
        Reception(head("/", "POST", [("Inference-Header-Content-Length", "x")], 10), place=new_array)


def test_windows_are_not_whole_tensors() -> None:
    message = encode_request({"x": X})
    data = b"".join(message.buffers)
    windows = Windows(max_window_bytes=8)
    reception = Reception(head("/", "POST", message.headers, len(data)), place=lambda _: windows)
    reception.body.feed(data)
    assert reception.receive(reception.body.next_event()) is None  # type: ignore[arg-type] # there is all of it
    with pytest.raises(LocalProtocolError, match="windows"):
        reception.receive(reception.body.next_event())  # type: ignore[arg-type] # as above


def bytes_of(reception: Reception) -> tuple[bool, int, int | None, int, int]:
    return (
        reception.has_header,
        reception.least_bytes,
        reception.memory_bytes,
        reception.taken_bytes,
        reception.held_bytes,
    )


@pytest.mark.parametrize("has_length", [True, False])
def test_it_tells_how_much_memory_it_takes(has_length: bool) -> None:
    names = np.array([b"a", b"bc"], object)
    message = encode_request([Tensor(name="x", array=X), Tensor(name="n", array=names)])
    data = b"".join(message.buffers)
    request = head("/double", "POST", message.headers, len(data) if has_length else None)
    reception = Reception(request, place=new_array)
    length, beside = message.header_length or 0, 2 * 8
    assert bytes_of(reception) == (False, len(data) if has_length else length, length, 0, 0)
    reception.body.feed(data)
    first = reception.body.next_event()
    assert isinstance(first, HeaderReceived)
    reception.receive(first)
    assert bytes_of(reception) == (
        True,
        len(data) if has_length else length,
        len(data) + beside,
        length + beside,
        length,
    )
    for _ in range(2):
        assert isinstance(reception.body.next_event(), TensorReceived)
    if not has_length:
        reception.body.receive_eof()
    end = reception.body.next_event()
    assert isinstance(end, EndOfMessage)
    received = reception.receive(end)
    assert reception.taken_bytes == len(data) + beside
    assert received is not None
    hold = object()
    assert received.hold is None
    assert received.holding(hold).hold is hold
    assert received.holding(hold).inputs is received.inputs


def test_of_a_request_without_lengths_nothing_is_known() -> None:
    assert bytes_of(Reception(head("/double", "POST", length=None), place=new_array)) == (False, 0, None, 0, 0)
