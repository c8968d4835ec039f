"""Endpoint: receives an inference request within a user's own WSGI application."""

from __future__ import annotations

from time import monotonic

from streamcodec.engine.events import NEED_DATA, NEED_TURN
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.placement import Place
from streamcodec.server.endpoint import SHARED_BUDGET, in_shared_pool
from streamcodec.server.patience import Patience
from streamcodec.server.receiving import MIN_RATE, READ_TIMEOUT, Receiving, options_of
from streamcodec.server.sharing import SharedBudget
from streamcodec.server.waiting import block_for_memory
from streamcodec.service.reception import Check, ReceivedRequest, Reception
from streamcodec.wsgi.environ import Environ, head_of
from streamcodec.wsgi.intake import Intake


def receive_request(
    environ: Environ,
    *,
    check: Check | None = None,
    place: Place = in_shared_pool,
    limits: Limits = DEFAULT_LIMITS,
    timeout: float | None = READ_TIMEOUT,
    min_rate: float = MIN_RATE,
    budget: SharedBudget = SHARED_BUDGET,
) -> ReceivedRequest:
    """Receive an inference request while it arrives, each tensor in its final memory.

    Args:
        environ: of the request; in Flask, `request.environ`. The body must not have been read before.
        check: called when the JSON header has arrived, before memory is taken for tensors; an exception of it refuses
            the request.
        place: chooses the memory for a tensor; by default a block of a pool, which returns there after its last array.
        limits: caps on everything that is read.
        timeout: seconds without a byte; None leaves all limits of time to the server.
            Time is looked at after each read; only the server can end a read.
        min_rate: bytes of tensors a second, after a first `timeout`.
        budget: the memory of all requests that have the same; by default all endpoints of this process share one, of
            half of the memory. A request counts as long as its `ReceivedRequest` exists. One that has to wait for
            memory for more than 10 seconds is refused.

    Raises:
        RemoteProtocolError: the request is refused; `status_hint` is the status to answer with. Its code is
            `connection-closed` if the client has left and the server says so.
        OutOfMemoryError: as above, for lack of memory.
    """
    reception = Reception(head_of(environ, limits), limits=limits, check=check, place=place, paced=True)
    options, intake = options_of(timeout, min_rate), Intake(environ["wsgi.input"])
    receiving = Receiving(reception, budget, options)
    patience = Patience(options, receiving)
    try:
        while True:
            if receiving.waits_for_memory():
                is_granted = block_for_memory(receiving.reservation, options.budget_timeout)
                receiving.check_memory(is_granted=is_granted)
                continue
            event = receiving.body.next_event()
            if event is NEED_TURN:
                receiving.body.work()
            elif event is NEED_DATA:
                _read(intake, receiving, patience)
            elif (request := receiving.receive(event)) is not None:
                return request
    except BaseException:
        receiving.end()
        raise


def _read(intake: Intake, receiving: Receiving, patience: Patience) -> None:
    patience.resume()
    receiving.reservation.begin_to_wait()
    try:
        patience.look(monotonic())
        intake.read(receiving.body)
        if not receiving.body.has_ended:
            patience.look(monotonic())
    except TimeoutError:
        raise receiving.too_slow() from None
    finally:
        patience.pause(monotonic())
        receiving.reservation.end_to_wait()
