"""Body: the way of one message's body from the connection to whoever receives it.

Three framings (RFC 9112, section 6) and optional compression meet here. Bytes of a body with `Content-Length` and
without compression may be written by the transport straight into the receiver's memory; all others come by here once.
This room counts and checks lengths, and knows nothing of sockets or heads.
"""

from __future__ import annotations

from typing import Protocol

from streamcodec.core.compression import MAX_RATIO, Inflater
from streamcodec.core.decoder import Buffer
from streamcodec.core.errors import ErrorCode, RemoteProtocolError
from streamcodec.core.events import NEED_DATA, EndOfMessage, Event, NeedData


class Receiver(Protocol):
    """What a body can be received by: a `Decoder`, or a `Collector`."""

    @property
    def needs_data(self) -> bool:
        """Whether there is a buffer to fill."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the whole message has been received and accepted."""
        ...

    @property
    def offset(self) -> int:
        """Bytes taken so far."""
        ...

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return the memory that the next bytes belong to; see `Decoder.get_buffer`."""
        ...

    def buffer_updated(self, nbytes: int) -> None:
        """Tell that bytes were written there; see `Decoder.buffer_updated`."""
        ...

    def pending_work(self, nbytes: int) -> int:
        """Return how much there will be to do; see `Decoder.pending_work`."""
        ...

    def feed(self, chunk: Buffer) -> int:
        """Copy bytes to where they belong; see `Decoder.feed`."""
        ...

    def receive_eof(self) -> None:
        """Tell that no more bytes will come; see `Decoder.receive_eof`."""
        ...

    def next_event(self) -> Event | NeedData:
        """Return the next event; see `Decoder.next_event`."""
        ...


class Body:
    """One body on its way to a receiver.

    Attributes:
        remaining: bytes still to come on the wire; None if the framing does not tell.
        is_complete: whether no more bytes are wanted: the framing is at its end, or broken.
        received_direct: bytes that the transport wrote straight into the receiver's memory.
        received_copied: bytes that were copied there from somewhere else.
    """

    def __init__(self, receiver: Receiver, *, content_length: int | None, inflater: Inflater | None) -> None:
        """Begin with the first byte of the body; `content_length` is None where the framing does not tell."""
        self._receiver = receiver
        self._inflater = inflater
        self._failure: RemoteProtocolError | None = None
        self._end: EndOfMessage | None = None
        self.remaining = content_length
        self.is_complete = False
        self.received_direct = 0
        self.received_copied = 0
        if content_length == 0:
            self.finish()

    def get_buffer(self) -> memoryview | None:
        """Return the receiver's memory if the transport may write there directly, else None."""
        if self.remaining is None or self._inflater is not None or not self._receiver.needs_data:
            return None
        buffer = self._receiver.get_buffer()
        return buffer if len(buffer) <= self.remaining else buffer[: self.remaining]

    def buffer_updated(self, nbytes: int) -> None:
        """Tell that the transport wrote bytes to the start of `get_buffer()`."""
        self._receiver.buffer_updated(nbytes)
        self.received_direct += nbytes
        self._count(nbytes)

    def pending_work(self, nbytes: int) -> int:
        """Return how much there will be to do when so many bytes have come; see `Decoder.pending_work`."""
        return self._receiver.pending_work(nbytes if self._inflater is None else nbytes * MAX_RATIO)

    def write(self, data: memoryview | bytes | bytearray) -> None:
        """Take bytes of the body from elsewhere, at most `remaining`. What a refused message has left is dropped."""
        if self._failure is None and (self._receiver.needs_data or self._receiver.is_complete):
            try:
                self._pass_on(data)
            except RemoteProtocolError as failure:
                self._failure = failure
        self._count(len(data))

    def finish(self) -> None:
        """Tell that the framing has come to its end."""
        if self._inflater is not None and self._failure is None:
            try:
                self._inflater.finish()
            except RemoteProtocolError as failure:
                self._failure = failure
        if self._failure is None:
            self._receiver.receive_eof()
        self.remaining = 0
        self.is_complete = True

    def truncate(self) -> None:
        """Tell that the connection has ended before the framing did."""
        msg = "the connection ended in the middle of the body"
        self.fail(RemoteProtocolError(msg, code=ErrorCode.TRUNCATED, offset=self.offset))
        self.remaining = 0

    def fail(self, failure: RemoteProtocolError) -> None:
        """Tell that the framing itself is broken, so that its end cannot be found."""
        self._failure = self._failure or failure  # what has come before may already break a rule
        self.remaining = None
        self.is_complete = True

    @property
    def offset(self) -> int:
        """Bytes that the receiver has taken."""
        return self._receiver.offset

    def next_event(self) -> Event | NeedData:
        """Return the receiver's next event; its last one only when the framing, too, is at its end.

        Raises:
            RemoteProtocolError: the body breaks a rule.
            LocalProtocolError: a callback or placement of the receiver misbehaved.
        """
        if self._end is None:
            event = self._receiver.next_event()
            if not isinstance(event, EndOfMessage):
                if event is NEED_DATA and self._failure is not None:
                    raise self._failure
                return event
            self._end = event
        if self._failure is not None:
            raise self._failure
        return self._end if self.is_complete else NEED_DATA

    def _pass_on(self, data: memoryview | bytes | bytearray) -> None:
        pieces = (data,) if self._inflater is None else self._inflater.inflate(data)
        for piece in pieces:
            taken = self._receiver.feed(piece) if self._receiver.needs_data else 0
            self.received_copied += taken
            if taken < len(piece):
                if self._receiver.is_complete:
                    msg = "the body goes on after the message has ended"
                    offset = self._receiver.offset
                    raise RemoteProtocolError(msg, code=ErrorCode.TRAILING_BYTES, offset=offset)
                return  # refused: the rest is dropped, and not even decompressed

    def _count(self, nbytes: int) -> None:
        if self.remaining is not None:
            self.remaining -= nbytes
            if self.remaining == 0:
                self.finish()
