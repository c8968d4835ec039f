"""Watching: a decoder whose bytes are also kept on a tape, and an HTTP connection that gives a body to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.events import NeedData, NeedTurn
from streamcodec.engine.limits import Limits
from streamcodec.engine.receiving import Buffer
from streamcodec.formats.v2.model import Event
from streamcodec.http.bodies.body import Receiver
from streamcodec.http.bodies.collector import Collector
from streamcodec.http.client import ClientConnection
from streamcodec.http.heads.messages import ConnectionClosed, RequestHead, ResponseHead
from streamcodec.http.server import ServerConnection
from streamcodec.inspection.tape import Tape

_KEPT_BYTES: Final = 64 << 10


class Watched:
    """The receiver of a body: passes everything on to another, and keeps the bytes on a tape."""

    def __init__(self, receiver: Receiver, tape: Tape) -> None:
        """Begin before the first byte."""
        self._receiver = receiver
        self._tape = tape
        self._buffer = memoryview(b"")

    @property
    def needs_data(self) -> bool:
        """See `Receiver`."""
        return self._receiver.needs_data

    @property
    def is_paused(self) -> bool:
        """See `Receiver`."""
        return self._receiver.is_paused

    @property
    def is_complete(self) -> bool:
        """See `Receiver`."""
        return self._receiver.is_complete

    @property
    def offset(self) -> int:
        """See `Receiver`."""
        return self._receiver.offset

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """See `Receiver`."""
        self._buffer = self._receiver.get_buffer(sizehint)
        return self._buffer

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return the first buffer alone: nothing here reads into several."""
        return [self.get_buffer(sizehint)]

    def buffer_updated(self, nbytes: int) -> None:
        """See `Receiver`."""
        self._tape.add(self._buffer[:nbytes])
        self._receiver.buffer_updated(nbytes)

    def feed(self, chunk: Buffer) -> int:
        """See `Receiver`. Of a chunk that is refused, all bytes are kept."""
        taken = self._receiver.feed(chunk)
        is_refused = not (self._receiver.needs_data or self._receiver.is_paused or self._receiver.is_complete)
        self._tape.add(memoryview(chunk) if is_refused else memoryview(chunk)[:taken])
        return taken

    def receive_eof(self) -> None:
        """See `Receiver`."""
        self._receiver.receive_eof()

    def work(self) -> object:
        """See `Receiver`."""
        return self._receiver.work()

    def next_event(self) -> Event | NeedData | NeedTurn:
        """See `Receiver`."""
        return self._receiver.next_event()


class HttpMessage:
    """One HTTP message, with the interface of a decoder.

    Attributes:
        head: the head, when it has come.
    """

    def __init__(
        self,
        choose: Callable[[RequestHead | ResponseHead], Decoder[Any] | None],
        tape: Tape,
        limits: Limits,
        *,
        is_response: bool,
    ) -> None:
        """Begin before the head.

        Args:
            choose: returns the decoder for a body; None if the body is no inference message.
            tape: keeps the body.
            limits: caps on head and body.
            is_response: whether a response is expected.
        """
        self.head: RequestHead | ResponseHead | None = None
        self._choose = choose
        self._tape = tape
        self._connection: ClientConnection | ServerConnection = ServerConnection(limits)
        if is_response:
            self._connection = ClientConnection(limits)
            self._connection.send_request("POST", "/", [("Host", "localhost"), ("Content-Length", "0")])

    def next_event(self) -> Event | NeedData | NeedTurn:
        """Return the next event of the body.

        Raises:
            MessageError: the message is refused.
        """
        event = self._connection.next_event()
        if isinstance(event, ConnectionClosed):
            msg = "the input ends before a message begins"
            raise RemoteProtocolError(msg, code=ErrorCode.TRUNCATED, offset=0)
        if not isinstance(event, RequestHead | ResponseHead):
            return event
        self.head = event
        self._connection.receive_body(Watched(self._choose(event) or Collector(_KEPT_BYTES), self._tape))
        return self.next_event()

    def feed(self, chunk: memoryview) -> int:
        """Take the next bytes; return how many belong to the message, or wait for their turn."""
        return self._connection.feed(chunk)

    def receive_eof(self) -> None:
        """Report that no more bytes will come."""
        self._connection.receive_eof()

    @property
    def kept(self) -> int:
        """Bytes that were taken, and belong to no message yet."""
        return self._connection.incoming.kept
