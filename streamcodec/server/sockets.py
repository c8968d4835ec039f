"""Sockets: a connection served over a socket of our own, under anyio on any event loop.

The task that serves a connection reads, sends and calls in turn, as its session says. This file knows waiting and time,
and nothing of the protocol.
"""

from __future__ import annotations

import socket
from typing import Final

import anyio

from streamcodec.core.events import NEED_DATA
from streamcodec.server.calls import Caller
from streamcodec.server.options import ServerOptions
from streamcodec.server.session import Session, Step
from streamcodec.transports import aio

_LINGER_BYTES: Final = 64 << 10


class SocketDriver:
    """Serves one connection."""

    def __init__(self, sock: socket.socket, session: Session, caller: Caller, options: ServerOptions) -> None:
        """Prepare to serve a non-blocking socket, which stays the caller's to close."""
        self._socket = sock
        self._session = session
        self._caller = caller
        self._options = options
        self._idle = anyio.CancelScope()
        self._is_stopping = False

    async def serve(self) -> None:
        """Serve until either end has had enough.

        Raises:
            OSError: the client has gone, or takes nothing.
        """
        session = self._session
        while (step := await self._next_step()) is not Step.CLOSE:
            if step is Step.CALL and session.inference is not None:
                step = session.answer(await self._caller.call(session.inference))
            await aio.send(self._socket, session.outgoing, timeout=self._options.write_timeout)
            session.outgoing = ()
        if session.connection.has_unread_body:
            await _linger(self._socket, self._options.linger_timeout)

    def stop(self) -> None:
        """Do not wait for another request."""
        self._is_stopping = True
        self._idle.cancel()

    async def _next_step(self) -> Step:
        session = self._session
        step = session.next_event()
        if step is not NEED_DATA:
            return step
        if session.is_idle and not await self._first_bytes():
            return Step.CLOSE
        try:
            return await aio.next_event(self._socket, session, timeout=self._options.read_timeout)
        except TimeoutError:
            return session.give_up()

    async def _first_bytes(self) -> bool:
        """Wait for a request to begin; False if none does in time, or the server stops."""
        with anyio.move_on_after(self._options.idle_timeout) as self._idle:
            if not self._is_stopping:
                await aio.read(self._socket, self._session)
                return True
        return False


async def _linger(sock: socket.socket, seconds: float) -> None:
    """Let the client read the response before the connection closes on what it is still sending."""
    scratch = bytearray(_LINGER_BYTES)
    sock.shutdown(socket.SHUT_WR)
    with anyio.move_on_after(seconds):
        while True:
            await anyio.wait_readable(sock)
            if not sock.recv_into(scratch):
                return
