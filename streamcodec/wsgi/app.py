"""App: the V2 service as a WSGI application, wherever it is mounted."""

from __future__ import annotations

from collections.abc import Iterable

from streamcodec.embedding.atonce import AtOnce, Opened
from streamcodec.embedding.request import ServiceRequest, Step
from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.http.heads.messages import HttpEvent, RequestHead
from streamcodec.runtime.batches.threads import run_in_batch
from streamcodec.runtime.memory.sharing import SharedBudget, SharedReservation
from streamcodec.runtime.models.failures import log_failure
from streamcodec.runtime.models.pace import run
from streamcodec.runtime.observation import Observation, Observers, receiving
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.uploads.uploading import refuse_uploads
from streamcodec.service import Inference, Observer, Reply, ResolvedHead, Service, failure_reply
from streamcodec.service.request.exchange import Exchange, finished
from streamcodec.wsgi.answer import ResponseBody, failure_to_send, pieces, start, whole_of
from streamcodec.wsgi.environ import Environ, StartResponse, client_of, head_of
from streamcodec.wsgi.reading import PeekedStream, Readable, ThreadReader


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
            if (reply := self._whole(environ, opened, observation)) is not None:
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
            request.answer(_needs_event_loop(request.inference))
        reader = ThreadReader(request, stream, self._options)

        def pull() -> HttpEvent:
            """Return the next event of a request whose model takes windows."""
            with receiving(observation):
                return reader.next_event()

        while reader.next_step() is Step.CALL and request.inference is not None:
            if request.inference.resolved.model.batch is None:
                request.answer(run(request.inference, pull))
            else:
                request.answer(run_in_batch(request.inference, request.reservation))

    def _whole(self, environ: Environ, opened: Opened, observation: Observation | None) -> Reply | None:
        """Answer a short request at once.

        Returns:
            The reply; None if the request has to go the ordinary way. Then `wsgi.input` returns the bytes that were
            read once more.
        """
        length = opened.whole_bytes
        if length is None or (isinstance(opened.outcome, ResolvedHead) and opened.outcome.is_async):
            return None
        begun, reply = PeekedStream(environ["wsgi.input"], length), None
        if begun.is_whole:
            if observation is not None:
                observation.bytes_in = length
            reply = opened.reply(begun.body, observation)
        if reply is None:
            environ["wsgi.input"] = begun
        return reply


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


def _needs_event_loop(inference: Inference) -> Reply:
    name = inference.resolved.model.name
    return failure_reply(f"model {name!r} is an async def, which this server has no event loop for", status=501)
