"""Driver: serves one connection, from its first request to its last.

The task of a connection does the steps of its session one by one, over any channel. This file is responsible for
waiting and time, and knows nothing of the protocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import anyio

from streamcodec.http.heads.messages import HttpEvent
from streamcodec.runtime.memory.waiting import wait_for_memory
from streamcodec.runtime.models.calls import Caller
from streamcodec.runtime.models.workers import Workers
from streamcodec.runtime.observation import BODY, MODEL
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.timeouts import ReadTimeout, WriteTimeout
from streamcodec.server.connection.channels import Channel
from streamcodec.server.connection.disconnects import DisconnectWatcher
from streamcodec.server.connection.lingering import UnreadRest
from streamcodec.server.connection.preparing import Preparing
from streamcodec.server.connection.session import Session, Step
from streamcodec.service import Reply, ResolvedHead
from streamcodec.service.observing import RequestRecord
from streamcodec.service.request.plan import Plan
from streamcodec.transports.sockets.vectors import Parts

_LAST_LOOK_SECONDS: Final = 0.01
"""For one more turn of the event loop before a connection is closed because the server stops. A loop that was held up
finds its timers due before it looks for bytes, and a request may be there."""


class Driver:
    """Serves one connection.

    Attributes:
        session: says what to do next.
        taking: says how long its channel waits for the client to read.
        preparing: bounds what comes before the first request.
    """

    def __init__(
        self, session: Session, workers: Workers, departures: DisconnectWatcher, options: ServerOptions
    ) -> None:
        """Prepare to serve."""
        self._departures = departures
        self.session = session
        self._caller = Caller(workers, session.reservation, options.model_timeout)
        self._options = options
        self._patience = ReadTimeout(options, session)
        session.on_give_way(self._give_way)
        self.taking: WriteTimeout = WriteTimeout(options)
        self.preparing: Preparing = Preparing()
        self._channel: Channel | None = None
        self._is_waiting = True
        self._is_stopping = False
        self._is_leaving = False
        self._lingering: anyio.CancelScope | None = None
        self._has_looked_again = False

    @property
    def is_idle(self) -> bool:
        """Whether it waits for another request, or for the rest of one that has been answered, or has not begun."""
        return self._is_waiting and self.session.is_spare

    async def serve(self, channel: Channel) -> None:
        """Serve until the client or the server ends the connection. The channel stays open.

        Raises:
            OSError: the client has left, or does not read.
            RemoteProtocolError: the request breaks a rule while rows of the answer are made from it.
            RuntimeError: the model fails in the middle of its answer.
        """
        session, self._channel = self.session, channel
        while (step := await self._next_step(channel)) is not Step.CLOSE:
            if step is Step.WAIT and await self._has_memory(channel):
                continue
            if step is Step.CALL and session.inference is not None:
                pull = partial(self._pull, channel)
                watch = partial(self._departures.watch, channel, session.connection)
                session.answer(await self._caller.call(session.inference, pull, watch))
            outgoing, session.outgoing = self._caller.sendable(session.outgoing), []
            if session.observation is None:
                await channel.send(outgoing)
            else:
                await _counted(channel, outgoing, session.observation)
            del outgoing  # the next request may need its memory
            session.has_sent()
            self._caller.end()
            if not session.has_another:
                self.taking.has_all()
        with anyio.fail_after(0.0 if self._is_leaving else None):
            await channel.flush()
        if session.connection.has_unread_body and not self._is_leaving:
            channel.end()
            await self._linger(channel)

    def close(self) -> None:
        """Give back its share of the threads, and drop the channel, which refers to this object."""
        self._channel = None
        self._caller.end()

    def stop(self) -> None:
        """Wait only a moment for another request."""
        self._is_stopping = True
        self.preparing.stop()
        self._patience.hurry()
        self._look_again()

    def leave(self) -> None:
        """Stop waiting and close the connection, because others need its place."""
        self._is_leaving = True
        if self._lingering is not None:  # it may wait for a turn, behind others who do the same
            self._lingering.cancel()
        self.preparing.leave()
        self._look_again()

    def _give_way(self) -> None:
        """Take what has come of an upload, and end: another connection goes on with it, and no byte may follow."""
        connection = self.session.connection
        if self._channel is not None:
            with suppress(OSError):  # it is broken, as its client has noticed
                self._channel.take_arrived(connection)
        connection.drop_body()
        self.leave()

    def _is_over(self) -> bool:
        return self._is_leaving

    def _look_again(self) -> None:
        if self._channel is not None and self._is_waiting:
            self._channel.look_again()

    def begin_call(self, done: Callable[[], None]) -> bool:
        """Put the request of the session into a batch, if its model has any; see `Caller.begin`."""
        inference = self.session.inference
        return inference is not None and self._caller.begin(inference, done)

    def finish_call(self) -> Reply | None:
        """Return the reply of that request, if it is there; see `Caller.finish`."""
        inference = self.session.inference
        return None if inference is None else self._caller.finish(inference)

    def begin_whole_call(self, done: Callable[[], None]) -> bool:
        """Put a request into a batch that has come whole and has not begun; see `Caller.begin_whole`."""
        whole = self.session.whole_call()
        if whole is None or not self._caller.begin_whole(*whole, done):
            return False
        self.session.entered = whole[:2]
        return True

    def end_call(self) -> None:
        """Forget a request that has waited for its batch without having begun, and was then answered without it."""
        self._caller.end()

    def finish_whole_call(self, resolved: ResolvedHead, plan: Plan) -> Reply | None:
        """Return the reply of that request, if it is there; see `Caller.finish_whole`."""
        return self._caller.finish_whole(resolved, plan)

    async def _next_step(self, channel: Channel) -> Step:
        if self._is_leaving:
            return Step.CLOSE
        self._is_waiting = True
        self._patience.resume()
        try:
            step = await channel.next_event(self.session, self._look)
        except TimeoutError:
            return Step.CLOSE if self._is_over() else self.session.give_up()
        finally:
            self._is_waiting = False
        return Step.CLOSE if self._is_over() else step

    def _look(self, now: float) -> float:
        if self._is_leaving:
            raise TimeoutError
        try:
            return self._patience.look(now)
        except TimeoutError:
            if self._is_stopping and not self._has_looked_again:
                self._has_looked_again = True
                return _LAST_LOOK_SECONDS
            raise

    def _look_at_rest(self, _: float) -> float:
        if self._is_leaving:
            raise TimeoutError
        return math.inf

    async def _has_memory(self, channel: Channel) -> bool:
        """Wait for the memory that the request has asked for; return whether it has come. If not, it is refused."""
        session = self.session

        def check() -> None:
            if channel.has_left(session.connection.missing):
                raise EOFError

        try:
            has_come = await wait_for_memory(session.reservation, self._options.budget_timeout, check)
        except EOFError:  # refused like a body that ends too early: the client may still read
            session.refuse_truncated()
            return False
        if not has_come:
            session.refuse_for_memory()
        return has_come

    async def _pull(self, channel: Channel) -> HttpEvent:
        """Wait for the next event of a request whose model takes windows.

        Raises:
            RemoteProtocolError: the request breaks a rule, arrives too slowly, or its connection is lost.
        """
        self._patience.resume()
        observation = self.session.observation
        if observation is not None:
            observation.enter(BODY)
        try:
            return await channel.next_event(self.session.connection, self._patience.look)
        except TimeoutError:
            raise self.session.too_slow() from None
        except OSError:  # the model, which waits, has not failed
            raise self.session.lost() from None
        finally:
            self._patience.pause(anyio.current_time())
            if observation is not None:
                observation.enter(MODEL)

    async def _linger(self, channel: Channel) -> None:
        """Let the client read the response before the connection is closed, although it is still sending."""
        self._is_waiting = True
        with suppress(TimeoutError), anyio.move_on_after(self._options.linger_timeout) as self._lingering:
            await channel.next_event(UnreadRest(), self._look_at_rest)


async def _counted(channel: Channel, parts: Parts, record: RequestRecord) -> None:
    """Send parts of an answer, and count the bytes that the system has taken, also after an error."""
    before = channel.given
    try:
        await channel.send(parts)
    finally:
        record.bytes_out += channel.given - before
