"""Files: messages through whatever has `readinto` or `read`, and `write`. Blocking; it needs numpy alone.

Files on disk and in memory, pipes, serial lines, ptys, compressed files, mapped ones, `socket.makefile`, the body of an
HTTP response: all have the same methods, and do not mean the same when these return nothing. Of most, a read of no
bytes is the end. A serial line returns no bytes when its time is over, and a file that is still being written, when
there are no more yet. Only the caller can know, so the caller says it: `empty_is_end`. What nobody needs to say is that
`None` is not the end. The system says so of a file that does not block, and that nothing is there now.

Nothing now means to wait. If the file does not block and has a descriptor, the system tells when to go on; else the
file is asked again after a short time. `timeout` bounds that. It cannot interrupt a read that blocks, so a file has to
have a time limit of its own, as serial lines have, or not to block (`os.set_blocking`).

A read goes straight to where the bytes belong, and never reaches beyond the message, so that what follows is the next
reader's. Of what is buffered (`readinto1`) one read of the system is asked for at a time: a buffer that insists on more
would lose what it has when the next read fails.
"""

from __future__ import annotations

import io
import math
import select
import time
from typing import Final, Protocol

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.events import NEED_DATA, NEED_TURN, HeaderT
from streamcodec.transports.received import Collecting, MessageEvent, Received
from streamcodec.transports.source import Encoded, EventSource, EventT

_BYTES_AT_ONCE: Final = 256 << 10
"""In one read or write: compressed files make so much at once, and serial lines a copy of it. 64 MiB of a file in
memory took 23 ms of CPU in reads of 64 KiB, 21 of these, 20 in one."""

_IDLE_SECONDS: Final = 0.002
"""Until a file is asked again that cannot tell when it has something. At 8 Mbit/s, 2 kB come in that time, half of what
the system keeps of a serial line."""


class HasReadinto(Protocol):
    """A file that fills a buffer, as most do."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read into the buffer; return how many bytes, None if there are none now."""
        ...


class HasRead(Protocol):
    """A file that has its own bytes, as a mapped one."""

    def read(self, nbytes: int, /) -> bytes | None:
        """Return so many bytes at most; None if there are none now."""
        ...


Readable = HasReadinto | HasRead
"""What can be read from."""


class Writable(Protocol):
    """What can be written to."""

    def write(self, data: memoryview, /) -> object:
        """Take bytes; return how many.

        None is for all of them, but of an `io.RawIOBase` for none now. `BlockingIOError` is as `io` has it.
        """
        ...


def decode(
    file: Readable, decoder: Decoder[HeaderT], *, timeout: float | None = None, empty_is_end: bool = True
) -> Received[HeaderT]:
    """Read one message; what follows it stays in the file.

    Args:
        file: at the beginning of the message.
        decoder: a new one, of any format, which says where the tensors go.
        timeout: seconds without a byte before giving up, see `next_event`.
        empty_is_end: whether a read of no bytes is the end, see `next_event`.

    Raises:
        RemoteProtocolError: the message breaks a rule, or ends too early.
        LocalProtocolError: a tensor is placed in windows: take its events one by one, by `next_event`.
        TimeoutError: nothing came for `timeout` seconds. Who wants to go on then takes the events by `next_event`.
        OSError: the file cannot be read.

    Example:
        >>> import io
        >>> import numpy as np
        >>> from streamcodec.formats import npy
        >>> file = io.BytesIO()
        >>> encode_to(npy.encode(np.arange(3)), file)
        >>> encode_to(npy.encode(np.ones((2, 2))), file)
        >>> _ = file.seek(0)
        >>> [decode(file, npy.decoder())["array"].shape for _ in range(2)]
        [(3,), (2, 2)]
    """
    collecting = Collecting[HeaderT]()
    source: EventSource[MessageEvent[HeaderT]] = decoder
    received = None
    while received is None:
        received = collecting.receive(next_event(file, source, timeout=timeout, empty_is_end=empty_is_end))
    return received


