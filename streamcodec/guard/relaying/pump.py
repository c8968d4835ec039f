"""Pump: moves bytes from one socket to another within callbacks of asyncio, a bounded number at a time.

Bytes are read when those before them have been taken. So a slow reader holds up the sender on the other side. What has
to be checked is copied through memory. All else goes through a pipe of the system, if there is one, and is not copied.
Memory and pipes are shared by all pumps: one has some only from a read until the system has taken all of it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from streamcodec.http.scratch import NOTHING, borrow, give_back
from streamcodec.transports import turns
from streamcodec.transports.sockets.pipes import Pipe, Pipes
from streamcodec.transports.sockets.system import reset_poll, send_some

PUMP_BYTES: Final = 256 << 10
"""Most bytes of one read. They are sent while they are in the processor's cache."""


Check = Callable[[memoryview], None]
"""Takes the next bytes, and raises `MessageError` if they break a rule."""


class Readiness:
    """Calls a function when a socket can be read and it is the turn; see `turns`."""

    def __init__(self, call: Callable[[], None], is_urgent: Callable[[], bool]) -> None:
        """Prepare.

        Args:
            call: raises nothing.
            is_urgent: whether it is about a health check; only asked if others wait, too.
        """
        self._loop = asyncio.get_running_loop()
        self._turns = turns.of_loop()
        self._call = call
        self._asks = is_urgent
        self._socket: socket.socket | None = None
        self._resets: Any = None
        self._is_behind = False

    @property
    def is_urgent(self) -> bool:
        """Whether it is about a health check. To look at bytes of a reset connection would take its error away."""
        return not self._resets.poll(0) and self._asks()

    def start(self, sock: socket.socket) -> None:
        """Look at a socket, unless that is done already."""
        if self._socket is None:
            self._socket = sock
            self._resets = reset_poll(sock)
            self._loop.add_reader(sock, self._readable)

    def stop(self) -> None:
        """Look at it no more."""
        sock, self._socket = self._socket, None
        if sock is not None and not self._is_behind:
            self._loop.remove_reader(sock)
        self._is_behind = False

    def close(self) -> None:
        """Stop for ever, and refer to nobody."""
        self.stop()
        self._call = do_nothing
        self._asks = bool

    def _readable(self) -> None:
        if self._turns.is_over(self):
            self._loop.remove_reader(cast("socket.socket", self._socket))
            self._is_behind = True
            self._turns.later(self._catch_up, self)
            return
        self._call()
        if self._socket is not None and self._resets.poll(0):
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        """Go on to the reset, unless that has been done, or is to be done later."""
        if self._socket is not None and not self._is_behind:
            self._readable()

    def _catch_up(self) -> None:
        """Go on in a later turn, unless nobody wants to any more."""
        if self._is_behind:
            self._is_behind = False
            self._loop.add_reader(cast("socket.socket", self._socket), self._readable)
            self._call()


