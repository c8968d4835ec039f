"""Planned: a body whose JSON header is known has the same arrays and the same answer as on the ordinary way."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from streamcodec import NEED_DATA, EndOfMessage, LocalProtocolError, MessageError, NewArray, Tensor, encode_request
from streamcodec.http.bodies.fed import FedBody
from streamcodec.http.bodies.known import KnownBody
from streamcodec.service import Inference, InferenceRequest, Model, ModelRegistry, ResolvedHead, Service
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.models.model import Outputs
from streamcodec.service.request.exchange import Exchange, ExchangeStep
from streamcodec.service.request.plan import Plan, Recipe
from tests.effort import places
from tests.service.request.test_exchange import Watch
from tests.service.requests import answer, head

TARGET = "/v2/models/m/infer"
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "a": np.arange(300, dtype="<f4").reshape(3, 100),
    "empty": np.zeros((0, 4), "<i8"),
    "b": np.arange(7, dtype=np.uint8),
    "c": np.arange(40_000, dtype="<i4"),
}
MESSAGE = encode_request([Tensor(name=name, array=array) for name, array in ARRAYS.items()], request_id="7")
BODY = b"".join(MESSAGE.buffers)
KNOWN = MESSAGE.header_length or 0
"""Bytes that are known before the memory is made."""


def _echo(request: InferenceRequest) -> Outputs:
    return dict(request.inputs)


def service_of(**options: Any) -> Service:  # noqa: ANN401 - those of Service
    return Service(ModelRegistry.of([Model(name="m", predict=_echo, is_inline=True)]), **options)


def resolved_by(service: Service) -> ResolvedHead:
    resolved = service.open(head(TARGET, "POST", MESSAGE.headers, len(BODY)))
    assert isinstance(resolved, ResolvedHead)
    return resolved


def planned(service: Service | None = None) -> tuple[ResolvedHead, Plan]:
    resolved = resolved_by(service or service_of())
    found = Recipe(resolved).plan(BODY[:KNOWN], len(BODY))
    assert found is not None
    return resolved, found


def receiver() -> tuple[Inference, KnownBody]:
    resolved, found = planned()
    inference = Inference(resolved, plan=found)
    assert isinstance(inference.arriving, KnownBody)
    return inference, inference.arriving


def check(inference: Inference, found: KnownBody) -> None:
    assert found.next_event() == EndOfMessage(nbytes=len(BODY))
    assert found.is_complete
    assert not found.wants_data
    inputs = inference.request().inputs
    assert list(inputs) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert inputs[name].dtype == array.dtype
        np.testing.assert_array_equal(inputs[name], array)


STARTS = np.cumsum([KNOWN, *(array.nbytes for array in ARRAYS.values())]).tolist()
CUTS = sorted({cut for start in STARTS for cut in range(start - 40, start + 40) if KNOWN < cut < len(BODY)})
"""Around the beginning of each tensor, and around the end."""


@pytest.mark.parametrize("face", ["receive", "get_buffer", "following_buffers"])
def test_every_cut_gives_the_same_arrays(face: str) -> None:
    for first in places(CUTS):
        inference, found = receiver()
        for start, end in ((KNOWN, first), (first, len(BODY))):
            bring(found, memoryview(BODY)[start:end], face)
            assert found.offset == end
            if end < len(BODY):
                assert found.next_event() is NEED_DATA
        check(inference, found)


def test_a_body_that_has_come_whole_gives_the_same_arrays_which_are_writable_and_not_its_memory() -> None:
    resolved, found = planned()
    arrived = bytearray(BODY)
    inference = Inference(resolved, plan=found, body=memoryview(arrived))
    arrived[:] = bytes(len(BODY))  # the next request comes to the same memory
    assert isinstance(inference.arriving, KnownBody)
    assert inference.arriving.offset == len(BODY)
    check(inference, inference.arriving)
    for array in inference.request().inputs.values():
        assert array.flags.writeable
        assert not array.size or array.ctypes.data % 64 == 0


def bring(found: KnownBody, data: memoryview, face: str) -> None:
    """Bring bytes through one of the ways, as a connection does."""
    if face == "receive":
        assert found.receive(data) == len(data)
        return
    while data:
        following = found.following_buffers() if face == "following_buffers" else []
        buffers = [found.get_buffer(), *following]
        count = 0
        for buffer in buffers:
            part = data[count : count + len(buffer)]
            buffer[: len(part)] = part
            count += len(part)
        found.buffer_updated(count)
        data = data[count:]


def test_a_planned_inference_knows_its_header_before_its_first_byte() -> None:
    inference, found = receiver()
    assert inference.has_header
    assert inference.request_id == "7"
    assert inference.memory_bytes == len(BODY)
    assert inference.taken_bytes == KNOWN
    found.receive(memoryview(BODY)[KNOWN : KNOWN + 1000])
    assert inference.taken_bytes == KNOWN + 1000
    with pytest.raises(LocalProtocolError, match="no decoder"):
        _ = inference.decoder
    with pytest.raises(LocalProtocolError):
        inference.run()


def test_an_abandoned_body_leaves_nothing_to_the_garbage_collector() -> None:
    gc.disable()
    try:
        inference, found = receiver()
        found.receive(memoryview(BODY)[KNOWN:])
        arrays = [weakref.ref(array) for array in inference.request().inputs.values()]
        del inference, found
        assert [array() for array in arrays] == [None] * len(ARRAYS)
    finally:
        gc.enable()


def exchanged(
    service: Service, budget: Budget, plan: Plan | None, watch: Watch | None = None
) -> tuple[list[ExchangeStep], Exchange]:
    """Receive the message, and have the model called; return the steps, and the exchange before its end."""
    resolved = resolved_by(service)
    exchange = Exchange(service, Reservation(budget))
    exchange.watch = watch
    steps = [exchange.begin(resolved.head, resolved, plan)]
    if steps == [ExchangeStep.FILL]:
        assert exchange.known_body is not None
        bring(exchange.known_body, memoryview(BODY)[KNOWN:], "receive")
        steps.append(ExchangeStep.CALL)
    if steps == [ExchangeStep.RECEIVE]:
        exchange.arrival = body = FedBody(resolved.head, exchange.decoder, service.limits, paced=True)
        body.feed(BODY)
        while len(steps) == 1:
            event = body.next_event()
            assert event is not NEED_DATA
            step = exchange.receive(event)  # type: ignore[arg-type]  # nothing takes long
            steps += [step] if step else []
    if steps[-1] is ExchangeStep.CALL and exchange.inference is not None:
        steps.append(exchange.answer(exchange.inference.run()))
    return steps, exchange


def test_the_answer_is_the_ordinary_one() -> None:
    service, budget = service_of(), Budget(1 << 20)
    _, plan = planned(service)
    ordinary, by_plan = (exchanged(service, budget, each)[1].reply for each in (None, plan))
    wanted, found = answer(ordinary), answer(by_plan)
    assert (found.status, found.fields, found.body) == (wanted.status, wanted.fields, wanted.body)
    assert found.status == 200


def test_its_owner_calls_the_model_and_measures() -> None:
    watch = Watch()
    steps, _ = exchanged(service_of(), Budget(1 << 20), planned()[1], watch)
    assert steps == [ExchangeStep.FILL, ExchangeStep.CALL, ExchangeStep.ANSWER]
    assert (watch.model, watch.request_id) == ("m", "7")
    assert watch.told[:2] == ["begin POST", "asks"]


def test_it_has_its_memory_granted_first() -> None:
    service, budget = service_of(), Budget(1 << 20)
    _, exchange = exchanged(service, budget, planned(service)[1])
    assert budget.reserved == len(BODY)
    exchange.end()
    assert budget.reserved == 0


def test_without_room_for_all_of_it_it_goes_the_ordinary_way() -> None:
    service, budget = service_of(), Budget(len(BODY) + 100)
    other = Reservation(budget)
    assert other.ask(200)
    exchange = Exchange(service, Reservation(budget))
    resolved, plan = planned(service)
    assert exchange.begin(resolved.head, resolved, plan) is ExchangeStep.RECEIVE
    assert exchange.inference is not None
    assert exchange.inference.plan is None  # it has memory for a JSON header only, and waits for the rest
    assert budget.reserved < len(BODY)


def test_a_body_larger_than_the_budget_is_refused() -> None:
    service = service_of()
    resolved, plan = planned(service)
    exchange = Exchange(service, Reservation(Budget(len(BODY) - 1)))
    with pytest.raises(MessageError):
        exchange.begin(resolved.head, resolved, plan)


def test_a_placement_of_the_program_is_asked_in_any_case() -> None:
    assert not resolved_by(service_of(place=lambda _: NewArray())).is_planned


def test_a_compressed_answer_is_left_to_the_ordinary_way() -> None:
    service = service_of(compresses=True)
    fields = [*MESSAGE.headers, ("Accept-Encoding", "gzip")]
    resolved = service.open(head(TARGET, "POST", fields, len(BODY)))
    assert isinstance(resolved, ResolvedHead)
    assert resolved_by(service).is_planned
    assert not resolved.is_planned


def test_a_larger_call_that_has_proved_quick_needs_no_thread_if_it_is_planned() -> None:
    resolved, found = planned()
    for nbytes in (len(BODY), 70 << 10):
        for _ in range(16):
            resolved.model.quickness.ran_in_thread(nbytes, 0.0, 0.0, has_waited=False)
    inference = Inference(resolved, plan=found)
    assert isinstance(inference.arriving, KnownBody)
    inference.arriving.receive(memoryview(BODY)[KNOWN:])
    assert inference.is_inline
    assert not resolved.is_inline(len(BODY))


@pytest.mark.parametrize(("is_inline", "needs_thread"), [(None, False), (True, False), (False, True)])
def test_a_model_may_say_that_it_needs_a_thread(is_inline: bool | None, needs_thread: bool) -> None:
    service = Service(ModelRegistry.of([Model(name="m", predict=_echo, is_inline=is_inline)]))
    resolved = resolved_by(service)
    for _ in range(16):
        resolved.model.quickness.ran_in_thread(100, 0.0, 0.0, has_waited=False)
    assert (resolved.is_inline(100), resolved.may_be_inline) == (not needs_thread, not needs_thread)
    assert (resolved.judge(100) is None) is (is_inline is not None)
    assert (resolved.judge(1 << 20) is None) is needs_thread
