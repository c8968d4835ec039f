"""Protocol: an event source on an asyncio transport. Plain asyncio and uvloop, TCP, Unix sockets and TLS.

asyncio writes into the memory that the source gives (`asyncio.BufferedProtocol`). So tensor bytes go straight to the
tensor; with TLS they are decrypted there. The transport reads only while somebody waits for an event. The source then
wants bytes, so there is always a buffer. A program that is busy elsewhere (with a decision, an answer, or a window)
reads nothing, so the peer has to wait (back-pressure).

Nothing here measures time: use `asyncio.timeout` around a call. A cancelled wait loses nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Generic, cast

from streamcodec.engine.events import NEED_DATA, NEED_TURN, NeedData, NeedTurn
from streamcodec.transports import turns
from streamcodec.transports.sockets.vectors import Parts, async_batches, pieces
from streamcodec.transports.source import READ_BYTES, EventSource, EventT


class EventProtocol(asyncio.BufferedProtocol, Generic[EventT]):
    """One connection; its events and buffers belong to one event source.

    Example::

        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: EventProtocol(ClientConnection()), "127.0.0.1", 8000)

    Attributes:
        source: a `Decoder`, `ServerConnection` or `ClientConnection`, or an object with the same methods.
        transport: the connection, once it has been made. Whoever made it must close it.
        given: bytes that were given to the transport for sending.
    """

    transport: asyncio.Transport

    def __init__(self, source: EventSource[EventT]) -> None:
        """Prepare for the connection, inside a running event loop."""
        self.source = source
        self.given: int = 0
        self._loop = asyncio.get_running_loop()
        self._event: EventT | NeedData | NeedTurn = NEED_DATA
        self._is_reading = False
        self._is_writable = True
        self._lost: str | None = None
        self._waiters: set[asyncio.Future[None]] = set()

    async def next_event(self) -> EventT:
        """Return the source's next event, reading as needed.

        Raises:
            RemoteProtocolError: the peer's bytes break a rule.
            OSError: the connection is broken.
        """
        while True:
            if self._event is NEED_DATA and turns.must_wait(self.source):
                await turns.wait(self.source)  # meanwhile asyncio may bring an event
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
        """Send the parts of a message; some of them may be made meanwhile.

        It returns when the transport no longer uses their memory.

        Raises:
            LocalProtocolError: the windows of a part differ from the declaration. Then only a part of the message has
                been sent, and the connection must be closed.
            OSError: the connection is broken.
        """
        share = turns.Share(turns.of_loop())
        async with aclosing(async_batches(parts)) as coming:
            async for batch in coming:
                for piece in pieces(batch):
                    self._check()
                    if self.transport.is_closing():  # a write failed; the transport will report it in its next turn
                        msg = "the connection has been closed"
                        raise ConnectionResetError(msg)
                    self.transport.write(piece)
                    self.given += len(piece)
                    await self._drain()  # before the next buffer is made, because it may use the same memory
                    is_share_over = share.is_over(len(piece))
                    if turns.is_over(turns.LARGE):
                        await turns.wait(turns.LARGE)
                    elif is_share_over:
                        await asyncio.sleep(0)

    def received(self) -> None:
        """Look at the bytes that have arrived; asyncio calls this. By default, an event ends the wait for it.

        An override must be quick.
        """
        if self._event is not NEED_DATA:  # the waiting task has been woken, and has not taken it yet
            return
        try:
            self._event = self._next_event()
        except Exception:  # noqa: BLE001 - the source will raise it again, in the call that waits
            self._stop_reading()
        else:
            if self._event is not NEED_DATA:
                self._stop_reading()

    def _next_event(self) -> EventT | NeedData | NeedTurn:
        """Return the next event of the source. An override may handle an event itself, and return the next one."""
        return self.source.next_event()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin. The transport must report whenever it keeps bytes that it could not send."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are none by name
        # With a limit of 0, asyncio's TLS would pause and resume writing all the time without anything to write.
        self.transport.set_write_buffer_limits(high=int(self._is_encrypted))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for the next bytes."""
        buffer = self.source.get_buffer(sizehint)
        return buffer if len(buffer) <= READ_BYTES else buffer[:READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that have arrived."""
        self.source.buffer_updated(nbytes)
        self.received()
        if not self._is_reading:  # reading cannot be paused from the start: TLS would not end its handshake
            self._pause()

    def eof_received(self) -> bool:
        """Keep the connection: a peer that has sent everything may still wait for the answer. TLS has no half-close."""
        self.source.receive_eof()
        if self._event is NEED_DATA:  # else, over TLS, it came in the same turn as the bytes before it
            self.received()
        return not self._is_encrypted

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waiting."""
        # The error itself would keep what is sent: `send` is in its traceback, and refers to this.
        self._lost = str(exc or "") or "the connection has been closed"
        self._wake()

    def pause_writing(self) -> None:
        """Make the sender wait."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Let the sender continue."""
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
        if self._lost is not None:
            raise ConnectionResetError(self._lost)

    async def _sleep(self) -> None:
        """Wait until something happens."""
        waiter = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _stop_reading(self) -> None:
        """Stop the wait for an event at once: uvloop would ask for another buffer before the waiting task runs."""
        self._pause()
        self._wake()

    def _pause(self) -> None:
        if not self.transport.is_closing():
            self.transport.pause_reading()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
