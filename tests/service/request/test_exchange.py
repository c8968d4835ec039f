"""One request whoever speaks HTTP: every step of an exchange, with a budget so small that memory comes first."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    ErrorCode,
    LocalProtocolError,
    MessageError,
    RemoteProtocolError,
    TensorReceived,
    Windows,
    encode_request,
)
from streamcodec.http import RequestHead
from streamcodec.http.bodies.fed import FedBody
from streamcodec.service import (
    ANY_SIZE,
    Inference,
    InferenceRequest,
    Model,
    ModelRegistry,
    Reply,
    Service,
    TensorMetadata,
)
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.models.model import Outputs
from streamcodec.service.request.exchange import Exchange, ExchangeStep
from tests.service.requests import answer, head

KIB = 1 << 10
X = np.arange(64 * KIB, dtype=np.uint8)
RECEIVE, WAIT, CALL, ANSWER = ExchangeStep.RECEIVE, ExchangeStep.WAIT, ExchangeStep.CALL, ExchangeStep.ANSWER


def _echo(request: InferenceRequest) -> Outputs:
    return {"x": request.inputs["x"]}


def service_of(
    windows: Windows | None = None,
    *,
    predict: Callable[[InferenceRequest], Any] = _echo,
    **options: Any,  # noqa: ANN401 - those of Model
) -> Service:
    model = Model(name="m", predict=predict, windows=windows, **options)
    return Service(ModelRegistry.of([model]), max_pool_bytes=0)


class Owner:
    """Does what an exchange says, and notes it."""

    def __init__(self, service: Service, budget: Budget | None = None) -> None:
        self.service = service
        self.budget = budget or Budget(1 << 30)
        self.exchange = Exchange(service, Reservation(self.budget))
        self.body: FedBody | None = None
        self.steps: list[ExchangeStep] = []

    def begin(
        self,
        *,
        array: np.ndarray[Any, Any] = X,
        length: int | None = -1,
        **options: Any,  # noqa: ANN401 - those of encode_request
    ) -> ExchangeStep | None:
        """Begin with a head, and keep the body for `bring`."""
        message = encode_request({"x": array}, **options)
        self.data = memoryview(b"".join(message.buffers))
        length = len(self.data) if length == -1 else length
        return self.take(head("/v2/models/m/infer", "POST", message.headers, length))

    def take(self, request: RequestHead) -> ExchangeStep | None:
        """Begin with this head."""
        self.head = request
        return self.do(lambda: self.exchange.begin(request))

    def do(self, act: Callable[[], ExchangeStep | None]) -> ExchangeStep | None:
        """Have the exchange do something; what it refuses it answers."""
        try:
            step = act()
        except MessageError as error:
            step = self.exchange.fail(error)
        if step is RECEIVE:
            self.body = FedBody(self.head, self.exchange.decoder, self.service.limits, paced=True)
            self.exchange.arrival = self.body
        if step is not None:
            self.steps.append(step)
        return step

    def bring(self, nbytes: int = 1 << 30) -> ExchangeStep | None:
        """Bring so much of the body, at most as far as the next step."""
        body = self.body
        assert body is not None
        while True:
            if self.exchange.is_held_up and (step := self.do(self.exchange.go_on)):
                return step
            try:
                event = body.next_event()
            except MessageError as error:
                return self.do(partial(self.exchange.fail, error))
            if event is NEED_TURN:
                body.work()
            elif event is NEED_DATA and nbytes and self.data:
                body.feed(self.data[: min(nbytes, 4 * KIB)])
                self.data = self.data[min(nbytes, 4 * KIB) :]
                nbytes -= min(nbytes, 4 * KIB)
            elif event is NEED_DATA:
                return None
            elif step := self.do(partial(self.exchange.receive, event)):
                return step

    def call(self) -> None:
        inference = self.exchange.inference
        assert inference is not None
        self.do(lambda: self.exchange.answer(inference.run()))


def test_a_request_is_received_called_and_answered() -> None:
    owner = Owner(service_of())
    assert owner.begin() is RECEIVE
    has_header = [owner.exchange.has_header]
    assert owner.bring() is CALL
    assert [*has_header, owner.exchange.has_header] == [False, True]
    assert owner.budget.reserved > len(X)
    owner.call()
    assert owner.exchange.reply.status == 200
    assert np.array_equal(answer(owner.exchange.reply).outputs["x"], X)
    owner.exchange.end()
    assert owner.budget.reserved == 0
    assert owner.exchange.reply.buffers == ()


def test_a_raw_request_in_chunks_gives_back_what_it_was_kept_in() -> None:
    declared = [TensorMetadata(name="x", datatype="UINT8", shape=(ANY_SIZE,))]
    owner = Owner(service_of(inputs=declared, outputs=None))
    owner.data = memoryview(bytes(X))
    chunked = [("Transfer-Encoding", "chunked"), ("Inference-Header-Content-Length", "0")]
    assert owner.take(head("/v2/models/m/infer", "POST", chunked, None)) is RECEIVE
    assert owner.bring() is None
    assert owner.body is not None
    owner.body.receive_eof()
    assert owner.bring() is CALL
    assert len(X) <= owner.budget.reserved < 2 * len(X)
    owner.call()
    assert owner.exchange.reply.status == 200


def test_a_quick_model_is_called_by_the_owner_too() -> None:
    owner = Owner(service_of(is_inline=True))
    assert owner.begin(array=X[:16]) is RECEIVE
    assert owner.bring() is CALL
    assert owner.exchange.inference is not None
    assert owner.exchange.inference.is_inline
    owner.call()
    assert owner.exchange.reply.status == 200


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("GET", "/v2/health/live", 200), ("POST", "/v2/models/no/infer", 404), ("PUT", "/v2", 405)],
)
def test_what_needs_no_body_is_answered_by_its_head(method: str, target: str, status: int) -> None:
    owner = Owner(service_of())
    assert owner.take(head(target, method, length=100)) is ANSWER
    assert owner.exchange.reply.status == status
    assert owner.exchange.arrival is None


def test_the_index_may_be_asked_for_in_a_body() -> None:
    owner = Owner(service_of())
    owner.data = memoryview(b'{"ready":true}')
    assert owner.take(head("/v2/repository/index", "POST", length=14)) is RECEIVE
    assert owner.bring() is ANSWER
    assert [entry["name"] for entry in answer(owner.exchange.reply).document] == ["m"]


def test_a_model_that_takes_windows_is_called_when_the_header_has_come() -> None:
    owner = Owner(service_of(Windows(max_window_bytes=4 * KIB)))
    assert owner.begin() is RECEIVE
    assert owner.bring(8 * KIB) is CALL
    inference = owner.exchange.inference
    assert isinstance(inference, Inference)
    assert inference.is_windowed
    assert inference.header is not None
    assert inference.header.tensors[0].name == "x"


def test_memory_is_asked_for_and_waited_for() -> None:
    budget = Budget(100 * KIB)
    other = Reservation(budget)
    assert other.ask(90 * KIB)
    owner = Owner(service_of(), budget)
    assert owner.begin() is RECEIVE, "the JSON header is little"
    assert owner.bring(8 * KIB) is WAIT
    other.release()
    assert owner.bring() is CALL


def test_a_short_request_waits_before_its_body() -> None:
    budget = Budget(KIB)
    other = Reservation(budget)
    assert other.ask(KIB)
    owner = Owner(service_of(), budget)
    assert owner.begin(array=X[:16]) is WAIT
    other.release()
    assert owner.do(owner.exchange.go_on) is RECEIVE
    assert owner.bring() is CALL


def test_a_long_header_waits_before_its_body() -> None:
    budget = Budget(KIB)
    other = Reservation(budget)
    assert other.ask(KIB)
    owner = Owner(service_of(), budget)
    assert owner.begin(length=None) is WAIT
    other.release()
    assert owner.do(owner.exchange.go_on) is RECEIVE


def test_who_has_waited_long_enough_is_told_to_come_back() -> None:
    budget = Budget(100 * KIB)
    other = Reservation(budget)
    assert other.ask(90 * KIB)
    owner = Owner(service_of(), budget)
    owner.begin()
    assert owner.bring() is WAIT
    assert owner.exchange.refuse_for_memory() is ANSWER
    assert owner.exchange.reply.status == 503
    assert budget.reserved == 90 * KIB


def test_what_there_will_never_be_is_refused() -> None:
    owner = Owner(service_of(), Budget(KIB))
    assert owner.begin() is ANSWER
    assert owner.exchange.reply.status == 413


def test_who_is_too_slow_keeps_what_has_come_and_asks_again() -> None:
    budget = Budget(100 * KIB, min_rate=1000.0)
    slow = Owner(service_of(), budget)
    slow.begin()
    assert slow.bring(8 * KIB) is None
    assert budget.reserved > 64 * KIB
    other = Reservation(budget)
    assert not other.ask(60 * KIB)
    for now in range(10):
        other.press(float(now))
    assert not other.missing, "the slow one has made room"
    assert slow.exchange.is_held_up
    assert slow.bring() is WAIT
    other.release()
    assert slow.bring() is CALL


def test_a_short_request_waits_for_the_objects_of_its_elements() -> None:
    texts = np.array([b"ab"] * 100, object)
    budget = Budget(9 * KIB)
    other = Reservation(budget)
    assert other.ask(4 * KIB)
    owner = Owner(service_of(), budget)
    assert owner.begin(array=texts) is RECEIVE, "there is room for the body"
    assert owner.bring() is WAIT
    other.release()
    assert owner.bring() is CALL
    assert budget.reserved > 100 * 58
    owner.call()
    assert owner.exchange.reply.status == 200


def test_who_was_slow_waits_for_the_objects_when_all_has_come() -> None:
    texts = np.array([b"ab"] * 12 * KIB, object)
    budget = Budget(1000 * KIB, min_rate=1000.0)
    slow = Owner(service_of(), budget)
    slow.begin(array=texts)
    assert slow.bring(8 * KIB) is None
    other = Reservation(budget)
    assert not other.ask(800 * KIB)
    for now in range(10):
        other.press(float(now))
    assert not other.missing, "the slow one has made room, and what comes now fits beside"
    assert slow.bring() is WAIT
    assert slow.body is not None
    assert slow.exchange.inference is not None
    assert slow.exchange.inference.arriving.is_complete
    other.release()
    assert slow.do(slow.exchange.go_on) is CALL
    assert budget.reserved > 12 * KIB * 58


def test_nobody_is_slow_whose_bytes_wait_to_be_worked_on() -> None:
    owner = Owner(service_of())
    owner.begin()
    owner.bring(8 * KIB)
    assert owner.body is not None
    taken = owner.exchange.reservation.taken
    assert taken is not None
    assert taken() == 8 * KIB
    owner.body.has_work = True
    assert taken() is None


def test_what_is_wrong_is_answered() -> None:
    owner = Owner(service_of())
    owner.data = memoryview(b"[]")
    owner.take(head("/v2/models/m/infer", "POST", length=2))
    assert owner.bring() is ANSWER
    assert owner.exchange.reply.status == 400


def test_an_owner_may_refuse_by_itself() -> None:
    owner = Owner(service_of())
    assert owner.exchange.refuse(head("/v2"), Reply(status=503)) is ANSWER
    assert owner.exchange.reply.status == 503


def test_steps_out_of_order_are_misuse() -> None:
    exchange = Exchange(service_of(), Reservation(Budget(KIB)))
    with pytest.raises(LocalProtocolError, match="begin"):
        _ = exchange.decoder
    exchange.begin(head("/v2/health/live"))
    with pytest.raises(LocalProtocolError, match="ANSWER"):
        _ = exchange.decoder
    assert exchange.go_on() is None


class Watch:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.version: str | None = None
        self.request_id: str | None = None
        self.told: list[str] = []

    def begin(self, head: RequestHead | None) -> None:
        self.told.append(f"begin {head.method if head else None}")

    def asks(self, inference: Inference) -> None:
        self.model, self.version = inference.resolved.model.name, inference.resolved.version
        self.told.append("asks")

    def answered(self, reply: Reply) -> None:
        self.told.append(f"answered {reply.status}")

    def call_begun(self, _: InferenceRequest) -> None:
        self.told.append("call")

    def call_ended(self) -> None:
        self.told.append("called")


def test_a_watch_is_told() -> None:
    owner = Owner(service_of())
    owner.exchange.watch = watch = Watch()
    owner.begin(request_id="7")
    owner.bring()
    owner.call()
    assert watch.told == ["begin POST", "asks", "answered 200"]
    assert (watch.model, watch.request_id) == ("m", "7")


@pytest.mark.parametrize(
    ("method", "target", "model"),
    [
        ("GET", "/v2/models/m", "m"),
        ("GET", "/v2/models/no", None),
        ("GET", "/nowhere", None),
        ("POST", "/v2/models/m", None),
    ],
)
def test_a_watch_is_told_which_model_is_asked_about(method: str, target: str, model: str | None) -> None:
    owner = Owner(service_of())
    owner.exchange.watch = watch = Watch()
    owner.take(head(target, method))
    assert watch.model == model


def test_a_watch_is_told_of_refusals_of_the_owner() -> None:
    exchange = Exchange(service_of(), Reservation(Budget(KIB)))
    exchange.watch = watch = Watch()
    exchange.refuse(head("/v2/models/m"), Reply(status=503))
    exchange.fail(RemoteProtocolError("no head", code=ErrorCode.INVALID_HTTP))
    assert watch.told == ["begin GET", "answered 503", "answered 400"]


def test_nothing_of_a_request_waits_for_the_garbage_collector() -> None:
    owner = Owner(service_of())
    gc.collect()
    gc.disable()
    try:
        arrays: list[int] = []
        for _ in range(3):
            owner.begin()
            owner.bring()
            owner.call()
            owner.exchange.end()
            owner.body = None
            arrays.append(sum(isinstance(each, np.ndarray) and each.nbytes >= len(X) for each in gc.get_objects()))
        assert len(set(arrays)) == 1
    finally:
        gc.enable()


def test_an_answer_is_json_where_that_is_asked_for() -> None:
    owner = Owner(service_of(is_inline=True))
    owner.begin(array=X[:2], parameters={"binary_data_output": False})
    owner.bring()
    owner.call()
    assert json.loads(bytes(owner.exchange.reply.buffers[0]))["outputs"][0]["data"] == [0, 1]  # type: ignore[arg-type]


def test_a_request_that_is_too_slow_and_all_there_takes_nothing_more() -> None:
    owner = Owner(service_of())
    owner.begin()
    owner.bring()
    owner.exchange.reservation.is_short = True
    assert owner.exchange.go_on() is None


def test_a_body_that_comes_by_nobody_takes_what_the_decoder_has() -> None:
    owner = Owner(service_of())
    owner.begin()
    owner.bring(8 * KIB)
    owner.exchange.arrival = None
    assert owner.exchange.reservation.taken is not None
    assert owner.exchange.reservation.taken() == 8 * KIB


@pytest.mark.parametrize("count", [1000, 1001, 2500])
def test_many_inputs_are_dropped_piece_by_piece(count: int) -> None:
    """The server's `ModelCaller` does so; here it is seen that nothing is kept."""
    message = encode_request({str(number): np.zeros(1, np.int8) for number in range(count)})
    inference = service_of(predict=lambda _: {}).begin(
        head("/v2/models/m/infer", "POST", message.headers, message.body_length)
    )
    assert isinstance(inference, Inference)
    assert not inference.is_wide
    assert [*inference.let_go()] == []
    inference.decoder.feed(b"".join(message.buffers))
    arrays = []
    while not isinstance(event := inference.decoder.next_event(), EndOfMessage):
        inference.receive(event)  # type: ignore[arg-type] # there is all of it
        if isinstance(event, TensorReceived):
            arrays.append(weakref.ref(event.array))
    del event
    assert inference.is_wide is (count > 1000)
    assert inference.run().status == 200
    left = [sum(array() is not None for array in arrays) for _ in inference.let_go()]
    assert left == [*range(count - 1000, 0, -1000)]


def test_the_header_of_a_model_that_takes_windows_is_kept_however_many_they_are() -> None:
    message = encode_request({str(number): np.zeros(1, np.int8) for number in range(1001)})
    inference = service_of(Windows(max_window_bytes=4 * KIB), predict=lambda _: {}).begin(
        head("/v2/models/m/infer", "POST", message.headers, message.body_length)
    )
    assert isinstance(inference, Inference)
    inference.decoder.feed(b"".join(message.buffers))
    inference.receive(inference.decoder.next_event())  # type: ignore[arg-type] # there is all of it
    assert inference.is_windowed
    assert not inference.is_wide