def next_event(
    file: Readable, source: EventSource[EventT], *, timeout: float | None = None, empty_is_end: bool = True
) -> EventT:
    """Return the source's next event, reading from a file as needed.

    Args:
        file: binary; a file descriptor is opened by `open(fd, "rb", 0)`.
        source: a `Decoder`, a `FrameReader`, or what has the same methods.
        timeout: seconds without a byte before giving up, of a file that does not block or has a time limit of its own;
            0 takes what is there; None waits for ever.
        empty_is_end: whether a read of no bytes is the end of the input. False for a serial line with a time limit, and
            for a file that is still growing: these have no end, but for that of the message.

    Raises:
        RemoteProtocolError: what the file holds breaks a rule.
        TimeoutError: nothing came for `timeout` seconds. Nothing is lost, and the next call goes on.
        OSError: the file cannot be read. Of a pty, Linux says EIO (`errno.EIO`) when the other end has been closed.
    """
    event = source.next_event()
    if not (event is NEED_DATA or event is NEED_TURN):
        return event
    patience = _Patience(file, timeout)
    while event is NEED_DATA or event is NEED_TURN:
        if event is NEED_TURN:
            source.work()
            patience.renew()
        else:
            nbytes = _read(file, source.get_buffer()[:_BYTES_AT_ONCE])
            if nbytes:
                source.buffer_updated(nbytes)
                patience.renew()
            elif nbytes == 0 and empty_is_end:
                source.receive_eof()
            else:
                patience.wait(select.POLLIN, is_told=nbytes is None)
        event = source.next_event()
    return event


def encode_to(message: Encoded, file: Writable, *, timeout: float | None = None) -> None:
    """Write a message, buffer after buffer: nothing is joined, and windows are asked for when it is their turn.

    Args:
        message: of any format. Its `Rows` are not asynchronous.
        file: binary; it may take a part at a time, or nothing for some time. What it buffers is flushed by its owner.
        timeout: seconds in which it takes nothing before giving up; None waits for ever.

    Raises:
        LocalProtocolError: windows are not what was declared. What was written is no whole message then, nor after any
            other exception.
        TimeoutError: it took nothing for `timeout` seconds.
        OSError: the file cannot be written to.
    """
    patience = _Patience(file, timeout)
    for buffer in message.buffers:
        view = memoryview(buffer)
        while view:
            nbytes, is_blocked = _write(file, view[:_BYTES_AT_ONCE])
            view = view[nbytes:]
            if nbytes:
                patience.renew()
            if is_blocked:
                patience.wait(select.POLLOUT, is_told=True)
            elif not nbytes:
                patience.wait(select.POLLOUT, is_told=False)


def _read(file: Readable, room: memoryview) -> int | None:
    """Read once; return how many bytes have come, None if the file says that there are none now."""
    readinto = getattr(file, "readinto1", None) or getattr(file, "readinto", None)
    if readinto is not None:
        nbytes: int | None = readinto(room)
        return nbytes
    data = file.read(len(room))  # type: ignore[union-attr]  # what has no `readinto` has this
    if data is None:
        return None
    room[: len(data)] = data
    return len(data)


def _write(file: Writable, view: memoryview) -> tuple[int, bool]:
    """Write once; return how many bytes were taken, and whether the file says that it takes no more now."""
    try:
        nbytes = file.write(view)
    except BlockingIOError as error:
        return error.characters_written, True
    if isinstance(nbytes, int):
        return nbytes, False
    return (0, True) if isinstance(file, io.RawIOBase) else (len(view), False)


class _Patience:
    """Time without progress."""

    def __init__(self, file: object, timeout: float | None) -> None:
        self._file = file
        self._timeout = math.inf if timeout is None else timeout
        self.renew()

    def renew(self) -> None:
        """Begin anew: something has moved."""
        self._end = time.monotonic() + self._timeout

    def wait(self, event: int, *, is_told: bool) -> None:
        """Wait a while before the file is tried again.

        Args:
            event: what is waited for, one of `select.poll`.
            is_told: whether the file has said that it would have blocked; then the system tells when it will not.

        Raises:
            TimeoutError: nothing has moved for too long.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            msg = f"nothing has moved for {self._timeout:g} seconds"
            raise TimeoutError(msg)
        descriptor = _descriptor(self._file) if is_told else None
        if descriptor is None:
            time.sleep(min(left, _IDLE_SECONDS))
            return
        poll = select.poll()
        poll.register(descriptor, event)
        poll.poll(None if left == math.inf else math.ceil(left * 1000))


def _descriptor(file: object) -> int | None:
    """Return the descriptor of a file; None of what is none of the system's."""
    try:
        descriptor: int = file.fileno()  # type: ignore[attr-defined]  # that is the question
    except (AttributeError, OSError):
        return None
    return descriptor
