"""Files: messages through any object with `readinto` or `read`, and `write`. Blocking; needs only numpy.

Files on disk and in memory, pipes, serial lines, ptys, compressed files, mapped files, `socket.makefile`, the body of
an HTTP response: all have the same methods. But an empty result has different meanings. For most of them, a read of no
bytes is the end. A serial line returns no bytes after its timeout, and a file that is still being written does so if
there are no more bytes yet. Only the caller knows the meaning, and gives it as `empty_is_end`. `None` is never the end:
a non-blocking file returns it if it has no bytes now.

"No bytes now" means waiting. If the file does not block and has a descriptor, the system tells when to go on. Otherwise
the file is asked again after a short time. `timeout` limits the wait. It cannot interrupt a blocking read. So a file
must have its own timeout, as serial lines have, or must not block (`os.set_blocking`).

A read goes straight to the place of the bytes, and never beyond the message, so the next reader gets what follows. No
byte of a buffered file is lost if a system read fails; `_Reader` says how.
"""

from __future__ import annotations

import io
import math
import select
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.events import NEED_DATA, NEED_TURN, HeaderT
from streamcodec.transports.sockets.received import Collecting, MessageEvent, Received
from streamcodec.transports.source import Encoded, EventSource, EventT
from streamcodec.transports.tls.sockets import POLLIN, POLLOUT

_BYTES_AT_ONCE: Final = 256 << 10
"""The most for one read or write, because compressed files produce this much at once, and serial lines copy it. 64 MiB
of a file in memory took 23 ms of CPU in reads of 64 KiB, 21 ms in reads of this size, 20 ms in one read."""

_HAS_POLL: Final = hasattr(select, "poll")
"""Elsewhere only sockets can be waited for, so that files are asked again."""

_BUFFERED: Final = (io.BufferedReader, io.BufferedRandom, io.BufferedRWPair)
"""Files that `_Reader` may `peek` into. The `peek` of others, as of an HTTP response, may wait for the next message."""

_IDLE_SECONDS: Final = 0.002
"""How long to wait for a file that cannot tell when it has bytes. At 8 Mbit/s, 2 kB arrive in that time, half of what
the system buffers for a serial line."""


class HasReadinto(Protocol):
    """A file that fills a buffer, as most do."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read into the buffer; return how many bytes, None if there are none now."""
        ...


class HasRead(Protocol):
    """A file that returns `bytes` of its own, such as a mapped file."""

    def read(self, nbytes: int, /) -> bytes | None:
        """Return at most `nbytes` bytes; None if there are none now."""
        ...


Readable = HasReadinto | HasRead
"""Objects that can be read."""


class Writable(Protocol):
    """Objects that can be written."""

    def write(self, data: memoryview, /) -> object:
        """Take bytes; return how many.

        None means all of them, except for an `io.RawIOBase`, where it means none now. `BlockingIOError` is used as in
        `io`.
        """
        ...


def decode(
    file: Readable, decoder: Decoder[HeaderT], *, timeout: float | None = None, empty_is_end: bool = True
) -> Received[HeaderT]:
    """Read one message; what follows it stays in the file.

    Args:
        file: at the beginning of the message.
        decoder: a new one, of any format. It chooses the memory of the tensors.
        timeout: seconds without a byte before giving up; see `next_event`.
        empty_is_end: whether a read of no bytes is the end; see `next_event`.

    Returns:
        The message, with all of its tensors.

    Raises:
        RemoteProtocolError: the message breaks a rule, or ends too early.
        LocalProtocolError: a tensor is placed in windows; take its events one by one with `next_event`.
        TimeoutError: no byte arrived for `timeout` seconds. To continue, take the events with `next_event`.
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
        file: binary; open a file descriptor with `open(fd, "rb", 0)`.
        source: a `Decoder`, a `FrameReader`, or an object with the same methods.
        timeout: seconds without a byte before giving up, for a file that does not block or has its own timeout; 0 takes
            what has arrived; None waits for ever.
        empty_is_end: whether a read of no bytes is the end of the input. Use False for a serial line with a timeout,
            and for a growing file: they end only with the message.

    Raises:
        RemoteProtocolError: the content of the file breaks a rule.
        TimeoutError: no byte arrived for `timeout` seconds. Nothing is lost, and the next call continues.
        OSError: the file cannot be read. For a pty, Linux reports EIO (`errno.EIO`) when the other end has been closed.
    """
    event = source.next_event()
    if not (event is NEED_DATA or event is NEED_TURN):
        return event
    reader = _Reader(file)
    patience = _Patience(file, timeout)
    while event is NEED_DATA or event is NEED_TURN:
        if event is NEED_TURN:
            source.work()
            patience.renew()
        else:
            nbytes = reader.read(source.get_buffer()[:_BYTES_AT_ONCE])
            if nbytes:
                source.buffer_updated(nbytes)
                patience.renew()
            elif nbytes == 0 and empty_is_end:
                source.receive_eof()
            else:
                patience.wait(POLLIN, is_told=nbytes is None)
        event = source.next_event()
    return event


