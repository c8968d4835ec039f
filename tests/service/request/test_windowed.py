"""Models that take windows, and what memory a request is said to take, without sockets: the test pulls the events."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EncodedMessage,
    EndOfMessage,
    HeaderReceived,
    LimitExceededError,
    LocalProtocolError,
    RemoteProtocolError,
    Rows,
    Tensor,
    Windows,
    encode_request,
)
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.service import Inference, InferenceRequest, Model, ModelRegistry, Predict, Service, error_reply
from streamcodec.service.models.model import Outputs
from streamcodec.service.request.windows import check_end
from tests.service.requests import Answer, answer, ask, head, infer, service_of

TARGET = "/v2/models/m/infer"
WINDOW_BYTES = 64
X = np.arange(100, dtype=np.float32).reshape(50, 2)


def _service(predict: Predict, buffer_count: int = 1) -> Service:
    windows = Windows(max_window_bytes=WINDOW_BYTES, buffer_count=buffer_count)
    return Service(ModelRegistry.of([Model(name="m", predict=predict, windows=windows)]))


def _sums(request: InferenceRequest) -> Outputs:
    return {name: np.array([sum(float(w.sum()) for w in rows.windows)]) for name, rows in request.rows.items()}


def _message(*names: str) -> EncodedMessage:
    return encode_request([Tensor(name=name, array=X) for name in names], parameters={"binary_data_output": True})


def _begin(service: Service, message: EncodedMessage) -> tuple[Inference, bytes, Callable[[], HttpEvent]]:
    """Begin a request; return it, its body, and a way to pull its events out of that."""
    body = b"".join(message.buffers)
    inference = service.begin(head(TARGET, "POST", message.headers, len(body)), pause_after_header=True)
    assert isinstance(inference, Inference)
    view = memoryview(body)

    def pull() -> HttpEvent:
        nonlocal view
        while (event := inference.decoder.next_event()) is NEED_DATA:
            view = view[inference.decoder.feed(view[:50]) :]
        assert event is not NEED_TURN
        return event

    return inference, body, pull


def _ask(predict: Predict, *names: str) -> Answer:
    inference, _, pull = _begin(_service(predict), _message(*names))
    event = pull()
    assert isinstance(event, HeaderReceived)
    inference.receive(event)
    assert inference.is_windowed
    return answer(inference.run(pull))


def test_windows_are_pulled_input_after_input() -> None:
    outputs = _ask(_sums, "x", "y").outputs
    assert (outputs["x"].item(), outputs["y"].item()) == (X.sum(), X.sum())


def test_inputs_are_taken_in_their_order() -> None:
    def backwards(request: InferenceRequest) -> Outputs:
        return {"y": np.array([len(list(rows.windows)) for rows in reversed([*request.rows.values()])])}

    reply = _ask(backwards, "x", "y")
    assert reply.status == 500
    assert "it was not the turn of 'y'" in str(reply.cause)


def test_no_input_is_left_out() -> None:
    check_end(EndOfMessage(nbytes=1))
    with pytest.raises(LocalProtocolError, match="more input after"):
        check_end(NEED_DATA)  # type: ignore[arg-type] # whatever is not the end


def test_windows_need_somebody_who_waits_for_them() -> None:
    inference, _, pull = _begin(_service(_sums), _message("x"))
    with pytest.raises(LocalProtocolError, match="after the header"):
        inference.run(pull)
    inference.receive(pull())
    with pytest.raises(LocalProtocolError, match="a way to wait"):
        inference.run()


def test_an_async_model_is_awaited_by_its_owner() -> None:
    async def predict(request: InferenceRequest) -> Outputs:
        return dict(request.inputs)

    inference, _, _ = _begin(service_of(predict), _message("x"))
    with pytest.raises(LocalProtocolError, match=r"^the model is an async def: await streamcodec.server.call_model"):
        inference.run()


def test_bytes_do_not_come_in_windows() -> None:
    message = encode_request([Tensor(name="x", array=np.array([b"a"], object))])
    inference, _, pull = _begin(_service(_sums), message)
    with pytest.raises(RemoteProtocolError, match="which BYTES do not have") as caught:
        inference.receive(pull())
    assert answer(error_reply(caught.value)).status == 400


def test_a_row_larger_than_a_window_is_refused_with_the_header() -> None:
    rows = np.zeros((2, WINDOW_BYTES // 4 + 1), np.float32)
    message = encode_request([Tensor(name="x", array=X), Tensor(name="y", array=rows)])
    inference, _, pull = _begin(_service(_sums), message)
    with pytest.raises(LimitExceededError, match="a row of tensor 'y' has 68 bytes, a window at most 64") as caught:
        inference.receive(pull())
    assert answer(error_reply(caught.value)).status == 413


def test_a_refusal_in_the_middle_is_the_answer() -> None:
    def predict(_: InferenceRequest) -> Outputs:
        from streamcodec import ErrorCode  # noqa: PLC0415 - only here

        msg = "no"
        raise RemoteProtocolError(msg, code=ErrorCode.MODEL_MISMATCH)

    assert _ask(predict, "x").status == 400


def test_rows_are_collected_to_be_classified() -> None:
    def predict(_: InferenceRequest) -> Outputs:
        return {"y": Rows("FP32", (3,), iter([np.array([1, 5, 2], np.float32)]))}

    service = service_of(predict, classifies=True)
    from streamcodec import RequestedOutput  # noqa: PLC0415 - only here

    reply = ask(service, outputs=[RequestedOutput(name="y", binary_data=False, parameters={"classification": 1})])
    assert reply.document["outputs"][0]["data"] == ["5.000000:1"]


# What memory a request takes


def test_the_head_tells_where_the_length_of_the_body_is_declared() -> None:
    inference, body, pull = _begin(service_of(_sums), _message("x"))
    assert (inference.memory_bytes, inference.held_bytes, inference.resolved.is_whole) == (len(body), 0, True)
    found = [inference.has_header]
    inference.receive(pull())
    found.append(inference.has_header)
    assert found == [False, True]
    assert (inference.memory_bytes, inference.held_bytes) == (len(body), len(body))


def test_the_header_tells_where_it_is_not() -> None:
    message = _message("x")
    inference = service_of(_sums).begin(head(TARGET, "POST", message.headers, None), pause_after_header=True)
    assert isinstance(inference, Inference)
    assert (inference.header_bytes, inference.least_bytes) == (message.header_length, message.header_length)
    body = b"".join(message.buffers)
    assert inference.decoder.feed(body) == message.header_length
    assert inference.decoder.is_paused, "before memory is taken"
    event = inference.decoder.next_event()
    assert isinstance(event, HeaderReceived)
    inference.receive(event)
    assert (inference.memory_bytes, inference.held_bytes) == (len(body), message.header_length)


def test_a_header_of_unknown_length_may_be_as_long_as_it_may_be() -> None:
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}]}'
    service = service_of(_sums)
    inference = service.begin(head(TARGET, "POST", [], None), pause_after_header=True)
    assert isinstance(inference, Inference)
    assert (inference.header_bytes, inference.least_bytes, inference.resolved.is_whole) == (None, 0, False)
    inference.decoder.feed(body)
    inference.decoder.receive_eof()
    event = inference.decoder.next_event()
    assert isinstance(event, HeaderReceived)
    inference.receive(event)
    taken = len(body) + 8 + 8
    assert (inference.memory_bytes, inference.held_bytes, inference.resolved.is_whole) == (taken, taken, False)


@pytest.mark.skipif(sys.maxsize < 1 << 32, reason="counts objects of a machine of 64 bits")
@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "chunked"])
def test_what_is_made_of_a_body_counts_besides(is_declared: bool) -> None:
    wide, texts = np.arange(1000, dtype=np.int64), np.array([b"ab"] * 1000, object)
    message = encode_request(
        [
            Tensor(name="binary numbers", array=wide),
            Tensor(name="numbers", array=wide, is_binary=False),
            Tensor(name="binary texts", array=texts),
            Tensor(name="texts", array=texts, is_binary=False),
        ]
    )
    body = b"".join(message.buffers)
    request = head(TARGET, "POST", message.headers, len(body) if is_declared else None)
    inference = service_of(_sums).begin(request, pause_after_header=True)
    assert isinstance(inference, Inference)
    inference.decoder.feed(body)
    event = inference.decoder.next_event()
    assert isinstance(event, HeaderReceived)
    inference.receive(event)
    array, copy, offsets, objects = wide.nbytes, wide.nbytes, 8 * 1000, (8 + 41) * 1000
    later = (8 + 48 + 2) * 1000
    assert inference.memory_bytes == len(body) + array + copy + offsets + objects + later
    binary = len(body) - (message.header_length or 0)
    assert inference.held_bytes == inference.memory_bytes - later - (0 if is_declared else binary + offsets)


def test_quick_is_what_is_small_and_says_so() -> None:
    for is_inline in (True, False):
        model = Model(name="m", predict=_sums, is_inline=is_inline)
        inference, _, _ = _begin(Service(ModelRegistry.of([model])), _message("x"))
        assert inference.is_inline is is_inline


@pytest.mark.parametrize("buffer_count", [1, 2])
def test_windows_count_and_what_passes_through_them_does_not(buffer_count: int) -> None:
    inference, body, pull = _begin(_service(_sums, buffer_count), _message("x"))
    length = len(body) - X.nbytes
    assert inference.header_bytes == length
    inference.receive(pull())
    assert inference.memory_bytes == length + buffer_count * WINDOW_BYTES


@pytest.mark.parametrize("buffer_count", [1, 2])
def test_inputs_that_come_one_after_the_other_count_as_many_as_there_are_at_once(buffer_count: int) -> None:
    names = [f"x{number}" for number in range(20)]
    inference, body, pull = _begin(_service(_sums, buffer_count), _message(*names))
    inference.receive(pull())
    length = len(body) - len(names) * X.nbytes
    assert inference.held_bytes == length
    assert inference.memory_bytes == length + (1 + buffer_count) * buffer_count * WINDOW_BYTES


def test_a_model_that_takes_windows_and_a_header_of_unknown_length() -> None:
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2]}]}'
    inference = _service(_sums).begin(head(TARGET, "POST", [], len(body)))
    assert isinstance(inference, Inference)
    assert inference.header_bytes == len(body)


def test_an_answer_needs_no_windows() -> None:
    assert infer(service_of(lambda request: dict(request.inputs)), TARGET, _message("x")).status == 200


@pytest.mark.parametrize("names", [["x"], ["x", "y"], ["x", "y", "z"]])
def test_the_end_of_the_message_comes_behind_the_last_input_however_many_there_are(names: list[str]) -> None:
    seen: list[object] = []

    def predict(request: InferenceRequest) -> Outputs:
        seen.append(dict(request.inputs))
        return _sums(request)

    assert set(_ask(predict, *names).outputs) == set(names)
    assert seen == [{}]
