"""Driver: one connection, from its first request to its last.

The task that serves a connection does in turn what its session says, over whichever channel. This file knows waiting
and time, and nothing of the protocol.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Final

import anyio

from streamcodec.core.events import NEED_DATA, NeedData
from streamcodec.http.messages import HttpEvent
from streamcodec.server.calls import Caller
from streamcodec.server.channels import Channel
from streamcodec.server.options import ServerOptions
from streamcodec.server.patience import Patience
from streamcodec.server.session import Session, Step
from streamcodec.server.workers import Workers

_LINGER_BYTES: Final = 64 << 10


class Driver:
    """Serves one connection."""

    def __init__(self, session: Session, workers: Workers, options: ServerOptions) -> None:
        """Prepare to serve."""
        self._session = session
        self._caller = Caller(workers, session.reservation, options.model_timeout)
        self._options = options
        self._patience = Patience(options, session)
        self._waiting = anyio.CancelScope()
        self._is_stopping = False

    async def serve(self, channel: Channel) -> None:
        """Serve until either end has had enough. The channel stays open.

        Raises:
            OSError: the client has gone, or takes nothing.
            RemoteProtocolError: its request breaks a rule while it is answered, by rows that are made of it.
            RuntimeError: the model fails in the middle of its answer.
        """
        session = self._session
        while (step := await self._next_step(channel)) is not Step.CLOSE:
            if step is Step.WAIT:
                if await self._has_memory():
                    continue
                session.refuse_for_memory()
            if step is Step.CALL and session.inference is not None:
                pull = partial(self._pull, channel)
                session.answer(await self._caller.call(session.inference, pull))
            outgoing, session.outgoing = self._caller.sendable(session.outgoing), []
            with anyio.fail_after(self._options.request_timeout):
                await channel.send(outgoing, timeout=self._options.write_timeout)
            del outgoing  # whose memory the next request may need
            session.has_sent()
        with anyio.fail_after(self._options.request_timeout):
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
            self._patience.resume()
            try:
                return await channel.next_event(self._session, self._patience.look)
            except TimeoutError:
                return self._session.give_up()
        return Step.CLOSE

    async def _has_memory(self) -> bool:
        """Wait for the memory that the request has asked for; return whether it has come."""
        reservation, granted = self._session.reservation, anyio.Event()
        reservation.on_granted = granted.set
        if reservation.missing:  # it may have come before this task had its turn
            with anyio.move_on_after(self._options.budget_timeout):
                await granted.wait()
        return not reservation.missing

    async def _pull(self, channel: Channel) -> HttpEvent:
        """Wait for the next event of a request whose model takes windows.

        Raises:
            RemoteProtocolError: it breaks a rule, comes too slowly, or ends with its connection.
        """
        self._patience.resume()
        try:
            return await channel.next_event(self._session.connection, self._patience.look)
        except TimeoutError:
            raise self._session.too_slow() from None
        except OSError:  # no failure of the model that waits
            raise self._session.lost() from None
        finally:
            self._patience.pause(anyio.current_time())

    async def _linger(self, channel: Channel) -> None:
        """Let the client read the response before the connection closes on what it is still sending."""
        with anyio.move_on_after(self._options.linger_timeout):
            await channel.next_event(_Rest(), lambda _: math.inf)


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

    def work(self) -> None:
        pass

    def receive_eof(self) -> None:
        self._has_ended = True
