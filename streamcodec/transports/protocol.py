"""Protocol: an event source on an asyncio transport. Plain asyncio and uvloop, TCP, Unix sockets and TLS.

asyncio writes into the memory that the source hands out (`asyncio.BufferedProtocol`), so a tensor's bytes go straight
to the tensor; TLS decrypts there. The transport reads while somebody waits for an event that has not come: then the
source wants bytes, so there is always a buffer to hand out, and a program that is busy elsewhere (a decision, an
answer, a window that is being worked on) makes the peer wait.

Nothing here measures time: whoever waits puts `asyncio.timeout` around it. A wait that is cut short loses nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Generic, cast

from streamcodec.engine.events import NEED_DATA, NEED_TURN, NeedData, NeedTurn
from streamcodec.transports import turns
from streamcodec.transports.source import READ_BYTES, EventSource, EventT
from streamcodec.transports.vectors import Parts, async_batches, pieces


class EventProtocol(asyncio.BufferedProtocol, Generic[EventT]):
    """One connection, whose events and buffers belong to one event source.

    Example::

        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: EventProtocol(ClientConnection()), "127.0.0.1", 8000)

    Attributes:
        source: a `Decoder`, `ServerConnection` or `ClientConnection`, or what has the same methods.
        transport: the connection, once it has been made; to be closed by whoever made it.
        given: bytes that the transport was given to send.
    """

    transport: asyncio.Transport

    def __init__(self, source: EventSource[EventT]) -> None:
        """Wait for the connection; inside a running event loop."""
        self.source = source
        self.given: int = 0
        self._loop = asyncio.get_running_loop()
        self._event: EventT | NeedData | NeedTurn = NEED_DATA
        self._is_reading = False
        self._is_writable = True
        self._lost: Exception | None = None
        self._waiters: set[asyncio.Future[None]] = set()

    async def next_event(self) -> EventT:
        """Return the source's next event, reading as needed.

        Raises:
            RemoteProtocolError: what the peer has sent breaks a rule.
            OSError: the connection is broken.
        """
        while True:
            event, self._event = self._event, NEED_DATA
            if event is NEED_DATA:
                event = self.source.next_event()
            if event is NEED_DATA:
                await self._read()
            elif event is NEED_TURN:
                await turns.work(self.source)
            else:
                return event

    async def send(self, parts: Parts) -> None:
        """Send the parts of a message, of which some may be made meanwhile.

        Returns when the transport keeps none of their memory any more.

        Raises:
            LocalProtocolError: the windows of a part are not what was declared. What has been sent is no whole message:
                the connection must be closed.
            OSError: the connection is broken.
        """
        async with aclosing(async_batches(parts)) as coming:
            async for batch in coming:
                for piece in pieces(batch):
                    self._check()
                    if self.transport.is_closing():  # it could not write, and will say so in its next turn
                        msg = "the connection has been closed"
                        raise ConnectionResetError(msg)
                    self.transport.write(piece)
                    self.given += len(piece)
                    await self._drain()  # before the next is asked for, which may come in the same memory

    def received(self) -> None:
        """Look at what has come; by default, an event ends the wait for it. Called by asyncio: may not take long."""
        try:
            self._event = self.source.next_event()
        except Exception:  # noqa: BLE001 - the source will raise it again, to the one who waits
            self._stop_reading()
        else:
            if self._event is not NEED_DATA:
                self._stop_reading()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the transport has to tell whenever it keeps anything that was to be sent."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are none by name
        # For 0, asyncio's TLS would say in turn that writing is to be paused and resumed, with nothing to be written.
        self.transport.set_write_buffer_limits(high=int(self._is_encrypted))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for the next bytes."""
        return self.source.get_buffer(sizehint)[:READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come."""
        self.source.buffer_updated(nbytes)
        self.received()
        if not self._is_reading:  # reading cannot be paused from the start: TLS would not end its handshake
            self._pause()

    def eof_received(self) -> bool:
        """Keep the connection: who has sent all may still wait for the answer. TLS cannot be closed by halves."""
        self.source.receive_eof()
        if self._event is NEED_DATA:  # else, over TLS, it has come in one turn with what was before it
            self.received()
        return not self._is_encrypted

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waiting."""
        self._lost = exc or ConnectionResetError("the connection has been closed")
        self._wake()

    def pause_writing(self) -> None:
        """Let the sender wait."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Let the sender go on."""
        self._is_writable = True
        self._wake()

    # Waiting

    @property
    def _is_encrypted(self) -> bool:
        return self.transport.get_extra_info("ssl_object") is not None

    async def _read(self) -> None:
        self._check()
        self._is_reading = True
        self.transport.resume_reading()
        try:
            await self._sleep()
        finally:
            self._is_reading = False
            self._pause()

    async def _drain(self) -> None:
        while not self._is_writable:
            self._check()
            await self._sleep()
        self._check()

    def _check(self) -> None:
        if self._lost is not None:  # the same error again would keep, by its traceback, who had it before
            raise ConnectionResetError(str(self._lost)) from self._lost

    async def _sleep(self) -> None:
        """Wait for something to happen."""
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _stop_reading(self) -> None:
        """End the wait for an event at once: uvloop would ask for another buffer before anybody has woken up."""
        self._pause()
        self._wake()

    def _pause(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
