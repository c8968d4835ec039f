"""Protocol: a connection served over an asyncio transport, as a `BufferedProtocol`. Plain asyncio and uvloop.

asyncio calls back when bytes have come; a request that is small and whole by then, to a model that runs inline, is
answered within that callback. Nothing waits and no task is woken, which is most of what such a request costs elsewhere.
Whatever takes longer (a worker thread, a large answer, a client that reads slowly) is done by the task that serves the
connection; reading pauses until it has been.

Time needs no timer for each request: the task looks now and then when bytes have come last.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Iterable
from typing import Final

import anyio

from streamcodec.core.events import NEED_DATA, NeedData
from streamcodec.server.calls import Caller
from streamcodec.server.options import ServerOptions
from streamcodec.server.session import Session, Step
from streamcodec.transports.aio import LONG_WORK

_SLICE_BYTES: Final = 256 << 10
"""Given to the transport at once; of that, it copies what the system does not take."""

_AT_ONCE_BYTES: Final = 64 << 10
"""A response of so many bytes is joined, and sent from within the callback."""

_LINGER_BYTES: Final = 64 << 10
_LOOKS: Final = 4
"""So often within a time limit the task looks whether it has passed."""


class ProtocolDriver(asyncio.BufferedProtocol):
    """Serves one connection."""

    def __init__(self, sock: socket.socket, session: Session, caller: Caller, options: ServerOptions) -> None:
        """Prepare to serve a non-blocking socket, which then belongs to the event loop."""
        self._socket = sock
        self._session = session
        self._caller = caller
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._lost: OSError | None = None
        self._step: Step | NeedData = NEED_DATA
        self._unprocessed = 0
        self._linger: memoryview | None = None
        self._is_writable = True
        self._progress = self._loop.time()
        self._wake = asyncio.Event()

    async def serve(self) -> None:
        """Serve until either end has had enough.

        Raises:
            OSError: the client has gone, or takes nothing.
        """
        transport, _ = await self._loop.connect_accepted_socket(lambda: self, self._socket)
        try:
            while (step := await self._next_step()) is not Step.CLOSE:
                await self._perform(step)
                self._go_on()
            await self._drain()
            if self._session.connection.has_unread_body:
                await self._linger_on(transport)
        finally:
            transport.abort()

    def stop(self) -> None:
        """Do not wait for another request."""
        if self._step is NEED_DATA and self._session.is_idle:
            self._leave_to_task(Step.CLOSE)

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the transport has to tell whenever it keeps anything that was to be sent."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what asyncio promises, for mypy
        transport.set_write_buffer_limits(high=0)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for the next bytes."""
        return self._session.get_buffer(sizehint) if self._linger is None else self._linger

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come."""
        self._progress = self._loop.time()
        if self._linger is not None:
            return
        if self._session.pending_work(nbytes) > LONG_WORK:
            self._unprocessed = nbytes
            self._leave_to_task(NEED_DATA)
            return
        self._session.buffer_updated(nbytes)
        self._advance()

    def eof_received(self) -> bool:
        """Go on sending: a client that will send no more may still wait for its answer."""
        if self._linger is None:
            self._session.receive_eof()
            self._advance()
        else:
            self._lose(None)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake the task, which will find out when it next reads or writes."""
        self._lose(exc)

    def pause_writing(self) -> None:
        """Leave to the task what comes next."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Tell the task that all has been sent."""
        self._is_writable = True
        self._wake.set()

    # What is done at once

    def _advance(self) -> None:
        """Go on as far as nothing takes long."""
        session, transport = self._session, self._transport
        while (step := session.next_event()) is Step.SEND and self._is_writable and transport is not None:
            outgoing = session.outgoing
            if not isinstance(outgoing, list) or sum(map(len, outgoing)) > _AT_ONCE_BYTES:
                break
            transport.write(b"".join(outgoing))
        self._step = step
        if step is not NEED_DATA:
            self._leave_to_task(step)

    def _leave_to_task(self, step: Step | NeedData) -> None:
        self._step = step
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._wake.set()

    def _lose(self, error: Exception | None) -> None:
        self._lost = error if isinstance(error, OSError) else ConnectionResetError("the client has gone")
        self._wake.set()

    # What the task does

    async def _next_step(self) -> Step:
        """Wait until there is something to be done that takes long, or time is up."""
        options, session = self._options, self._session
        while True:
            if self._unprocessed:
                await self._process()
            if self._step is not NEED_DATA:
                return self._step
            if self._lost is not None:
                raise self._lost
            limit = options.idle_timeout if session.is_idle else options.read_timeout
            left = self._progress + limit - self._loop.time()
            if left <= 0:
                return Step.CLOSE if session.is_idle else session.give_up()
            await self._sleep(min(left, options.read_timeout / _LOOKS))

    async def _perform(self, step: Step) -> None:
        session = self._session
        if step is Step.CALL and session.inference is not None:
            session.answer(await self._caller.call(session.inference))
        outgoing, session.outgoing = session.outgoing, ()
        await self._send(outgoing)
        self._progress = self._loop.time()

    async def _process(self) -> None:
        """Have a thread look at what has come, if that takes long."""
        nbytes, self._unprocessed = self._unprocessed, 0
        await anyio.to_thread.run_sync(self._session.buffer_updated, nbytes)
        self._go_on()

    def _go_on(self) -> None:
        """Return to what is done at once."""
        self._advance()
        if self._step is NEED_DATA and self._transport is not None:
            self._transport.resume_reading()

    async def _send(self, buffers: Iterable[bytes | memoryview]) -> None:
        for buffer in buffers:
            view = memoryview(buffer)
            for start in range(0, len(view), _SLICE_BYTES):
                await self._drain()
                self._writable_transport().write(view[start : start + _SLICE_BYTES])

    async def _drain(self) -> None:
        """Wait until all has been sent.

        Raises:
            TimeoutError: the client took nothing for `write_timeout`.
        """
        left = math.inf
        while not self._is_writable:
            size = self._writable_transport().get_write_buffer_size()
            if size >= left:
                msg = "the client does not take its answer"
                raise TimeoutError(msg)
            left = size
            await self._sleep(self._options.write_timeout)

    async def _linger_on(self, transport: asyncio.Transport) -> None:
        """Let the client read the response before the connection closes on what it is still sending."""
        self._linger = memoryview(bytearray(_LINGER_BYTES))
        transport.write_eof()
        transport.resume_reading()
        with anyio.move_on_after(self._options.linger_timeout):
            while self._lost is None:
                await self._sleep(self._options.linger_timeout)

    def _writable_transport(self) -> asyncio.Transport:
        if self._lost is not None or self._transport is None:
            raise self._lost or ConnectionResetError
        return self._transport

    async def _sleep(self, seconds: float) -> None:
        """Wait for something to happen, but not for ever."""
        with anyio.move_on_after(seconds):
            await self._wake.wait()
        self._wake.clear()
