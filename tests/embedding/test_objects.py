"""Objects of BYTES in an endpoint's request: there is memory for them when the request is handed out."""

from __future__ import annotations

import numpy as np

from streamcodec import encode_request
from streamcodec.embedding.endpoint import in_shared_pool, options_of
from streamcodec.embedding.request import EndpointRequest
from streamcodec.engine.events import NEED_DATA, NEED_TURN
from streamcodec.runtime.memory.sharing import SharedBudget, SharedReservation
from streamcodec.service import ExchangeStep
from streamcodec.service.request.reception import Reception
from tests.service.requests import head

KIB = 1 << 10
TEXTS = np.array([b"ab"] * 12 * KIB, object)


def test_who_was_slow_waits_for_the_objects_when_all_has_come() -> None:
    message = encode_request({"x": TEXTS})
    data = b"".join(message.buffers)
    shared = SharedBudget(1000 * KIB, min_rate=1000.0)
    reception = Reception(head("/", "POST", message.headers, len(data)), place=in_shared_pool, paced=True)
    request = EndpointRequest(reception, shared, options_of(None, 0.0))
    assert request.next_step() is NEED_DATA
    request.body.feed(data[: 8 * KIB])
    while (step := request.next_step()) is NEED_TURN:
        request.body.work()
    assert step is NEED_DATA
    other = SharedReservation(shared)
    assert not other.ask(800 * KIB)
    request.reservation.begin_to_wait()
    for now in range(10):
        other.press(float(now))
    request.reservation.end_to_wait()
    assert not other.missing, "the slow one has made room, and what comes now fits beside"
    request.body.feed(data[8 * KIB :])
    while (step := request.next_step()) is NEED_TURN:
        request.body.work()
    assert step is ExchangeStep.WAIT
    other.release()
    request.granted(has_come=True)
    assert request.next_step() is ExchangeStep.ANSWER
    assert shared.budget.reserved > 12 * KIB * 58
    assert request.result.inputs["x"].tolist() == TEXTS.tolist()
    del request
    assert not shared.budget.reserved
