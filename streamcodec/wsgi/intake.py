"""Intake: the way from `wsgi.input` to a `FedBody`. It blocks, in the thread that the server has given.

Where the server's stream has `readinto`, bytes go straight into the receiver's memory. Else they are read in pieces.
Either way no read is for more than is left of the body: a server that does not end its stream would block for ever. And
none is for more than `READ_BYTES`, for many streams return only when they have all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, cast

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.http.fed import FedBody

READ_BYTES: Final = 4 << 20
"""At once. gunicorn copies what it holds of a body in each read, so reads of 256 KiB take 1.5 times as much CPU."""


class Readable(Protocol):
    """`wsgi.input`; some have `readinto` besides."""

    def read(self, size: int, /) -> bytes:
        """Return so many bytes; fewer only at the end, or if they are all that there is now."""
        ...


class Intake:
    """The stream of one request."""

    def __init__(self, stream: Readable) -> None:
        """Begin with the first byte of the body."""
        self._stream = stream
        self._read_into: Callable[[memoryview], int | None] | None = getattr(stream, "readinto", None)

    def read(self, body: FedBody) -> None:
        """Have a body take some of its bytes, after `NEED_DATA`, or tell it that there are no more.

        Raises:
            RemoteProtocolError: the connection is broken, or is silent for too long to the server.
        """
        left = body.remaining
        most = READ_BYTES if left is None else min(left, READ_BYTES)
        try:
            if not most:
                body.receive_eof()
            elif self._read_into is not None:
                self._fill(body, most)
            elif data := self._stream.read(most):
                body.feed(data)
            else:
                body.receive_eof()
        except TimeoutError:
            msg = "the request has not gone on for as long as the server waits"
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
