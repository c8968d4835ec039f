"""Driver: serves one connection, from its first request to its last.

The task of a connection does the steps of its session one by one, over any channel. This file is responsible for
waiting and time, and knows nothing of the protocol.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import anyio

from streamcodec.http.heads.messages import HttpEvent
from streamcodec.runtime.memory.waiting import wait_for_memory
from streamcodec.runtime.models.calls import ModelCaller
from streamcodec.runtime.models.workers import Workers
from streamcodec.runtime.observation import receiving
from streamcodec.runtime.options import ServerOptions
from streamcodec.server.connection.channels import Channel
from streamcodec.server.connection.disconnects import DisconnectWatcher
from streamcodec.server.connection.session import Session, Step
from streamcodec.server.connection.waits import ClientWaits


class Driver:
    """Serves one connection.

    Attributes:
        session: says what to do next.
        caller: calls its models.
        waits: how long it waits for the client.
    """

    def __init__(
        self, session: Session, workers: Workers, disconnects: DisconnectWatcher, options: ServerOptions
    ) -> None:
        """Prepare to serve."""
        self._disconnects = disconnects
        self.session = session
        self.caller: ModelCaller = ModelCaller(workers, session.reservation, options.model_timeout)
        self._options = options
        session.on_give_way(self._give_way)
        self._channel: Channel | None = None
        self.waits: ClientWaits = ClientWaits(options, session)

    @property
    def is_idle(self) -> bool:
        """Whether it waits for another request, or for the rest of one that has been answered, or has not begun."""
        return self.waits.is_waiting and self.session.is_spare

    def leave(self) -> None:
        """Close the connection, which is idle, because others need its place."""
        self.waits.leave()

    async def serve(self, channel: Channel) -> None:
        """Serve until the client or the server ends the connection. The channel stays open.

        Raises:
            OSError: the client has left, or does not read.
            RemoteProtocolError: the request breaks a rule while rows of the answer are made from it.
            RuntimeError: the model fails in the middle of its answer.
        """
        session, waits = self.session, self.waits
        self._channel = waits.waiting = channel
        while not waits.is_leaving and (step := await self._next_step(channel)) is not Step.CLOSE:
            if step is Step.WAIT and await self._has_memory(channel):
                continue
            if step is Step.CALL and session.inference is not None:
                pull = partial(self._pull, channel)
                watch = partial(self._disconnects.watch, channel, session.connection)
                session.answer(await self.caller.call(session.inference, pull, watch))
            outgoing, session.outgoing = self.caller.sendable(session.outgoing), []
            record, given = session.observation, channel.given
            try:
                await channel.send(outgoing)
            finally:  # what the system has taken counts after an error, too
                if record is not None:
                    record.bytes_out += channel.given - given
            del outgoing, record  # the next request may need their memory
            self.caller.end()  # work that goes on takes over the memory that the session gives back
            session.has_sent()
            if not session.has_another:
                waits.taking.has_all()
        with anyio.fail_after(0.0 if waits.is_leaving else None):
            await channel.flush()
        if session.connection.has_unread_body and not waits.is_leaving:
            await waits.linger(channel)

    def close(self) -> None:
        """Give back its share of the threads, and drop the channel, which refers to this object."""
        self._channel = self.waits.waiting = None
        self.caller.end()

    def _give_way(self) -> None:
        """Take what has come of an upload, and end: another connection goes on with it, and no byte may follow."""
        connection = self.session.connection
        if self._channel is not None:
            with suppress(OSError):  # it is broken, as its client has noticed
                self._channel.take_arrived(connection)
        connection.drop_body()
        self.leave()

    async def _next_step(self, channel: Channel) -> Step:
        session, waits = self.session, self.waits
        waits.is_waiting = True
        waits.reading.resume()
        try:
            step = await channel.next_event(session, waits.look)
        except TimeoutError:
            step = Step.CLOSE if waits.is_leaving else session.give_up()
        finally:
            waits.is_waiting = False
        return Step.CLOSE if waits.is_leaving else step

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
        with receiving(self.session.observation):
            try:
                return await self.waits.body_event(channel.next_event)
            except OSError:  # the model, which waits, has not failed
                raise self.session.lost() from None
