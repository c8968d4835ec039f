"""Driver: one connection, from its first request to its last.

The task that serves a connection does in turn what its session says, over whichever channel. This file knows waiting
and time, and nothing of the protocol.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import anyio

from streamcodec.core.events import NEED_DATA, NeedData
from streamcodec.http.messages import HttpEvent
from streamcodec.server.calls import Caller
from streamcodec.server.channels import Channel
from streamcodec.server.options import ServerOptions
from streamcodec.server.session import Session, Step

_LINGER_BYTES: Final = 64 << 10


class Driver:
    """Serves one connection."""

    def __init__(self, session: Session, caller: Caller, options: ServerOptions) -> None:
        """Prepare to serve."""
        self._session = session
        self._caller = caller
        self._options = options
        self._waiting = anyio.CancelScope()
        self._is_stopping = False

    async def serve(self, channel: Channel) -> None:
        """Serve until either end has had enough. The channel stays open.

        Raises:
            OSError: the client has gone, or takes nothing.
        """
        session = self._session
        while (step := await self._next_step(channel)) is not Step.CLOSE:
            if step is Step.CALL and session.inference is not None:
                session.answer(await self._caller.call(session.inference, partial(self._pull, channel)))
            outgoing, session.outgoing = self._caller.sendable(session.outgoing), []
            await channel.send(outgoing, timeout=self._options.write_timeout)
            del outgoing  # whose memory the next request may need
        await channel.flush(timeout=self._options.write_timeout)
        if session.connection.has_unread_body:
            channel.end()
            await self._linger(channel)

    def stop(self) -> None:
        """Do not wait for another request."""
        self._is_stopping = True
        if self._session.is_idle:
            self._waiting.cancel()

    async def _next_step(self, channel: Channel) -> Step:
        with anyio.CancelScope() as self._waiting:
            if self._is_stopping and self._session.is_idle:
                return Step.CLOSE
            try:
                return await channel.next_event(self._session, self._patience)
            except TimeoutError:
                return Step.CLOSE if self._session.is_idle else self._session.give_up()
        return Step.CLOSE

    def _patience(self) -> float:
        """Return how many seconds the client may let us wait now."""
        return self._options.idle_timeout if self._session.is_idle else self._options.read_timeout

    async def _pull(self, channel: Channel) -> HttpEvent:
        """Wait for the next event of a request whose model takes windows.

        Raises:
            RemoteProtocolError: it breaks a rule, or comes too slowly.
        """
        try:
            return await channel.next_event(self._session.connection, lambda: self._options.read_timeout)
        except TimeoutError:
            raise self._session.too_slow() from None

    async def _linger(self, channel: Channel) -> None:
        """Let the client read the response before the connection closes on what it is still sending."""
        with anyio.move_on_after(self._options.linger_timeout):
            await channel.next_event(_Rest(), lambda: self._options.linger_timeout)


class _Rest:
    """Takes bytes that nobody wants, until they end."""

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(_LINGER_BYTES))
        self._has_ended = False

    def next_event(self) -> bool | NeedData:
        return True if self._has_ended else NEED_DATA

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        return self._scratch

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:  # noqa: ARG002 - as before
        return [self._scratch]

    def buffer_updated(self, nbytes: int) -> None:
        pass

    def pending_work(self, nbytes: int) -> int:  # noqa: ARG002 - there is never anything to do
        return 0

    def receive_eof(self) -> None:
        self._has_ended = True
