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
from contextlib import asynccontextmanager, suppress

from streamcodec.embedding.atonce import AtOnce, Opened, is_there
from streamcodec.embedding.conversation import Conversation
from streamcodec.embedding.reading import Peer
from streamcodec.engine.errors import MessageError
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.models.failures import log_failure
from streamcodec.runtime.models.workers import Workers, load_of
from streamcodec.runtime.observation import Observation, Observers
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.timeouts import first_timeout
from streamcodec.runtime.uploads.uploading import refuse_uploads
from streamcodec.service import Observer, Reply, ServerLoad, Service
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.request.exchange import Exchange, finished, name_model


class Frontend:
    """Answers the requests of a framework.

    Attributes:
        service: the service that answers.
        budget: the memory of all requests.
        workers: the threads.
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
        self.workers: Workers = Workers(self._options.max_workers, self._options.max_windowed_requests)
        self.service: Service = service
        self._at_once = AtOnce(service, self._options.model_timeout)
        self._first_timeout = first_timeout(self._options)
        self.budget: Budget = Budget(self._options.max_memory_bytes, service.pool, min_rate=self._options.min_rate)
        for each in observers:
            each.server_begun(self.load)

    def load(self) -> ServerLoad:
        """Return what requests hold and wait for; the framework has the connections."""
        return load_of(self.budget, self.service.pool, self.workers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve inside this block, if the framework tells when its application starts and stops.

        At its end, readiness checks say that the server stops.
        """
        try:
            yield
        finally:
            self.service.is_ready = False

    def observe(self, client: str) -> Observation | None:
        """Begin the observation of a request; None if there are no observers."""
        return None if self._observers is None else self._observers.of(client)(0)

    async def begin(
        self, head: RequestHead, peer: Peer, observation: Observation | None
    ) -> tuple[Opened, Reply | None]:
        """Open a head, and answer a short request whose whole body is there.

        Returns:
            What the head means, for `handle`; and the reply if there is one.
        """
        if observation is not None:
            observation.begin(head)
        opened, reply = self._at_once.open(head), None
        length = opened.whole_bytes
        if length is not None:
            with suppress(MemoryError):  # which the ordinary way answers
                body = await peer.whole(length, self._first_timeout)
                reply = None if body is None else opened.reply(body, observation)
                opened = opened._replace(body=body)
        elif head.content_length == 0 and head.method != "HEAD" and isinstance(opened.outcome, Reply):
            reply = opened.outcome
        return opened, reply

    async def answer(
        self, head: RequestHead | MessageError, peer: Peer, observation: Observation | None
    ) -> Reply | None:
        """Answer one request.

        Args:
            head: of the request; or the error in it.
            peer: provides the body, and takes the answer.
            observation: of the request, by `observe`.

        Returns:
            A reply that is complete and short, in the form in which it is sent at once; None if `peer` has taken the
            answer.

        Raises:
            ConnectionError: the client has left before its answer began.
            TimeoutError: the client does not read its answer.
            Exception: the answer ended in the middle; the framework has to close the connection.
        """
        opened, reply = None, None
        if not isinstance(head, MessageError):
            try:
                opened, reply = await self.begin(head, peer, observation)
            except BaseException as error:
                if observation is not None:
                    observation.break_off(error)
                raise
            if reply is not None and is_there(reply):
                return self._finished(head, reply, observation)
        await self._handle(head, peer, observation, opened, reply)
        return None

    def _finished(self, head: RequestHead, reply: Reply, observation: Observation | None) -> Reply:
        """Return a complete reply in the form in which it is sent, and report it to the observers as sent."""
        reply = finished(self.service, reply, head)
        log_failure(reply, is_observed=observation is not None)
        if observation is not None:
            observation.answered(reply)
            if observation.model is None:
                name_model(observation, head, self.service)
            observation.bytes_in, observation.bytes_out = head.content_length or 0, reply.body_length
            observation.end()
        return reply

    async def _handle(
        self,
        head: RequestHead | MessageError,
        peer: Peer,
        observation: Observation | None,
        opened: Opened | None,
        reply: Reply | None,
    ) -> None:
        exchange = Exchange(self.service, Reservation(self.budget))
        exchange.watch = observation
        conversation = Conversation(
            exchange, peer, self.workers, self._options, observation=observation, limits=self.service.limits
        )
        error: BaseException | None = None
        try:
            if reply is None or isinstance(head, MessageError):
                await conversation.run(head, opened)
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