class Pump:
    """One direction of one exchange after the other.

    Attributes:
        left: bytes that have not been read.
        sent: bytes that it has taken.
        is_lost: whether it takes no more, because the connection has ended.
    """

    def __init__(self, reading: Readiness, drained: Callable[[], None], pipes: Pipes) -> None:
        """Prepare.

        Args:
            reading: looks at the source.
            drained: called when bytes have been sent that had to wait, or cannot be sent.
            pipes: of all pumps.
        """
        self._loop = asyncio.get_running_loop()
        self._reading = reading
        self._drained = drained
        self._memory = NOTHING
        self._pipes = pipes
        self._pipe: Pipe | None = None
        self._unsent: list[memoryview] = []
        self._source: socket.socket
        self._sink: socket.socket
        self._is_blocked = False
        self.left: int = 0
        self.sent: int = 0
        self.is_lost: bool = False

    @property
    def is_over(self) -> bool:
        """Whether everything has been sent."""
        return not (self.left or self._unsent or self._pipe)

    def begin(
        self,
        source: socket.socket,
        sink: socket.socket,
        buffers: list[memoryview],
        left: int,
        check: Check | None = None,
        *,
        is_more: bool,
    ) -> None:
        """Send some bytes, and so many others after them, which `read` gets.

        Args:
            source: of the others.
            sink: takes all of them.
            buffers: are sent at once.
            left: how many others there are.
            check: as of `read`.
            is_more: whether some of the others have probably come. If they are few, they are sent by the same call.

        Raises:
            OSError: the source is broken. Nothing has been sent.
            MessageError: raised by `check`. Nothing has been sent.
        """
        self._source, self._sink = source, sink
        self.left, self._unsent, self.sent, self.is_lost = left, buffers, 0, False
        if is_more and 0 < left <= PUMP_BYTES:
            with suppress(BlockingIOError):
                self._copy(check)
        self._send()

    def read(self, check: Check | None) -> bool:
        """Read once, and send what has come; return False at the end of the connection.

        Args:
            check: of the bytes, before they are sent; None if they need no check.

        Raises:
            BlockingIOError: nothing has come.
            OSError: the source is broken.
            MessageError: raised by `check`.
        """
        pipe = self._pipes.borrow() if check is None else None
        if pipe is None:
            count = self._copy(check)
        else:
            try:
                count = pipe.fill(self._source, self.left)
            except BaseException:
                self._pipes.give_back(pipe)
                raise
            self.left -= count
            self._pipe = pipe
        self._send()
        return bool(count)

    def _copy(self, check: Check | None) -> int:
        """Take what has come into memory."""
        memory = borrow(PUMP_BYTES)
        try:
            come = memory[: self._source.recv_into(memory[: self.left])]
            self.left -= len(come)
            if check is not None:
                check(come)
        except BaseException:
            give_back(memory)
            raise
        self._memory = memory
        self._unsent.append(come)
        return len(come)

    def unsent(self) -> list[memoryview]:
        """Return what has been read, and the system has not taken; only before `stop`."""
        return self._unsent if self._pipe is None else [memoryview(self._pipe.read())]

    def stop(self) -> None:
        """Send nothing more."""
        self._memory = NOTHING  # it belongs to who takes what is unsent
        self._release_pipe()
        if self._is_blocked:
            self._is_blocked = False
            self._loop.remove_writer(self._sink)

    def close(self) -> None:
        """Stop for ever, and refer to nobody."""
        self.stop()
        self._drained = do_nothing

    def _release_pipe(self) -> None:
        if self._pipe is not None:
            self._pipes.give_back(self._pipe)
            self._pipe = None

    def _send(self) -> None:
        sent = 0
        try:
            sent = send_some(self._sink, self._unsent) if self._pipe is None else self._pipe.empty(self._sink)
        except BlockingIOError:
            pass
        except OSError:
            self.is_lost = True
        self.sent += sent
        if self._pipe is None:
            self._unsent = [] if sent == sum(map(len, self._unsent)) else _rest(self._unsent, sent)
        elif not self._pipe.held:
            self._release_pipe()
        if not (self._unsent or self._pipe):
            if self._memory:
                give_back(self._memory)
                self._memory = NOTHING
        elif not (self._is_blocked or self.is_lost):
            self._is_blocked = True
            self._reading.stop()
            self._loop.add_writer(self._sink, self._writable)

    def _writable(self) -> None:
        self._send()
        if self.is_lost or not (self._unsent or self._pipe):
            self._is_blocked = False
            self._loop.remove_writer(self._sink)
            if not self.is_lost:
                self._reading.start(self._source)
            if self.is_lost or not self.left:
                self._drained()


def do_nothing() -> None:
    """Do nothing."""


def _rest(buffers: list[memoryview], sent: int) -> list[memoryview]:
    """Return the rest of some buffers, of which so many bytes have been sent."""
    rest = []
    for buffer in buffers:
        if sent < len(buffer):
            rest.append(buffer[sent:])
        sent = max(0, sent - len(buffer))
    return rest
