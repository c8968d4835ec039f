"""Endpoint: receive an inference request within a WSGI application of one's own."""

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
    """Receive an inference request while it comes, each tensor in its final memory.

    Args:
        environ: of the request; of Flask `request.environ`. Nobody may have read the body before.
        check: is called when the JSON header has come, before memory is taken for tensors; what it raises refuses.
        place: says whose memory a tensor goes to; by default that of a pool, to which it returns with its last array.
        limits: caps on everything that is read.

    Raises:
        RemoteProtocolError: the request is refused; `status_hint` is the status to answer with. Its code is
            `connection-closed` if the client has left and the server says so.
        OutOfMemoryError: as above, for want of memory.
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
