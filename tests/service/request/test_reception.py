"""Requests to endpoints that are not the service's: received, checked, and answered in the form they ask for."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
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
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    RequestedOutput,
    RequestHeader,
    Rows,
    Tensor,
    TensorReceived,
    Windows,
    encode_request,
    encode_response,
    new_array,
)
from streamcodec.engine.limits import DEFAULT_LIMITS
from streamcodec.service.request.reception import ReceivedRequest, Reception
from tests.service.requests import answer, head

X = np.arange(6, dtype=np.float32)


class Name(str):
    """A name that is not only a text: a member of an enumeration, for example."""

    __slots__ = ()


def receive(message: EncodedMessage, fields: Iterable[tuple[str, str]] = (), **options: Any) -> ReceivedRequest:  # noqa: ANN401 - those of Reception
    """Bring a whole message in pieces of 50 bytes."""
    data = memoryview(b"".join(message.buffers))
    request = head("/double", "POST", [*message.headers, *fields], len(data))
    reception = Reception(request, place=new_array, **options)
    body = reception.begin()
    while True:
        event = body.next_event()
        if event is NEED_TURN:
            body.work()
        elif event is NEED_DATA and not data:
            body.receive_eof()
        elif event is NEED_DATA:
            body.feed(data[:50])
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


ANSWERS: list[Mapping[str, Any]] = [
    {"y": X},
    {"y": X, "z": X.astype(np.int64).reshape(2, 3)},
    {"y": X[::2]},
    {"y": X.astype(">f4")},
    {"y": np.array([b"a", b"bc"], np.object_)},
    {"y": np.zeros((0, 4), np.int8)},
    {"y": [[1, 2], [3, 4]]},
    {"y": np.float32(1.5)},
    {"y": np.array([np.nan, np.inf], np.float32)},
    {},
]


@pytest.mark.parametrize("number", range(len(ANSWERS)))
@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize("request_id", [None, "7", 'a"b'])
@pytest.mark.parametrize("version", [None, "1", "2"])
def test_an_answer_has_the_bytes_of_the_encoder(
    number: int, request_id: str | None, version: str | None, *, is_binary: bool
) -> None:
    outputs = ANSWERS[number]
    parameters = {"binary_data_output": is_binary}
    received = receive(encode_request({"x": X}, request_id=request_id, parameters=parameters))
    tensors = [Tensor(name=name, array=np.asarray(value), is_binary=is_binary) for name, value in outputs.items()]
    for name in ("m", 'n"', "m"):  # what was written for one name and version is not written for others
        message = encode_response(tensors, model_name=name, model_version=version, request_id=request_id)
        reply = received.reply(outputs, model_name=name, model_version=version)
        assert b"".join(part for part in reply.buffers if not isinstance(part, Rows)) == b"".join(message.buffers)
        assert (reply.status, [*reply.headers], reply.body_length) == (200, message.headers, message.body_length)


@pytest.mark.parametrize(("name", "version"), [(Name("m"), "1"), ("m", Name("1")), (Name("m"), None)])
def test_names_of_other_types_are_written_each_time(name: str, version: str | None) -> None:
    received = receive(encode_request({"x": X}))
    written = answer(received.reply({"y": X}, model_name=name, model_version=version)).document
    assert (written["model_name"], written.get("model_version")) == (name, version)


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
    body = reception.begin()
    body.feed(data)
    received = None
    while received is None:
        received = reception.receive(body.next_event())  # type: ignore[arg-type] # there is all of it
    assert received.media_type == media_type
    reply = received.holding(object()).reply({"y": X}, model_name="m")
    assert dict(reply.headers)["Content-Type"].startswith(f"{media_type};json-header-size=")


def test_a_check_refuses_before_there_is_memory() -> None:
    def check(_: RequestHeader) -> None:
        msg = "no"
        raise RemoteProtocolError(msg, code=ErrorCode.MODEL_MISMATCH)

    with pytest.raises(RemoteProtocolError, match="no"):
        receive(encode_request({"x": X}), check=check)


def test_limits_refuse_what_is_larger() -> None:
    assert receive(encode_request({"x": X}), limits=Limits(max_tensor_bytes=X.nbytes)).header.tensors[0].name == "x"
    with pytest.raises(RemoteProtocolError, match="23") as caught:
        receive(encode_request({"x": X}), limits=Limits(max_tensor_bytes=X.nbytes - 1))
    assert caught.value.status_hint == 413


def test_what_the_framework_has_decompressed_is_not_decompressed_again() -> None:
    received = receive(encode_request({"x": X}), [("Content-Encoding", "gzip")], is_decoded=True)
    assert np.array_equal(received.inputs["x"], X)


def test_a_header_of_which_no_length_is_told_ends_where_its_json_does() -> None:
    text, *tensors = encode_request({"x": X}).parts
    message = EncodedMessage(parts=(bytes(text).rstrip(), *tensors), header_length=None, body_length=0)  # type: ignore[arg-type] # no Rows
    assert np.array_equal(receive(message).inputs["x"], X)


@pytest.mark.parametrize("is_paced", [False, True])
def test_a_paced_body_lets_others_have_their_turn(is_paced: bool) -> None:
    """While its header is read, and while it is decompressed."""
    data = b"".join(encode_request({f"t{index}": X[:0] for index in range(500)}).buffers)
    for body_bytes, fields in ((data, []), (gzip.compress(data), [("Content-Encoding", "gzip")])):
        length = ("Inference-Header-Content-Length", str(len(data)))
        request = head("/x", "POST", [length, *fields], len(body_bytes))
        reception = Reception(request, place=new_array, paced=is_paced)
        body, turns, received = reception.begin(), 0, None
        body.feed(body_bytes)
        while received is None:
            event = body.next_event()
            if event is NEED_TURN:
                turns += 1
                body.work()
            else:
                received = reception.receive(event)  # type: ignore[arg-type] # there is all of it
        assert (turns > 0) is is_paced


def test_a_head_may_be_reason_enough() -> None:
    with pytest.raises(RemoteProtocolError, match="Inference-Header-Content-Length"):
        Reception(head("/", "POST", [("Inference-Header-Content-Length", "x")], 10), place=new_array)


def test_windows_are_not_whole_tensors() -> None:
    message = encode_request({"x": X})
    data = b"".join(message.buffers)
    windows = Windows(max_window_bytes=8)
    reception = Reception(head("/", "POST", message.headers, len(data)), place=lambda _: windows)
    body = reception.begin()
    body.feed(data)
    assert reception.receive(body.next_event()) is None  # type: ignore[arg-type] # there is all of it
    with pytest.raises(LocalProtocolError, match="windows"):
        reception.receive(body.next_event())  # type: ignore[arg-type] # as above


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
    body = reception.begin()
    length, beside, objects = message.header_length or 0, 2 * 8, 2 * 8 + 3 + 48
    assert bytes_of(reception) == (False, len(data) if has_length else length, length, 0, 0)
    body.feed(data)
    first = body.next_event()
    assert isinstance(first, HeaderReceived)
    reception.receive(first)
    assert bytes_of(reception) == (
        True,
        len(data) if has_length else length,
        len(data) + beside + objects,
        length + beside,
        length,
    )
    for _ in range(2):
        assert isinstance(body.next_event(), TensorReceived)
    if not has_length:
        body.receive_eof()
    end = body.next_event()
    assert isinstance(end, EndOfMessage)
    received = reception.receive(end)
    assert reception.taken_bytes == len(data) + beside
    assert received is not None
    hold = object()
    assert received.hold is None
    assert received.holding(hold).hold is hold
    assert received.holding(hold).inputs is received.inputs


def test_of_a_request_without_lengths_nothing_is_known() -> None:
    reception = Reception(head("/double", "POST", length=None), place=new_array)
    reception.begin()
    assert bytes_of(reception) == (False, 0, None, 0, 0)
    assert reception.whole_bytes is None


def whole_of(
    message: EncodedMessage | bytes, *, limits: Limits = DEFAULT_LIMITS, **fields: str
) -> tuple[int | None, ReceivedRequest | None]:
    """Return whether a body may be received at once, and what is received."""
    data = message if isinstance(message, bytes) else b"".join(message.buffers)
    given = [("Inference-Header-Content-Length", "10")] if isinstance(message, bytes) else message.headers
    others = [(name.replace("_", "-"), value) for name, value in fields.items()]
    request = head("/x", "POST", [*given, *others], len(data))
    reception = Reception(request, place=new_array, limits=limits)
    return reception.whole_bytes, reception.receive_whole(data, "held")


def test_a_whole_body_is_received_as_its_pieces_are() -> None:
    message = encode_request({"x": X, "empty": X[:0].reshape(2, 0), "z": X.reshape(2, 3)[:1]}, request_id="7")
    nbytes, received = whole_of(message)
    assert nbytes == message.body_length
    assert received is not None
    other = receive(message)
    assert (received.header.id, received.hold, received.media_type) == ("7", "held", other.media_type)
    assert [*received.inputs] == [*other.inputs]
    for name, array in other.inputs.items():
        found = received.inputs[name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert np.array_equal(found, array)
        assert found.flags.writeable
        assert not found.size or found.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    "message",
    [
        encode_request({"x": np.array([b"a", b"bc"], object)}),
        encode_request({"x": np.array([True])}),
        encode_request([Tensor(name="x", array=X), Tensor(name="y", array=X, is_binary=False)]),
        EncodedMessage(parts=(*encode_request({"x": X}).parts, b"1"), header_length=128, body_length=153),
        b"not JSON at all",
    ],
)
def test_what_is_not_plain_or_wrong_is_left_to_the_other_way(message: EncodedMessage | bytes) -> None:
    nbytes, received = whole_of(message)
    assert nbytes is not None
    assert received is None


def test_a_head_says_what_may_be_received_at_once() -> None:
    message = encode_request({"x": X})
    length, nbytes = message.header_length or 0, message.body_length
    assert whole_of(message, limits=Limits(max_header_bytes=length, max_message_bytes=nbytes))[0] == nbytes
    assert whole_of(message, limits=Limits(max_header_bytes=length - 1))[0] is None
    assert whole_of(message, limits=Limits(max_message_bytes=nbytes - 1))[0] is None
    assert whole_of(message, Content_Encoding="gzip")[0] is None
    assert whole_of(encode_request({"x": np.zeros(64 << 8, np.float32)}))[0] is not None
    assert whole_of(encode_request({"x": np.zeros(70 << 8, np.float32)}))[0] is None
    assert whole_of(encode_request({"x" * 5000: X}))[0] is None
    assert whole_of(encode_request([Tensor(name="x", array=X, is_binary=False)]))[0] is None
    assert whole_of(b"short")[0] is None


def test_a_check_sees_a_whole_body_once_and_only_if_nothing_else_is_wrong() -> None:
    seen: list[RequestHeader] = []
    message = encode_request({"x": X})
    data = b"".join(message.buffers)
    reception = Reception(head("/", "POST", message.headers, len(data)), place=new_array, check=seen.append)
    assert reception.receive_whole(data[:-1], None) is None
    assert not seen
    assert reception.receive_whole(data, None) is not None
    assert len(seen) == 1
