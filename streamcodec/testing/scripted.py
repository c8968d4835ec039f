"""Scripted transports: connections that follow a script.

Real sockets split data at random places. A scripted transport splits data and fails exactly where the test says, and in
the same way in each run. The incoming script is a list of steps. A step of bytes is the result of one read. A step that
is an exception is raised instead of a read. After the last step the input has ended. Outgoing data are recorded, and a
second list of steps says how many bytes each write takes.

A `ScriptedSocket` contains a real socket that is always readable and writable. So blocking code, selectors, and anyio
on any event loop can use it. Only its reads and writes are scripted. A `ScriptedTransport` is a transport that asyncio
passes to a protocol.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

Incoming = bytes | Exception
"""One read: bytes to return (the next read returns the rest if they do not fit), or an exception to raise.
`BlockingIOError` is a spurious wakeup. Empty bytes are an end of input that is followed by more steps."""

Outgoing = int | Exception
"""One write: the largest number of bytes to take, or an exception to raise."""


_READ_BYTES: Final = 256 << 10
"""At most in one read of a protocol that gives no buffer, as asyncio does it."""


class _Script:
    """What comes and goes, step by step."""

    def __init__(self, incoming: Iterable[Incoming], outgoing: Iterable[Outgoing]) -> None:
        self.incoming = deque(incoming)
        self.outgoing = deque(outgoing)
        self.sent = bytearray()

    def read(self, nbytes: int) -> bytes:
        step = self.incoming.popleft() if self.incoming else b""
        if isinstance(step, Exception):
            raise step
        if len(step) > nbytes:
            self.incoming.appendleft(step[nbytes:])
        return step[:nbytes]

    def write(self, data: bytes) -> int:
        step = self.outgoing.popleft() if self.outgoing else len(data)
        if isinstance(step, Exception):
            raise step
        taken = data[:step]
        self.sent += taken
        return len(taken)


class ScriptedSocket(socket.socket):
    """A socket whose reads and writes are scripted, for `streamcodec.transports.sync` and `aio`, or code of your own.

    It has to be closed, or used as a context manager, as any socket.

    Args:
        incoming: the result or exception of each read; after the last step the input has ended.
        outgoing: the largest number of bytes for each write, or its exception; after the last step, writes take all.

    Example:
        >>> import streamcodec
        >>> from streamcodec.transports import sync
        >>> text = b'{"inputs":[{"name":"x","datatype":"INT8","shape":[2],"data":[1,-1]}]}'
        >>> decoder = streamcodec.request_decoder(header_length=None, body_length=len(text))
        >>> with ScriptedSocket([text[:10], text[10:]], [3]) as sock:
        ...     header = sync.next_event(sock, decoder)
        ...     sync.send(sock, [b"thank ", b"you"])
        ...     sock.sent, sock.writes
        (b'thank you', [3, 6])
    """

    def __init__(self, incoming: Iterable[Incoming], outgoing: Iterable[Outgoing] = ()) -> None:
        """Make a pair of sockets. The other end has sent a byte that is never read, so the socket is readable."""
        ours, self._other = socket.socketpair()
        super().__init__(ours.family, ours.type, ours.proto, ours.detach())
        self._other.send(b"!")
        self._script = _Script(incoming, outgoing)
        self.reads: list[int] = []
        """Bytes that each read has returned."""
        self.writes: list[int] = []
        """Bytes that each write has taken."""

    @property
    def sent(self) -> bytes:
        """All that has been written to the socket."""
        return bytes(self._script.sent)

    @property
    def is_read(self) -> bool:
        """Whether all steps of the incoming script have been read, though perhaps not the end after them."""
        return not self._script.incoming

    def close(self) -> None:
        """Close the socket, and the other end of its pair."""
        self._other.close()
        super().close()

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:  # noqa: ARG002 - the signature is the socket's
        """Read what the script brings next."""
        data = self._script.read(bufsize)
        self.reads.append(len(data))
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:  # noqa: ANN401, ARG002 - the socket's
        """Read what the script brings next into a buffer."""
        return self.recvmsg_into([memoryview(buffer).cast("B")[: nbytes or None]])[0]

    def recvmsg_into(
        self,
        buffers: Iterable[Any],
        ancbufsize: int = 0,  # noqa: ARG002 - the signature is the socket's
        flags: int = 0,  # noqa: ARG002 - the same
        /,
    ) -> tuple[int, list[Any], int, None]:
        """Read what the script brings next into several buffers."""
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        rest = memoryview(self.recv(sum(map(len, views))))
        count = len(rest)
        for view in views:
            part, rest = rest[: len(view)], rest[len(view) :]
            view[: len(part)] = part
        return count, [], 0, None

    def send(self, data: Any, flags: int = 0, /) -> int:  # noqa: ANN401, ARG002 - the signature is the socket's
        """Write data, as far as the script takes them."""
        count = self._script.write(bytes(data))
        self.writes.append(count)
        return count

    def sendmsg(self, buffers: Iterable[Any], *others: Any) -> int:  # noqa: ANN401, ARG002 - the signature is the socket's
        """Write several buffers, as far as the script takes them."""
        return self.send(b"".join(buffers))

    def sendall(self, data: Any, flags: int = 0, /) -> None:  # noqa: ANN401, ARG002 - the signature is the socket's
        """Write data until the script has taken all."""
        rest = bytes(data)
        while rest:
            rest = rest[self.send(rest) :]


class ScriptedTransport(asyncio.Transport):
    """An asyncio transport that is scripted, for `streamcodec.transports.protocol`, or any protocol of asyncio.

    One step is done in each turn of the event loop. Bytes that a write does not take are kept for the next turns, as a
    view of the caller's memory. So a caller that changes the memory too early is detected.

    Args:
        incoming: the bytes of each turn, or an exception that breaks the connection; then the input has ended.
        outgoing: how many bytes are taken at once, or an exception that breaks the connection; then all are taken.
        extra: the values for `get_extra_info`.
    """

    def __init__(
        self,
        incoming: Iterable[Incoming],
        outgoing: Iterable[Outgoing] = (),
        *,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare the script, which begins with `connect`."""
        super().__init__(dict(extra or {}))
        self._script = _Script(incoming, outgoing)
        self._kept: deque[memoryview] = deque()
        self._low, self._high = 16 << 10, 64 << 10  # asyncio's
        self._is_connected = self._is_scheduled = self._is_reading_paused = self._is_writing_paused = False
        self._has_ended = self._is_closing = self._is_lost = False
        self.has_written_eof: bool = False
        """Whether `write_eof` has been called."""

    @property
    def sent(self) -> bytes:
        """All that has been written and taken."""
        return bytes(self._script.sent)

    def connect(self, protocol: asyncio.BufferedProtocol | asyncio.Protocol) -> None:
        """Give the transport to a protocol, inside of a running event loop, and begin with the script."""
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._is_connected = True
        protocol.connection_made(self)
        self._wake()

    # What a protocol reads

    def is_reading(self) -> bool:
        """Tell whether the transport would bring bytes in its next turn."""
        return not (self._is_reading_paused or self._has_ended or self._is_closing)

    def pause_reading(self) -> None:
        """Bring nothing until `resume_reading`."""
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        """Bring bytes again, after `pause_reading`."""
        self._is_reading_paused = False
        self._wake()

    # What a protocol writes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write data, as far as the script takes them at once; keep the rest."""
        if self._is_closing or not data:
            return
        self._kept.append(memoryview(data).cast("B"))
        self._guarded(self._write)
        if self.get_write_buffer_size() > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()
        self._wake()

    def can_write_eof(self) -> bool:
        """Tell that `write_eof` can be called."""
        return True

    def write_eof(self) -> None:
        """Record that no more will be written."""
        self.has_written_eof = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how much is kept before the protocol is told to pause, and how little before it is told to resume."""
        self._high = (64 << 10 if low is None else 4 * low) if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return how little is kept before the protocol is told to resume, and how much before it is told to pause."""
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are kept."""
        return sum(map(len, self._kept))

    # The end

    def is_closing(self) -> bool:
        """Tell whether the transport is closed, or will be when all has been taken."""
        return self._is_closing

    def close(self) -> None:
        """Close the connection when all that was written has been taken."""
        self._is_closing = True
        self._wake()

    def abort(self) -> None:
        """Close the connection without what was written and has not been taken."""
        self._kept.clear()
        self.close()

    # The script

    def _wake(self) -> None:
        if self._is_connected and not self._is_scheduled and not self._is_lost:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Do a step in each direction, and come back while there is more to do."""
        self._is_scheduled = False
        if self._kept:
            self._guarded(self._write)
        if self.is_reading():
            self._guarded(self._read)
        if self._is_closing and not self._kept:
            self._lose(None)
        elif self._kept or self.is_reading():
            self._wake()

    def _guarded(self, step: Callable[[], None]) -> None:
        """Do a step. As with asyncio, any exception breaks the connection, also one of the protocol itself."""
        try:
            step()
        except Exception as failure:  # noqa: BLE001 - as said
            self._lose(failure)

    def _lose(self, failure: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._kept.clear()
            self._loop.call_soon(self._protocol.connection_lost, failure)

    def _write(self) -> None:
        try:
            count = self._script.write(b"".join(self._kept))
        except BlockingIOError:
            return
        while count and count >= len(self._kept[0]):
            count -= len(self._kept.popleft())
        if count:
            self._kept[0] = self._kept[0][count:]
        if self._is_writing_paused and self.get_write_buffer_size() <= self._low:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def _read(self) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1)).cast("B")
            if not buffer:
                msg = "get_buffer() returned an empty buffer"  # asyncio's words
                raise RuntimeError(msg)
            if data := self._incoming(len(buffer)):
                buffer[: len(data)] = data
                protocol.buffer_updated(len(data))
        elif data := self._incoming(_READ_BYTES):
            protocol.data_received(data)
        if data == b"":
            self._has_ended = True
            if not protocol.eof_received():
                self.close()

    def _incoming(self, nbytes: int) -> bytes | None:
        """Return what comes next; None for a false alarm. One that the protocol raises is a fault as any other."""
        try:
            return self._script.read(nbytes)
        except BlockingIOError:
            return None
