"""Body: moves the body of one message from the connection to its receiver.

A body ends in one of three ways (RFC 9112, section 6): after `Content-Length` bytes, after the last chunk, or with the
connection. It may be compressed too. The transport may write uncompressed bytes straight into the receiver's memory,
except in short chunks. All other bytes pass through this room once. This room counts and checks lengths. It knows
nothing of sockets or heads.

A paused receiver takes no bytes until its events have been taken. Bytes that have arrived by then *wait* here: at most
one read. They are pieces that have not been passed on, and only the first of them has been decompressed. While they
wait, nobody may bring more.

A *paced* body never decompresses by itself. All compressed bytes wait here, and each call of `work()` processes one
piece. Where they make more than one, a thread is worth its cost (`inflates`). Receiver work that needs a turn is passed
on in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Final, Protocol

from streamcodec.engine.compression.inflate import SHORT_INPUT_BYTES, Inflater
from streamcodec.engine.errors import ErrorCode, MessageError, OutOfMemoryError, RemoteProtocolError
from streamcodec.engine.receiving import NEED_DATA, NEED_TURN, Buffer, EndOfMessage, NeedData, NeedTurn
from streamcodec.http.bodies.chunks import Chunks
from streamcodec.http.bodies.known import truncated
from streamcodec.http.heads.messages import Event

_LONG_CHUNK_BYTES: Final = 64 << 10
"""A chunk is read by itself if at least this much of it is still to come. Less is read together with the bytes that
follow it: a copy costs less than one more read."""

_NOTHING: Final = memoryview(b"")
_NO_PIECES: Final[Iterator[Buffer]] = iter(())


class Receiver(Protocol):
    """The destination of a body: a `Decoder` or a `Collector`."""

    @property
    def needs_data(self) -> bool:
        """Whether there is a buffer to fill."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether its events must be taken before there is a buffer again; see `Decoder.is_paused`."""
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

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return that memory, and the memory that is known to follow it; see `Decoder.get_buffers`."""
        ...

    def buffer_updated(self, nbytes: int) -> None:
        """Report that bytes were written there; see `Decoder.buffer_updated`."""
        ...

    def work(self) -> object:
        """Do one piece of the work for which `next_event` has asked a turn; see `Decoder.work`."""
        ...

    def feed(self, chunk: Buffer) -> int:
        """Copy bytes to where they belong; see `Decoder.feed`."""
        ...

    def receive_eof(self) -> None:
        """Report that no more bytes will come; see `Decoder.receive_eof`."""
        ...

    def next_event(self) -> Event | NeedData | NeedTurn:
        """Return the next event; see `Decoder.next_event`."""
        ...


class Body:
    """One body on its way to a receiver.

    Attributes:
        remaining: bytes still to come on the wire; None if the framing does not say.
        is_complete: whether no more bytes are wanted, because the framing has ended or is broken.
        received_direct: bytes that the transport wrote straight into the receiver's memory.
        received_copied: bytes that were copied there from elsewhere.
    """

    def __init__(
        self,
        receiver: Receiver,
        *,
        content_length: int | None,
        chunks: Chunks | None,
        inflater: Inflater | None,
        paced: bool,
        is_prompt: bool = False,
    ) -> None:
        """Begin with the first byte of the body.

        Args:
            receiver: takes the decompressed bytes.
            content_length: bytes on the wire; None if they come in `chunks`, or end with the connection.
            chunks: the framing of a chunked body.
            inflater: undoes the compression.
            paced: whether to decompress in `work()` only.
            is_prompt: whether the receiver gets all bytes of a read at once. Otherwise the transport may fill the
                receiver's buffer by several reads.
        """
        self._receiver = receiver
        self._chunks = chunks
        self._inflater = inflater
        self._works = paced and inflater is not None
        self._is_long = False
        self._is_copied = is_prompt or inflater is not None
        self._failure: MessageError | None = None
        self._end: EndOfMessage | None = None
        self._has_waiting = False
        self._piece = _NOTHING
        self._pieces = _NO_PIECES
        self.remaining = content_length
        self.is_complete: bool = False
        self.received_direct: int = 0
        self.received_copied: int = 0
        if content_length == 0:
            self.finish()

    def get_buffer(self) -> memoryview | None:
        """Return the receiver's memory if the transport may write there directly, else None."""
        if self._is_copied or not self._receiver.needs_data:
            return None
        if self._chunks is not None and self._chunks.room < _LONG_CHUNK_BYTES:
            return None
        return self._receiver.get_buffer()[: self._room]

    def following_buffers(self) -> list[memoryview]:
        """Return the known memory that follows `get_buffer()`. `get_buffer()` must not be None."""
        buffers = self._receiver.get_buffers()
        room = self._room
        if room is None:
            return buffers[1:]
        fitting = []
        for buffer in buffers:
            fitting.append(buffer[:room])
            room -= len(fitting[-1])
            if not room:
                break
        return fitting[1:]

    def buffer_updated(self, nbytes: int) -> None:
        """Report that the transport wrote bytes to the start of `get_buffer()`."""
        self._receiver.buffer_updated(nbytes)
        self.received_direct += nbytes
        self._count(nbytes)

    @property
    def inflates(self) -> bool:
        """Whether more compressed bytes wait than are decompressed at once: a thread is worth its cost."""
        return self._is_long and self._has_waiting

    def work(self) -> bool:
        """Do one piece of the work for which `next_event` has asked a turn; call it only while `is_waiting`.

        Returns:
            Whether there is more work, whatever `next_event` says.
        """
        if self._receiver.is_paused:
            self._receiver.work()
        else:
            self._go_on()
        return self._works and self._has_waiting and not self._receiver.is_paused

    @property
    def is_waiting(self) -> bool:
        """Whether no bytes can be taken before the next event has been taken."""
        return self._has_waiting or self._receiver.is_paused

    @property
    def wants_data(self) -> bool:
        """Whether bytes can be taken: the framing has not ended, and nothing waits."""
        return not (self.is_complete or self.is_waiting)

    def receive(self, data: memoryview) -> int:
        """Take bytes from elsewhere while `wants_data`; return how many of them belong to the body.

        The result is smaller than `len(data)` in three cases: the body has ended, it has to wait, or the rest must be
        offered again. If the body waits, the bytes must not change until it goes on.
        """
        if self._chunks is not None and not self._chunks.room:
            joined, taken = self._chunks.join_short(data)
            if not taken:
                return self._read_framing(self._chunks, data)
            self._receive_data(joined)
            return taken
        data = data[: self._room]
        self._receive_data(data)
        self._count(len(data))  # the rest of a refused message is dropped
        return len(data)

    def _receive_data(self, data: bytearray | memoryview) -> None:
        if self._failure is None and (self._receiver.needs_data or self._receiver.is_complete):
            if self._inflater is None:
                self._piece = memoryview(data)
            else:
                self._pieces = self._inflater.inflate(data)
                self._is_long = len(data) > SHORT_INPUT_BYTES
            if self._works:
                self._has_waiting = True
            else:
                self._pass_on()

    def receive_eof(self) -> None:
        """Report that the connection has ended. This ends the body if nothing else says where it ends."""
        if self.remaining is None and self._chunks is None:
            self.finish()
        else:
            self.truncate()

    def truncate(self) -> None:
        """Tell that the connection has ended in the middle of the body."""
        self._fail(truncated(self.offset))
        self.remaining = 0

    def finish(self) -> None:
        """Report that the framing has ended."""
        self.remaining = 0
        self.is_complete = True
        if not self._has_waiting:
            self._finish_receiver()

    @property
    def offset(self) -> int:
        """Bytes that the receiver has taken."""
        return self._receiver.offset

    def next_event(self) -> Event | NeedData | NeedTurn:
        """Return the receiver's next event. Its last event comes only when the framing has ended too.

        The result is `NEED_TURN` if `work()` must be called first.

        Raises:
            RemoteProtocolError: the body breaks a rule.
            LocalProtocolError: a callback or placement of the receiver broke its contract.
        """
        if self._end is None:
            while (event := self._receiver.next_event()) is NEED_DATA and self._has_waiting:
                if self._works and not self._piece:  # to pass a piece on takes less than a turn
                    return NEED_TURN
                self._go_on()
            if not isinstance(event, EndOfMessage):
                if event is NEED_DATA and self._failure is not None:
                    raise copy(self._failure)
                return event
            self._end = event
        if self._has_waiting:
            if self._works:
                return NEED_TURN
            self._go_on()
        if self._failure is not None:
            raise copy(self._failure)
        return self._end if self.is_complete else NEED_DATA

    @property
    def _room(self) -> int | None:
        """Bytes of data that come next without framing between them; None if everything that comes is data."""
        return self.remaining if self._chunks is None else self._chunks.room

    def _read_framing(self, chunks: Chunks, data: memoryview) -> int:
        try:
            taken = chunks.read(data)
        except MessageError as failure:
            failure.offset = self.offset
            self._fail(copy(failure))
            return len(data)
        if chunks.is_complete:
            self.finish()
        return taken

    def _fail(self, failure: MessageError) -> None:
        """Stop: the framing is broken, so the end of the body cannot be found."""
        self._failure = self._failure or failure  # earlier bytes may have broken a rule already
        self.remaining = None
        self.is_complete = True

    def _go_on(self) -> None:
        """Pass on the bytes that have waited, and end the receiver's message if that was all."""
        self._pass_on()
        if self.is_complete and not self._has_waiting:
            self._finish_receiver()

    def _pass_on(self) -> None:
        """Pass on pieces until none is left or the receiver has to wait; if the body is paced, only one piece."""
        receiver = self._receiver
        self._has_waiting = False
        try:
            while self._piece or self._take_piece():
                taken = receiver.feed(self._piece) if receiver.needs_data else 0
                self.received_copied += taken
                self._piece = self._piece[taken:]
                if self._piece and receiver.is_paused:
                    self._has_waiting = True
                    return
                if self._piece:
                    self._refuse_rest()
                if self._inflater is not None and self._works and self._inflater.has_more:
                    self._has_waiting = self._is_long = True
                    return
        except MessageError as failure:
            self._failure = copy(failure)  # the frames of the first one refer to this object
            self._piece, self._pieces = _NOTHING, _NO_PIECES

    def _take_piece(self) -> bool:
        if self._inflater is None:
            return False
        try:
            piece = next(self._pieces, None)
        except MemoryError:
            msg = "there is no memory to decompress the body"
            raise OutOfMemoryError(msg) from None
        self._piece = _NOTHING if piece is None else memoryview(piece)
        return piece is not None

    def _refuse_rest(self) -> None:
        """Refuse bytes after a complete message. Drop the rest of a refused message without decompressing it."""
        self._piece, self._pieces = _NOTHING, _NO_PIECES
        if self._receiver.is_complete:
            msg = "the body goes on after the message has ended"
            raise RemoteProtocolError(msg, code=ErrorCode.TRAILING_BYTES, offset=self._receiver.offset)

    def _finish_receiver(self) -> None:
        if self._inflater is not None and self._failure is None:
            try:
                self._inflater.finish()
            except MessageError as failure:
                self._failure = copy(failure)
        if self._failure is None:
            self._receiver.receive_eof()

    def _count(self, nbytes: int) -> None:
        if self._chunks is not None:
            self._chunks.data_received(nbytes)
        elif self.remaining is not None:
            self.remaining -= nbytes
            if self.remaining == 0:
                self.finish()
