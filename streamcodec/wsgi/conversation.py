"""Conversation: one request of a WSGI server to the service, from its head to its reply, in its own thread."""

from __future__ import annotations

from functools import partial

from streamcodec.embedding.atonce import Opened
from streamcodec.embedding.request import ServiceRequest, Step
from streamcodec.engine.errors import MessageError
from streamcodec.http.heads.messages import HttpEvent, RequestHead
from streamcodec.runtime.batches.threads import run_in_batch
from streamcodec.runtime.models.pace import run
from streamcodec.runtime.observation import BODY, MODEL, Observation
from streamcodec.runtime.options import ServerOptions
from streamcodec.service import Inference, Reply, failure_reply
from streamcodec.wsgi.intake import Readable
from streamcodec.wsgi.reading import ThreadReader


def converse(
    request: ServiceRequest,
    head: RequestHead | MessageError,
    stream: Readable,
    opened: Opened | None,
    *,
    options: ServerOptions,
    observation: Observation | None,
) -> None:
    """Receive a request, and make the reply of its exchange.

    Args:
        request: says what comes next.
        head: of the request; or the error in it.
        stream: provides the body.
        opened: what the head means, if that is known.
        options: the limits of time.
        observation: of the request.
    """
    try:
        request.begin(head, opened)
        if request.inference is not None and request.inference.resolved.is_async:
            request.answer(_needs_event_loop(request.inference))
        reader = ThreadReader(request, stream, options)
        pull = partial(_pull, reader, observation)
        while reader.next_step() is Step.CALL and request.inference is not None:
            if request.inference.resolved.model.batch is None:
                request.answer(run(request.inference, pull))
            else:
                request.answer(run_in_batch(request.inference, request.reservation))
    except (MessageError, MemoryError) as error:
        request.fail(error)


def _pull(reader: ThreadReader, observation: Observation | None) -> HttpEvent:
    """Return the next event of a request whose model takes windows.

    Raises:
        RemoteProtocolError: the request breaks a rule, arrives too slowly, or its connection is lost.
    """
    if observation is not None:
        observation.enter(BODY)
    try:
        return reader.next_event()
    finally:
        if observation is not None:
            observation.enter(MODEL)


def _needs_event_loop(inference: Inference) -> Reply:
    name = inference.resolved.model.name
    return failure_reply(f"model {name!r} is an async def, which this server has no event loop for", status=501)
