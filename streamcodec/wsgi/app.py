"""App: the V2 service as a WSGI application, wherever it is mounted.

An answer is an iterable of bytes that is closed in any case. Servers keep the pieces that they get, so each piece is a
copy. Small parts are joined in one piece, so that a short answer is sent at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import current_thread, main_thread
from typing import cast

from streamcodec.embedding.atonce import AtOnce, Opened
from streamcodec.embedding.request import ServiceRequest
from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.memory.rows import Rows
from streamcodec.http.heads.messages import HttpEvent, RequestHead
from streamcodec.http.heads.statuses import line_of
from streamcodec.runtime.batches.threads import run_in_batch
from streamcodec.runtime.memory.sharing import SharedBudget, SharedReservation
from streamcodec.runtime.models.failures import log_failure, raise_bare
from streamcodec.runtime.models.pace import run
from streamcodec.runtime.observation import Observation, Observers, receiving
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.uploads.uploading import refuse_uploads
from streamcodec.service import Observer, ResolvedHead, Service
from streamcodec.service.replies import Reply, complete_headers, failure_reply, lawful
from streamcodec.service.request.exchange import Exchange, ExchangeStep, finished
from streamcodec.transports.sockets.vectors import PIECE_BYTES, batches, copied_pieces
from streamcodec.wsgi.reading import Environ, PeekedStream, Readable, StartResponse, ThreadReader, client_of, head_of


class ResponseBody:
    """The body of an answer. The server closes it, even if it does not take all of it.

    Attributes:
        sent: bytes that the server has asked for.
    """

    def __init__(self, pieces: Iterator[bytes], end: Callable[[int, BaseException | None], None]) -> None:
        """Begin.

        Args:
            pieces: of the body.
            end: called once: after the last piece, after an error, or by `close`; with the number of bytes that the
                server has asked for, and the error.
        """
        self._pieces = pieces
        self._end: Callable[[int, BaseException | None], None] | None = end
        self.sent: int = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            piece = next(self._pieces)
        except StopIteration:
            self._finish(None)
            raise
        except Exception as error:  # noqa: BLE001 - raised again
            self._finish(error)
            raise_bare(error)
        self.sent += len(piece)
        return piece

    def close(self) -> None:
        """Free everything; a second call has no effect."""
        self._finish(None)

    def __del__(self) -> None:  # some servers do not close an answer that they have not begun to send
        self._finish(None)

    def _finish(self, error: BaseException | None) -> None:
        end, self._end = self._end, None
        self._pieces, pieces = iter(()), self._pieces
        close = getattr(pieces, "close", None)
        if close is not None:
            close()
        if end is not None:
            end(self.sent, error)


def send_response(start_response: StartResponse, reply: Reply) -> Iterable[bytes]:
    """Begin the answer to an inference request, and return its body, which is made while it is sent.

    Args:
        start_response: as WSGI gives it.
        reply: made by `ReceivedRequest.reply`; or by `error_reply`, from an exception of `receive_request`.

    Raises:
        LocalProtocolError: no answer can have the status of the reply.
    """
    reply = lawful(reply)
    start(start_response, reply)
    whole = whole_of(reply)
    return pieces(reply) if whole is None else [whole]


def start(start_response: StartResponse, reply: Reply) -> None:
    """Begin an answer."""
    start_response(line_of(reply.status), complete_headers(reply))


def pieces(reply: Reply) -> Iterator[bytes]:
    """Yield the body of a reply, in pieces of at most `PIECE_BYTES`.

    Raises:
        MessageError: the request that the answer is made from breaks a rule.
        RuntimeError: the model has raised something else.
    """
    coming = batches(reply.buffers)
    while (batch := _next(coming)) is not None:
        yield from copied_pieces(batch)


def failure_to_send(reply: Reply) -> Reply | None:
    """Return an error reply if only an event loop could send the reply; None if it can be sent here."""
    if not any(isinstance(part, Rows) and part.is_asynchronous for part in reply.buffers):
        return None
    error = LocalProtocolError("a model has returned asynchronous rows, and there is no event loop to wait for them")
    return failure_reply(str(error), status=500, cause=error)


def whole_of(reply: Reply) -> bytes | None:
    """Return the body of a reply that is short and complete; None for any other reply."""
    if reply.body_length > PIECE_BYTES or Rows in map(type, reply.buffers):
        return None
    return b"".join(cast("tuple[bytes, ...]", reply.buffers))


def _next(coming: Iterator[list[memoryview]]) -> list[memoryview] | None:
    try:
        return next(coming, None)
    except MessageError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and current_thread() is main_thread():  # perhaps the server is told to end
            raise
        msg = f"a model failed with {type(error).__name__} in the middle of its answer"
        raise RuntimeError(msg) from error


class App:
    """The V2 service for gunicorn, waitress, werkzeug, granian and other WSGI servers.

    Requests are received, answered, bounded and refused as by the bundled server. The thread that the server gives a
    request waits, reads and calls the model; the server decides how many there are, and how long they wait for a
    client. Several threads may call this at once.
    """

    def __init__(
        self, service: Service, options: ServerOptions | None = None, *, observer: Observer | Iterable[Observer] = ()
    ) -> None:
        """Prepare to serve.

        Args:
            service: what is served. Models that are an `async def` need an event loop, and there is none.
            options: `max_memory_bytes` is for the whole process; `budget_timeout`, `header_timeout`, `request_timeout`
                and `min_rate` are checked after each read; all others have no effect.
            observer: called for each request, in its thread; or several observers, called in turn. Bytes are those of
                bodies.

        Raises:
            LocalProtocolError: a model is an `async def`, or `resumable_uploads` is switched on.
        """
        for model in service.models:
            if model.is_async:
                msg = f"model {model.name!r} is an async def, which WSGI has no event loop for; serve it by ASGI"
                raise LocalProtocolError(msg)
        observers = list(observer) if isinstance(observer, Iterable) else [observer]
        self._observers = Observers(observers) if observers else None
        self._options = options or ServerOptions()
        refuse_uploads(self._options, "the connections of a WSGI server belong to that server")
        self._service = service
        self._at_once = AtOnce(service)
        self._shared = SharedBudget(self._options.max_memory_bytes, service.pool, min_rate=self._options.min_rate)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        observation = None if self._observers is None else self._observers.of(client_of(environ))(0)
        ending = RequestEnd(observation)
        try:
            reply = self._reply(environ, observation, ending)
            if (failure := failure_to_send(reply)) is not None:
                reply = failure
                if observation is not None:
                    observation.answered(reply)
            log_failure(reply, is_observed=observation is not None)
            start(start_response, reply)
        except BaseException as error:
            ending.over(0, error)
            raise
        ending.wanted = 0 if environ["REQUEST_METHOD"] == "HEAD" else reply.body_length
        if ending.exchange is None and (body := whole_of(reply)) is not None:
            ending.over(len(body), None)
            return [body]
        return ResponseBody(pieces(reply) if ending.wanted else iter(()), ending.over)

    def _reply(self, environ: Environ, observation: Observation | None, ending: RequestEnd) -> Reply:
        """Receive a request, and return the reply in the form in which it is sent."""
        opened = None
        head: RequestHead | MessageError
        try:
            head = head_of(environ, self._service.limits)
        except MessageError as error:
            head = error
        else:
            if observation is not None:
                observation.begin(head)
            opened = self._at_once.open(head)
            reply, opened = self._whole(environ, opened, observation)
            if reply is not None:
                reply = finished(self._service, reply, head)
                if observation is not None:
                    observation.answered(reply)
                return reply
        reservation = SharedReservation(self._shared)
        ending.exchange = exchange = Exchange(self._service, reservation)
        exchange.watch = observation
        request = ServiceRequest(exchange, self._service.limits, observation=observation)
        try:
            request.begin(head, opened)
            self._receive(request, environ["wsgi.input"], observation)
        except (MessageError, MemoryError) as error:
            request.fail(error)
        if observation is not None:
            observation.bytes_in = request.received
        return exchange.reply

    def _receive(self, request: ServiceRequest, stream: Readable, observation: Observation | None) -> None:
        """Receive a request, and make the reply of its exchange.

        Raises:
            MessageError: the request is refused.
        """
        if request.inference is not None and request.inference.resolved.is_async:
            name = request.inference.resolved.model.name
            text = f"model {name!r} is an async def, which this server has no event loop for"
            request.answer(failure_reply(text, status=501))
        reader = ThreadReader(request, stream, self._options)

        def pull() -> HttpEvent:
            """Return the next event of a request whose model takes windows."""
            with receiving(observation):
                return reader.next_event()

        while reader.next_step() is ExchangeStep.CALL and request.inference is not None:
            if request.inference.resolved.model.batch is None:
                request.answer(run(request.inference, pull))
            else:
                request.answer(run_in_batch(request.inference, request.reservation))

    def _whole(self, environ: Environ, opened: Opened, observation: Observation | None) -> tuple[Reply | None, Opened]:
        """Answer a short request at once.

        Returns:
            The reply, and what the head means. No reply if the request has to go the ordinary way. Then `wsgi.input`
            returns the bytes that were read once more.
        """
        length = opened.whole_bytes
        if length is None or (isinstance(opened.outcome, ResolvedHead) and opened.outcome.is_async):
            return None, opened
        begun, reply = PeekedStream(environ["wsgi.input"], length), None
        if begun.is_whole:
            if observation is not None:
                observation.bytes_in = length
            reply = opened.reply(begun.body, observation)
            opened = opened._replace(body=begun.body)
        if reply is None:
            environ["wsgi.input"] = begun
        return reply, opened


class RequestEnd:
    """Frees everything when a request is over, for whatever reason.

    Attributes:
        exchange: holds the memory of the request; None before it exists, and for requests that are answered at once.
        wanted: bytes of the answer's body.
    """

    def __init__(self, observation: Observation | None) -> None:
        """Prepare, before the request takes anything that has to be freed."""
        self._observation = observation
        self.exchange: Exchange | None = None
        self.wanted: int = 0

    def over(self, sent: int, error: BaseException | None) -> None:
        """Free everything; `error` is the reason if the request has ended early."""
        observation = self._observation
        if observation is not None:
            observation.bytes_out = sent
            if error is None and sent == self.wanted:
                observation.end()
            else:
                observation.break_off(error)
        if self.exchange is not None:
            self.exchange.end()
