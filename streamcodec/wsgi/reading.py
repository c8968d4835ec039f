"""Reading: the thread of a WSGI request brings its body, and waits for it: for bytes, and for memory.

It does what a `FrameworkRequest` says, as a task does under an event loop (`embedding.reading`). Only the waits differ:
the thread itself reads and works, and no code here can interrupt a read: only the server's own time limits can. After
each read, this module looks whether the client is fast enough for the memory that it holds.

If the server's stream has `readinto`, bytes of long bodies go directly into the receiver's memory. Else they are read
in pieces. Many streams return only when they have all bytes that were asked for. So a wrong request is refused the
sooner, the smaller the reads are. A read of a long body asks for what is needed next, which is the JSON header at
first, or for as much as has come before. No read asks for more than the rest of the body: with a server that does not
end its stream, it would block for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol, TypeVar, cast

from streamcodec.embedding.request import FrameworkRequest, Step, next_event
from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.formats.v2.model import Event
from streamcodec.http.bodies.fed import FedBody
from streamcodec.runtime.memory.waiting import block_for_memory
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.timeouts import ReadTimeout, too_slow

READ_BYTES: Final = 4 << 20
"""Most bytes of a read. gunicorn copies what it holds of a body in each read, so reads of 256 KiB take 1.5 times as
much CPU."""

_SHORT_BYTES: Final = 64 << 10
"""So much of a body is read at once, to its end: to refuse it earlier would save less than a second read costs. If one
read may bring all of a body, it is read as one whose head is known, so both have the same time."""

_T = TypeVar("_T")


class Readable(Protocol):
    """`wsgi.input`; some also have `readinto`."""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes; fewer only at the end, or if no more have arrived."""
        ...


class PeekedStream:
    """A stream from which a whole body has been read, or what there was of it. It returns these bytes once more.

    Attributes:
        body: the bytes.
        is_whole: whether they are the whole body.
        waited: from when to when they were read; None for a whole body, whose time nobody asks for.
    """

    def __init__(self, stream: Readable, length: int) -> None:
        """Read so many bytes. An error is raised by the next read: a read after it would not say the same."""
        since = monotonic()
        self._stream = stream
        self._failure: Exception | None = None
        self.body: bytes = b""
        try:
            self.body = stream.read(length)
        except (OSError, MemoryError) as error:
            self._failure = error
        self._begun = self.body
        self.is_whole: bool = len(self.body) == length
        self.waited: tuple[float, float] | None = None if self.is_whole else (since, monotonic())

    def read(self, size: int, /) -> bytes:
        """Return some of the bytes; when there are no more, read on."""
        failure, self._failure = self._failure, None  # its traceback refers to this object
        if failure is not None:
            raise failure
        if not self._begun:
            return self._stream.read(size)
        piece, self._begun = self._begun[:size], self._begun[size:]
        return piece


class ThreadReader:
    """Reads one request."""

    def __init__(self, request: FrameworkRequest, stream: Readable, options: ServerOptions) -> None:
        """Begin after the head; for the arguments see `TaskReader`."""
        self._request = request
        self._stream = stream
        self._read_into: Callable[[memoryview], int | None] | None = getattr(stream, "readinto", None)
        self._budget_timeout = options.budget_timeout
        self._read_timeout = ReadTimeout(options, request)
        if isinstance(stream, PeekedStream) and stream.waited is not None:
            self._read_timeout.has_waited(*stream.waited)

    def next_step(self) -> Step:
        """Return `CALL` or `END`; see `TaskReader`."""
        request = self._request
        while (step := self._until(request.next_step)) is Step.WAIT:
            request.granted(has_come=block_for_memory(request.reservation, self._budget_timeout))
        return step

    def next_event(self) -> Event:
        """Return the next event of the body, for a model that takes windows."""
        body = self._body
        return cast("Event", self._until(lambda: next_event(body)))

    @property
    def _body(self) -> FedBody:
        return cast("FedBody", self._request.body)

    def _until(self, go_on: Callable[[], _T]) -> _T:
        """Read and work until there is something else to do, and return that."""
        while (found := go_on()) is Step.READ or found is Step.WORK:
            if found is Step.READ:
                self._wait_for_bytes()
            else:
                self._body.work()
        return found

    def _wait_for_bytes(self) -> None:
        """Read once, and look how long that took.

        Raises:
            RemoteProtocolError: the connection is broken, or `too-slow`.
        """
        read_timeout, reservation = self._read_timeout, self._request.reservation
        reservation.begin_to_wait()
        read_timeout.resume()
        try:
            read_timeout.look(monotonic())
            self._read()
            if not self._body.has_ended:
                read_timeout.look(monotonic())
        except TimeoutError:
            raise self._request.too_slow() from None
        finally:
            read_timeout.pause(monotonic())
            reservation.end_to_wait()

    def _read(self) -> None:
        """Read some bytes of the body, or report to it the end of the input.

        Raises:
            RemoteProtocolError: the connection is broken, or the server has waited too long for a byte.
        """
        body = self._body
        left = READ_BYTES if body.remaining is None else min(body.remaining, READ_BYTES)
        if left > max(_SHORT_BYTES, body.received):
            left = min(left, max(len(body.get_buffer()), body.received))
        is_short = body.remaining is not None and body.received + body.remaining <= _SHORT_BYTES
        try:
            if left and self._read_into is not None and not is_short:
                if nbytes := self._read_into(body.get_buffer(left)[:left]):
                    body.buffer_updated(nbytes)
                else:
                    body.receive_eof()
            elif left and (data := self._stream.read(left)):
                body.feed(data)
            else:
                body.receive_eof()
        except TimeoutError:
            raise too_slow(self._request.phase, ": no byte within the time limit of the server") from None
        except OSError:
            msg = "the body of the request cannot be read to its end"
            raise RemoteProtocolError(msg, code=ErrorCode.CONNECTION_CLOSED) from None
