"""Endpoint: receives an inference request within a user's own WSGI application."""

from __future__ import annotations

from streamcodec.engine.events import NEED_DATA, NEED_TURN
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.placement import Place
from streamcodec.server.endpoint import in_shared_pool
from streamcodec.service.reception import Check, ReceivedRequest, Reception
from streamcodec.wsgi.environ import Environ, head_of
from streamcodec.wsgi.intake import Intake


def receive_request(
    environ: Environ,
    *,
    check: Check | None = None,
    place: Place = in_shared_pool,
    limits: Limits = DEFAULT_LIMITS,
) -> ReceivedRequest:
    """Receive an inference request while it arrives, each tensor in its final memory.

    Args:
        environ: of the request; in Flask, `request.environ`. The body must not have been read before.
        check: called when the JSON header has arrived, before memory is taken for tensors; an exception of it refuses
            the request.
        place: chooses the memory for a tensor; by default a block of a pool, which returns there after its last array.
        limits: caps on everything that is read.

    Raises:
        RemoteProtocolError: the request is refused; `status_hint` is the status to answer with. Its code is
            `connection-closed` if the client has left and the server says so.
        OutOfMemoryError: as above, for lack of memory.
    """
    reception = Reception(head_of(environ, limits), limits=limits, check=check, place=place, paced=True)
    body, intake = reception.body, Intake(environ["wsgi.input"])
    while True:
        event = body.next_event()
        if event is NEED_TURN:
            body.work()
        elif event is NEED_DATA:
            intake.read(body)
        elif (request := reception.receive(event)) is not None:
            return request