def encode_to(message: Encoded, file: Writable, *, timeout: float | None = None) -> None:
    """Write a message, one buffer after the other. Nothing is joined, and each window is requested when it is its turn.

    Args:
        message: of any format. Its `Rows` are not asynchronous.
        file: binary; it may take a part at a time, or nothing for some time. The caller flushes what it buffers.
        timeout: seconds without progress before giving up; None waits for ever.

    Raises:
        LocalProtocolError: windows differ from the declaration. Then only a part of the message has been written; the
            same holds after any other exception.
        TimeoutError: the file took nothing for `timeout` seconds.
        OSError: the file cannot be written.
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
                patience.wait(POLLOUT, is_told=True)
            elif not nbytes:
                patience.wait(POLLOUT, is_told=False)


class _Reader:
    """Reads a file, without the loss of a byte if the system's read fails.

    `readinto1` of a buffered file copies what the buffer has. If the room is larger than the whole buffer, it then asks
    the system for more, and forgets what it has copied if that fails. So a large room must not meet bytes in the
    buffer: `peek` tells how many there are, and exactly these are read first. But `peek` fills an empty buffer, and
    such bytes are copied twice. So it is not used if the buffer is known to be empty, or not smaller than the room.
    """

    def __init__(self, file: Readable) -> None:
        self._readinto: Callable[[memoryview], int | None] = (
            getattr(file, "readinto1", None) or getattr(file, "readinto", None) or partial(_fill, file)
        )
        self._buffer = file if isinstance(file, _BUFFERED) else None
        self._safe_nbytes: float = 0

    def read(self, room: memoryview) -> int | None:
        """Read once; return how many bytes were read, None if the file has none now."""
        if self._buffer is None:
            return self._readinto(room)
        buffered = len(self._buffer.peek(1)) if len(room) > self._safe_nbytes else None
        room = room[: buffered or None]
        nbytes = self._readinto(room)
        # The buffer can have more only if it had enough for the whole room, and so is not smaller than that.
        self._safe_nbytes = len(room) if nbytes == len(room) != buffered else math.inf
        return nbytes


def _fill(file: Any, room: memoryview) -> int | None:  # noqa: ANN401 - a `Readable` without `readinto`
    """Do what `readinto` does, for a file that only has `read`."""
    data: bytes | None = file.read(len(room))
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
    """A limit on the time without progress."""

    def __init__(self, file: object, timeout: float | None) -> None:
        self._file = file
        self._timeout = math.inf if timeout is None else timeout
        self.renew()

    def renew(self) -> None:
        """Restart the time: there was progress."""
        self._end = time.monotonic() + self._timeout

    def wait(self, event: int, *, is_told: bool) -> None:
        """Wait before the next try.

        Args:
            event: the event of `select.poll` to wait for.
            is_told: whether the file has said that it would block. The system then tells when it no longer would.

        Raises:
            TimeoutError: there was no progress for too long.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            msg = f"nothing has moved for {self._timeout:g} seconds"
            raise TimeoutError(msg)
        descriptor = _descriptor(self._file) if is_told and _HAS_POLL else None
        if descriptor is None:
            time.sleep(min(left, _IDLE_SECONDS))
            return
        poll = select.poll()
        poll.register(descriptor, event)
        found = poll.poll(None if left == math.inf else math.ceil(left * 1000))
        if any(events & select.POLLNVAL for _, events in found):  # of macOS, for devices that it cannot wait for
            time.sleep(min(left, _IDLE_SECONDS))


def _descriptor(file: object) -> int | None:
    """Return the descriptor of a file; None if it has none."""
    try:
        descriptor: int = file.fileno()  # type: ignore[attr-defined]  # it may be missing
    except (AttributeError, OSError):
        return None
    return descriptor
