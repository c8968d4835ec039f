"""Endpoint: receives an inference request within a user's own WSGI application."""

from __future__ import annotations

from typing import Any

from streamcodec.embedding.endpoint import (
    MIN_RATE,
    READ_TIMEOUT,
    READER,
    SHARED_BUDGET,
    already_read,
    in_shared_pool,
    options_of,
    receive_at_once,
    whole_bytes,
)
from streamcodec.embedding.request import EndpointRequest
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.memory.placement import Place
from streamcodec.runtime.memory.sharing import SharedBudget
from streamcodec.service.request.reception import Check, ReceivedRequest, Reception
from streamcodec.wsgi.reading import Environ, PeekedStream, Readable, ThreadReader, head_of


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
        OutOfMemoryError: as above, for lack of memory. `MessageError` is the class of both.
        LocalProtocolError: the body has been read before: by `receive_request`, or in Flask and werkzeug by anything,
            for example `flask.request.get_data()`. In other frameworks it looks as if the client had left.
    """
    _check_unread(environ)
    reception = Reception(head_of(environ, limits), limits=limits, check=check, place=place, paced=True)
    stream: Readable = environ["wsgi.input"]
    if (length := whole_bytes(reception, budget)) is not None:
        stream = begun = PeekedStream(stream, length)
        if begun.is_whole and (received := receive_at_once(reception, begun.body, budget)) is not None:
            return received
    options = options_of(timeout, min_rate)
    request = EndpointRequest(reception, budget, options)
    try:
        ThreadReader(request, stream, options).next_step()
    except BaseException:
        request.end()
        raise
    return request.result


def _check_unread(environ: Environ) -> None:
    """Note who reads a body.

    Raises:
        LocalProtocolError: it has been read before.
    """
    found = getattr(environ.get("werkzeug.request"), "__dict__", {})  # of Flask, too; where what was read is kept
    if "_cached_data" in found or _position(found.get("stream")):
        raise already_read("`flask.request.get_data()` or the like")
    if environ.get(READER) is environ["wsgi.input"]:
        raise already_read("an earlier `receive_request()`")
    environ[READER] = environ["wsgi.input"]


def _position(stream: Any) -> int:  # noqa: ANN401 - werkzeug's, or that of any server
    """Return how many bytes have been read from a stream, if it counts them."""
    try:
        return int(stream.tell())
    except (AttributeError, OSError):
        return 0
