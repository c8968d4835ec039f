"""BodyStream: reads the bytes of `wsgi.input` into a `FedBody`. It blocks, in the thread of the request.

If the server's stream has `readinto`, bytes of long bodies go directly into the receiver's memory. Else they are read
in pieces. Many streams return only when they have all bytes that were asked for. So a wrong request is refused the
sooner, the smaller the reads are. A read of a long body asks for what is needed next, which is the JSON header at
first, or for as much as has come before. No read asks for more than the rest of the body: with a server that does not
end its stream, it would block for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, cast

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.http.bodies.fed import FedBody

READ_BYTES: Final = 4 << 20
"""Most bytes of a read. gunicorn copies what it holds of a body in each read, so reads of 256 KiB take 1.5 times as
much CPU."""

_SHORT_BYTES: Final = 64 << 10
"""So much of a body is read at once, to its end: to refuse it earlier would save less than a second read costs."""


class Readable(Protocol):
    """`wsgi.input`; some also have `readinto`."""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes; fewer only at the end, or if no more have arrived."""
        ...


class Begun:
    """A stream that first returns bytes that were already read from it.

    Attributes:
        waited: from when to when they were read; None if they are the whole body, whose time nobody asks for.
    """

    def __init__(
        self, begun: bytes, stream: Readable, waited: tuple[float, float] | None, failure: Exception | None = None
    ) -> None:
        """Keep the bytes; or the error that was raised instead, which the next read raises."""
        self._begun = begun
        self._failure = failure
        self._stream = stream
        self.waited: tuple[float, float] | None = waited

    def read(self, size: int, /) -> bytes:
        """Return some of the bytes; when there are no more, read on."""
        failure, self._failure = self._failure, None  # its traceback refers to this object
        if failure is not None:
            raise failure
        if not self._begun:
            return self._stream.read(size)
        piece, self._begun = self._begun[:size], self._begun[size:]
        return piece


class BodyStream:
    """The stream of one request."""

    def __init__(self, stream: Readable) -> None:
        """Begin with the first byte of the body."""
        self._stream = stream
        self._read_into: Callable[[memoryview], int | None] | None = getattr(stream, "readinto", None)

    def read(self, body: FedBody) -> None:
        """Read some bytes of a body, after `NEED_DATA`, or report to it the end of the input.

        Raises:
            RemoteProtocolError: the connection is broken, or the server has waited too long for a byte.
        """
        most = _most(body)
        try:
            if not most:
                body.receive_eof()
            elif self._read_into is not None and not _is_short(body):
                self._fill(body, most)
            elif data := self._stream.read(most):
                body.feed(data)
            else:
                body.receive_eof()
        except TimeoutError:
            msg = "no byte of the request has arrived within the time limit of the server"
            raise RemoteProtocolError(msg, code=ErrorCode.TOO_SLOW, status_hint=408) from None
        except OSError:
            msg = "the body of the request cannot be read to its end"
            raise RemoteProtocolError(msg, code=ErrorCode.CONNECTION_CLOSED) from None

    def _fill(self, body: FedBody, most: int) -> None:
        read_into = cast("Callable[[memoryview], int | None]", self._read_into)
        if nbytes := read_into(body.get_buffer(most)[:most]):
            body.buffer_updated(nbytes)
        else:
            body.receive_eof()


def _is_short(body: FedBody) -> bool:
    """Whether one read may bring all of a body: as for a request whose head is known, so both have the same time."""
    return body.remaining is not None and body.received + body.remaining <= _SHORT_BYTES


def _most(body: FedBody) -> int:
    """Return how many bytes to ask for; 0 at the end of the body."""
    left = READ_BYTES if body.remaining is None else min(body.remaining, READ_BYTES)
    if left <= max(_SHORT_BYTES, body.received):
        return left
    return min(left, max(len(body.get_buffer()), body.received))
