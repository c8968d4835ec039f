"""Frontend: the service for requests that come through another server, under anyio.

It is responsible for waiting, time, threads, memory and observers. The `Exchange` decides how a request is answered, as
for connections of the bundled server. A framework provides a `Peer`: how to receive a piece of a body, how to send a
piece of an answer, and how to learn that the client has left. The framework keeps its connections, their number and
their heads. So only the options that are not about connections apply.

No object here may refer back to an object that refers to it: such a cycle would keep a request's memory until the
garbage collector runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from streamcodec.engine.errors import MessageError
from streamcodec.engine.rows import Rows
from streamcodec.http.messages import RequestHead
from streamcodec.server.conversation import Conversation
from streamcodec.server.failures import log_failure
from streamcodec.server.knownheads import KnownHead, KnownHeads
from streamcodec.server.loads import load_of
from streamcodec.server.observation import Observation, Observers
from streamcodec.server.options import ServerOptions
from streamcodec.server.peer import Peer
from streamcodec.server.tasks import open_tasks
from streamcodec.server.uploading import refuse_uploads
from streamcodec.server.workers import Workers
from streamcodec.service import Observer, Reply, ServerLoad, Service
from streamcodec.service.budget import Budget, Reservation
from streamcodec.service.exchange import Exchange, finished


class Frontend:
    """Answers the requests of a framework.

    Attributes:
        service: the service that answers.
        known: heads that have been seen before.
        budget: the memory of all requests.
    """

    def __init__(
        self, service: Service, options: ServerOptions | None = None, *, observer: Observer | Iterable[Observer] = ()
    ) -> None:
        """Prepare to serve; for the arguments see `Server`.

        Raises:
            LocalProtocolError: `resumable_uploads` is switched on.
        """
        observers = list(observer) if isinstance(observer, Iterable) else [observer]
        self._observers = Observers(observers) if observers else None
        self._options = options or ServerOptions()
        refuse_uploads(self._options, "the connections of a framework belong to the framework")
        self._workers: Workers | None = None
        self.service: Service = service
        self.known: KnownHeads = KnownHeads(service)
        self.budget: Budget = Budget(self._options.max_memory_bytes, service.pool, min_rate=self._options.min_rate)
        for each in observers:
            each.server_begun(self.load)

    def load(self) -> ServerLoad:
        """Return what requests hold and wait for; the framework has the connections."""
        return load_of(self.budget, self.service.pool, self._workers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve inside this block, if the framework tells when its application starts and stops.

        At its end, readiness checks say that the server stops. Without the block, an abandoned thread gives back its
        place only when the next request needs one.
        """
        async with open_tasks() as watchers:
            self.workers.watchers = watchers
            try:
                yield
            finally:
                self.service.is_ready = False
                self.workers.watchers = None
                watchers.end_within(0.0)

    @property
    def workers(self) -> Workers:
        """The threads; they belong to the event loop that first asks for them."""
        if self._workers is None:
            self._workers = Workers(self._options.max_workers, self._options.max_windowed_requests)
        return self._workers

    def reply_at_once(self, known: KnownHead, body: bytes, observation: Observation | None) -> Reply | None:
        """Call the model with a whole request whose head is known.

        Args:
            known: the meaning of the head; see `KnownHeads.find`.
            body: all of it.
            observation: of the request; it is used further if the request goes the ordinary way.

        Returns:
            The reply: for `finish_at_once` if it `is_there` completely, else for `handle`. None if the request has to
            go the ordinary way.
        """
        if observation is not None:
            observation.begin(known.head)
        return known.reply(body, observation)

    def finish_at_once(self, known: KnownHead, reply: Reply, observation: Observation | None) -> Reply:
        """Return a complete reply in the form in which it is sent, and report it to the observers as sent."""
        if reply.cause is not None:
            log_failure(reply.cause, reply.call, is_observed=observation is not None)
        if observation is not None:
            observation.answered(reply)
            observation.bytes_in, observation.bytes_out = known.length, reply.body_length
            observation.end()
        return finished(self.service, reply, known.head)

    def observe(self, client: str) -> Observation | None:
        """Begin the observation of a request; None if there are no observers."""
        return None if self._observers is None else self._observers.of(client)(0)

    async def handle(
        self,
        head: RequestHead | MessageError,
        peer: Peer,
        observation: Observation | None,
        reply: Reply | None = None,
    ) -> None:
        """Answer one request.

        Args:
            head: of the request; or the error in it.
            peer: provides the body, and takes the answer.
            observation: of the request, by `observe`.
            reply: by `reply_at_once`; None if the request has to be received.

        Raises:
            ConnectionError: the client has left before its answer began.
            TimeoutError: the client does not read its answer.
            Exception: the answer ended in the middle; the framework has to close the connection.
        """
        exchange = Exchange(self.service, Reservation(self.budget))
        exchange.watch = observation
        conversation = Conversation(
            exchange, peer, self.workers, self._options, observation=observation, limits=self.service.limits
        )
        error: BaseException | None = None
        try:
            if reply is None or isinstance(head, MessageError):
                await conversation.run(head)
            else:
                conversation.take(head, reply)
            await conversation.send()
        except BaseException as raised:
            error = raised
            raise
        finally:
            if observation is not None:
                observation.bytes_in, observation.bytes_out = conversation.received, conversation.sent
                observation.end() if error is None else observation.break_off(error)
            error = None  # its traceback refers to this frame, which would refer to it
            conversation.end()
            exchange.end()


def is_there(reply: Reply) -> bool:
    """Whether no part of a reply is made while it is sent."""
    return Rows not in map(type, reply.buffers)
