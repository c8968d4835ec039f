"""Intake: reads the bytes of `wsgi.input` into a `FedBody`. It blocks, in the thread of the request.

If the server's stream has `readinto`, bytes go directly into the receiver's memory. Else they are read in pieces. No
read asks for more than the rest of the body: with a server that does not end its stream, it would block for ever. No
read asks for more than `READ_BYTES`, because many streams return only when they have all bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, cast

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.http.fed import FedBody

READ_BYTES: Final = 4 << 20
"""Most bytes of a read. gunicorn copies what it holds of a body in each read, so reads of 256 KiB take 1.5 times as
much CPU."""


class Readable(Protocol):
    """`wsgi.input`; some also have `readinto`."""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes; fewer only at the end, or if no more have arrived."""
        ...


class Intake:
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
