"""Connection: the receiving half of HTTP/1.1, the same for server and client. Sans-IO.

This room finds the end of a head by the blank line. `heads.plain` reads exactly the head, or h11 does, in
`heads.parsed`. So what is made of a head depends on those bytes alone. h11 never sees the bytes of a body, because it
would copy each of them three times: `bodies` finds the end of a body.

The transport has two ways to bring bytes. `get_buffer()` returns scratch memory for heads, short chunks and compressed
bodies. Within other bodies it returns the decoder's own target, so the socket writes tensor bytes into the tensor.
A connection has scratch memory only while that holds bytes; see `scratch`. Body bytes that were read together with a
head, or with the line before a chunk, are copied out of the scratch memory once; that is at most one scratch buffer
each time. `feed(chunk)` is built on `get_buffer()`. It takes only the bytes
of messages that may go on. While the connection waits for a decision (where does this body go?), or for the answer to
be sent, it takes nothing. The same holds while the receiver of the body is paused, because a window of a tensor is
being consumed. So nothing is ever buffered without a bound, pipelined requests included. An owner that wants to learn
at once that its peer has left may let it read ahead into scratch memory before the answer.

A *paced* connection does only a bounded piece of the work on a body at once. Decompression, and a body in very many
chunks, continue in `work()` after `next_event` has asked for a turn. Until then the connection takes no bytes.

States (`State`)::

           blank line           read_body()
    HEAD ---------------> DECIDE ----------> BODY ------ end of message ------> DONE
     ^                                       |  ^                                |
     |                                       |  +-- BUSY        the receiver runs, in _settle(), work(), _advance()
     |                                       |  +-- FILLING     its memory is being filled; full, or asked: BUSY
     |                                       |  +-- NEEDS_TURN  a piece of work is due: work()
     |                                       |                                   |
     +------------- next_cycle() ------------+-----------------------------------+

`close()` leads to CLOSED from every state. The peer may end its half in any state (`is_eof`).
"""

from __future__ import annotations

import re
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

from streamcodec.engine.compression.inflate import Inflater
from streamcodec.engine.errors import ErrorCode, LimitExceededError, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.engine.receiving import (
    LONG_TARGET_BYTES,
    NEED_DATA,
    NEED_TURN,
    Buffer,
    EndOfMessage,
    NeedData,
    NeedTurn,
)
from streamcodec.http.bodies.body import Body, Receiver
from streamcodec.http.bodies.chunks import Chunks
from streamcodec.http.bodies.known import KnownBody
from streamcodec.http.heads.messages import Event, RequestHead, ResponseHead
from streamcodec.http.heads.parsed import invalid_http
from streamcodec.http.scratch import LONG_SCRATCH_BYTES, NOTHING, SCRATCH_BYTES, borrow, give_back

_PIECES: Final = 16
"""Pieces of framing and data that a paced connection processes at once. They take half a millisecond if each chunk has
one byte. So one turn of an event loop that reads for sixteen clients is short too."""

_ENDLESS: Final = 1 << 62

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_FIRST_PRINTABLE: Final = 0x21
_EMPTY_LINE: Final = b"\r\n"


class State(Enum):
    """Where the receiving half is in the current cycle."""

    HEAD = auto()
    """Between messages, or within a head."""
    DECIDE = auto()
    """A head has been read; its body waits for `read_body`."""
    BODY = auto()
    """Within a body; nothing is running."""
    FILLING = auto()
    """Within a body: the receiver's memory is being filled and is not full, so there can be no event."""
    BUSY = auto()
    """Within a body: the receiver is working, perhaps in another thread, and its callbacks may be running."""
    NEEDS_TURN = auto()
    """Within a body: `work` must be called before more bytes can be taken."""
    DONE = auto()
    """The message has been read to its end; the cycle is not over."""
    CLOSED = auto()
    """Nothing more will be read."""


_HEAD: Final = State.HEAD
_DECIDE: Final = State.DECIDE
_BODY: Final = State.BODY
_FILLING: Final = State.FILLING
_BUSY: Final = State.BUSY
_NEEDS_TURN: Final = State.NEEDS_TURN
_DONE: Final = State.DONE
"""Module constants, because every request uses them: looking a member up in its class takes as long as three calls."""


class Incoming:
    """Reads message after message; the server's and the client's connection each own one.

    Attributes:
        state: see `State`.
        is_eof: whether the peer has ended its half of the connection.
        received: bytes that have arrived in all.
        head_bytes: size of the last head that was read.
        received_direct: body bytes that the transport wrote straight into the receiver's memory.
        received_copied: body bytes that were copied there from scratch memory.
        scratch_bytes: most bytes that may be kept before a message begins.
        reads_ahead: whether bytes are taken after the end of this message, before the next cycle.
    """

    def __init__(self, limits: Limits, *, paced: bool = False) -> None:
        """Begin between messages.

        Args:
            limits: bound heads and bodies.
            paced: whether to leave long work to `work()`.
        """
        self._limits = limits
        self._is_paced = paced
        self._pieces = range(_PIECES if paced else _ENDLESS)
        self._scratch = NOTHING
        self._usual_bytes: Final = max(SCRATCH_BYTES, limits.max_head_bytes + 1)
        self.scratch_bytes: int = self._usual_bytes
        self._start = 0
        self._end = 0
        self._scanned = 0
        self._has_skipped = False
        self._offered = 0
        self._room = 0
        self._target: memoryview | None = None
        self._filled = 0
        self.is_eof: bool = False
        self.reads_ahead: bool = False
        self.received: int = 0
        self.head_bytes: int = 0
        self._body: Body | KnownBody | None = None
        self.state: State = State.HEAD
        self.received_direct: int = 0
        self.received_copied: int = 0

    # The transport's side

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return memory for the next bytes: a tensor's own, or scratch memory. It is never empty.

        It stays valid until `buffer_updated` or `feed` is called, or until an event begins or ends a message.

        Raises:
            LocalProtocolError: no bytes can be taken now; `next_event` says what must be done first.
        """
        if self.state is not _FILLING:
            if not self.wants_data:
                msg = "no bytes can be taken now; call next_event() until it returns NEED_DATA"
                raise LocalProtocolError(msg)
            self._target = None if self._body is None or self.state is _DONE else self._body.get_buffer()
        if self._target is not None:
            buffer = self._target[self._filled :]
        else:
            if not self._scratch:
                self._scratch = borrow(self.scratch_bytes)
            buffer = self._scratch[self._end :]
        self._offered = self._room = len(buffer)
        return buffer

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return memory for the next bytes, in several pieces if several are known; see `Decoder.get_buffers`.

        Raises:
            LocalProtocolError: as `get_buffer`.
        """
        buffer = self.get_buffer(sizehint)
        if self._target is None or self._body is None or len(buffer) > LONG_TARGET_BYTES:
            return [buffer]
        following = self._body.following_buffers()
        self._offered += sum(map(len, following))
        return [buffer, *following]

    def buffer_updated(self, nbytes: int) -> None:
        """Report that bytes were written to the start of the last `get_buffer()` or `get_buffers()`.

        Raises:
            LocalProtocolError: `nbytes` is below 1, or more than the buffers hold.
        """
        if not 0 < nbytes <= self._offered:
            msg = f"{nbytes} bytes cannot have been written to a buffer of {self._offered}"
            raise LocalProtocolError(msg + "; the end of input is receive_eof()" * (nbytes == 0))
        self.received += nbytes
        is_full = nbytes >= self._room
        self._offered = self._room = 0
        if self._target is None:
            self._end += nbytes
            if self.state is _BODY:
                self._advance()
            return
        self._filled += nbytes
        self.state = _FILLING
        if is_full:
            self._settle()

    def feed(self, chunk: Buffer) -> int:
        """Copy a chunk to where its bytes belong.

        Returns:
            How many bytes were taken. It is less than `len(chunk)` if the connection has to wait for a decision, or for
            an answer to be sent. Feed the rest afterwards.
        """
        source = memoryview(chunk).cast("B")
        taken = 0
        while taken < len(source) and self.wants_data:
            buffer = self.get_buffer()
            count = min(len(buffer), len(source) - taken)
            buffer[:count] = source[taken : taken + count]
            self.buffer_updated(count)
            taken += count
        return taken

    def receive_eof(self) -> None:
        """Report that the peer will send no more bytes."""
        self._settle()
        self.is_eof = True
        if self._scratch and not self._end:  # nothing comes any more; many may close at once, and be lost later
            give_back(self._scratch)
            self._scratch = NOTHING
            self._offered = self._room = 0
        self._advance()

    def work(self) -> bool:
        """Do a bounded piece of the work for which `next_event` has asked a turn (`NEED_TURN`), if there is any.

        Another thread may call it, while this thread leaves the connection alone.

        Returns:
            Whether more work can be done at once. A caller with little time may ask for the next event first.

        Raises:
            LocalProtocolError: the receiver's callbacks are running.
        """
        self._check_idle()
        body = self._body
        if body is None:
            return False
        if self.state is _NEEDS_TURN:
            self.state = _BODY
        if not body.is_waiting:
            self._advance()
            return self.state is _NEEDS_TURN
        self.state, has_more = _BUSY, False
        try:
            has_more = body.work()
        finally:
            self.state = _NEEDS_TURN if has_more else _BODY
        return has_more

    @property
    def inflates(self) -> bool:
        """Whether many compressed bytes wait: a thread can decompress them while the event loop serves others."""
        return self._body is not None and self._body.inflates

    @property
    def wants_data(self) -> bool:
        """Whether `get_buffer` can be called.

        Bytes that wait here come before those of the next read. So not if `next_event` or `pass_on` can pass some on.
        """
        if self.state is _HEAD or (self.reads_ahead and self.state is _DONE):
            return self._end < self.scratch_bytes and not self.is_eof
        if self.state is not _BODY or self._body is None:
            return self.state is _FILLING
        return self._start == self._end and self._body.wants_data

    @property
    def is_filling(self) -> bool:
        """Whether a large tensor is being filled by small reads, so that there can be no event yet."""
        return self.state is _FILLING

    @property
    def has_work(self) -> bool:
        """Whether work is due or running, so that the connection does not wait for the peer."""
        return self.state is _NEEDS_TURN or self.state is _BUSY

    @property
    def has_input(self) -> bool:
        """Whether bytes have arrived that belong to no message yet, or the peer has closed."""
        return self._start < self._end or self.is_eof

    # The owner's side

    @property
    def kept(self) -> int:
        """Bytes that wait here: for a receiver, or because they belong to the next message."""
        return self._end - self._start

    @property
    def unsettled(self) -> int:
        """Bytes in the receiver's memory that have not been reported to it yet."""
        return self._filled

    def find_head(self, *, skips_empty_line: bool = False) -> bytes | None:
        """Return the next head, up to and including the blank line; None if it is not complete.

        It is not checked, and `take_head` comes next.

        Args:
            skips_empty_line: whether one empty line may come before it (RFC 9112, section 2.2).

        Raises:
            RemoteProtocolError: the bytes are not a head, or the connection ended within it.
            LimitExceededError: the head has more than `max_head_bytes`; status 431, or 414 if the first line alone is
                too long.
        """
        while self._end and self._scratch[0] < _FIRST_PRINTABLE:
            if not self._skip_empty_line(is_allowed=skips_empty_line):
                break
        found = _HEAD_END.search(self._scratch, self._scanned, self._end)
        end = found.end() if found else self._end
        if end > self._limits.max_head_bytes:
            raise self._too_long()
        if found is None:
            if self.is_eof and self._end:
                msg = "the connection ended in the middle of a head"
                raise RemoteProtocolError(msg, code=ErrorCode.CONNECTION_CLOSED)
            self._scanned = max(0, self._end - len(b"\n\r"))
            return None
        return bytes(self._scratch[:end])

    def _skip_empty_line(self, *, is_allowed: bool) -> bool:
        """Skip an empty line before a head; return whether it has arrived completely.

        Some old clients send one after a body. No server takes it for a request or for a part of one, so we and a proxy
        read the same requests. A second empty line is refused.

        Raises:
            RemoteProtocolError: the first character is not printable, and this is not one permitted empty line.
        """
        begun = self.begun(len(_EMPTY_LINE))
        if self._has_skipped or not (is_allowed and _EMPTY_LINE.startswith(begun)):
            msg = "the first line starts with a control character; is this TLS?"
            raise invalid_http(msg)
        if begun != _EMPTY_LINE:
            return False
        self.skip(len(_EMPTY_LINE))
        self._has_skipped = True
        return True

    def _too_long(self) -> LimitExceededError:
        """Make the error for a head that is too long; status 414 if its first line (so the target) is too long."""
        limit = self._limits.max_head_bytes
        has_line = b"\n" in bytes(self._scratch[: limit + 1])
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if has_line else HTTPStatus.REQUEST_URI_TOO_LONG
        msg = f"the {'head' if has_line else 'first line of the head'} has more than {limit} bytes"
        return LimitExceededError(msg, limit="max_head_bytes", status_hint=int(status))

    def begun(self, nbytes: int) -> bytes:
        """Return the first bytes of the current or next head; fewer than `nbytes` if they have not arrived."""
        return bytes(self._scratch[: min(nbytes, self._end)])

    def peek(self, most: int = _ENDLESS) -> bytes:
        """Return the bytes of all messages that have not begun yet, or only so many of them.

        The result is empty if an earlier call did not find the end of the first head, and it has not arrived since.
        Copying everything for each byte of a head that comes in small pieces would take quadratic time.
        """
        if self.state is not _HEAD:
            return b""
        if self._scanned and _HEAD_END.search(self._scratch, self._scanned, self._end) is None:
            return b""
        return bytes(self._scratch[: min(self._end, most)])

    def peek_from(self, start: int, end: int) -> memoryview:
        """Return some of the bytes that have arrived, beginning with those of `peek`. They change with the next read.

        Args:
            start: index of the first byte.
            end: index after the last one, if so many have arrived.
        """
        return self._scratch[start : min(end, self._end)]

    def resize(self, *, is_long: bool) -> None:
        """Choose how many bytes may be kept before a message begins: the usual, or at least `LONG_SCRATCH_BYTES`.

        What is kept stays. Nothing changes while memory is on offer, or if more is kept than the usual.
        """
        size = max(LONG_SCRATCH_BYTES, self._usual_bytes) if is_long else self._usual_bytes
        if size == self.scratch_bytes or self._offered or self._end > size:
            return
        if self._scratch:
            block = borrow(size)
            block[: self._end] = self._scratch[: self._end]
            give_back(self._scratch)
            self._scratch = block
        self.scratch_bytes = size

    def take_head(self, nbytes: int) -> None:
        """Take a head that the caller has read with `find_head` or `peek`, and knows to be valid."""
        self._start = self.head_bytes = nbytes
        self.state = _DECIDE

    def skip(self, nbytes: int) -> None:
        """Drop messages that the caller has read with `peek`."""
        self._start = nbytes
        self._keep_room(self._offered)

    def receive_body(self, receiver: Receiver, head: RequestHead | ResponseHead | None) -> None:
        """Send the body that a head has announced to a receiver.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
            LocalProtocolError: no head is waiting.
        """
        if head is None or self.state is not _DECIDE:
            msg = "receive_body() must follow the head of a message, once"
            raise LocalProtocolError(msg)
        encoding = head.fields.encoding_of(head.content_length)
        inflater = None if encoding is None else Inflater(encoding, self._limits)
        is_chunked = head.content_length is None and head.fields.is_chunked
        chunks = Chunks(self._limits) if is_chunked else None
        self.read_body(receiver, content_length=head.content_length, chunks=chunks, inflater=inflater)

    def read_body(
        self,
        receiver: Receiver,
        *,
        content_length: int | None,
        chunks: Chunks | None = None,
        inflater: Inflater | None = None,
        is_prompt: bool = False,
    ) -> None:
        """Send a body, or the rest of one, to a receiver.

        Args:
            receiver: takes the decompressed bytes.
            content_length: bytes on the wire; None if they come in `chunks`, or end with the connection.
            chunks: the framing of a chunked body.
            inflater: undoes the compression.
            is_prompt: whether the receiver gets all bytes of a read at once, by a copy.
        """
        self._body = Body(
            receiver,
            content_length=content_length,
            chunks=chunks,
            inflater=inflater,
            paced=self._is_paced,
            is_prompt=is_prompt,
        )
        self.state = _BODY
        self._advance()

    def fill(self, body: KnownBody) -> None:
        """Send the body of a head to memory; the caller has read its first `body.offset` bytes with `peek`."""
        self._start += body.offset
        self._body = body
        self.state = _BODY
        self._advance()

    def end_filling(self) -> None:
        """Report that the body of `fill` is complete, instead of taking its last event."""
        self.state = _DONE

    def next_body_event(self) -> Event | NeedData | NeedTurn:
        """Return the next event of the body; the state is DONE after the last one.

        Raises:
            RemoteProtocolError: the body breaks a rule; `remaining` bytes of it are unread.
        """
        self._check_idle()
        body = self._current_body()
        # If the body has gone on, bytes that had to wait can go on too.
        while (event := body.next_event()) is NEED_DATA and self.has_input and self.state is _BODY and body.wants_data:
            self._advance()
        if event is NEED_DATA and self.state is _NEEDS_TURN:
            return NEED_TURN
        if event is NEED_TURN:
            self.state = _NEEDS_TURN
        elif isinstance(event, EndOfMessage):
            self.state = _DONE
        return event

    def pass_on(self) -> None:
        """Pass on what waits for the body, as far as it can take it now; events are left for `next_event`."""
        self._advance()

    @property
    def remaining(self) -> int | None:
        """Bytes of the current body that have not been read; None if that is unknown.

        Raises:
            LocalProtocolError: there is no body, or its receiver's callbacks are running.
        """
        self._check_idle()
        self._settle()
        return self._current_body().remaining

    def next_cycle(self) -> None:
        """Begin the next message."""
        self._forget_body()
        self.state = State.HEAD
        self.reads_ahead = False

    @property
    def is_light(self) -> bool:
        """Whether the next event takes no time: nothing has come of another message, or none is read any more."""
        return not self.has_input if self.state is State.HEAD else self.state is State.CLOSED

    def close(self) -> None:
        """Stop reading."""
        self._forget_body()
        self.state = State.CLOSED

    def _current_body(self) -> Body | KnownBody:
        if self._body is None:
            msg = "there is no body to be read"
            raise LocalProtocolError(msg)
        return self._body

    def _settle(self) -> None:
        """Report to the body the bytes that were written to its memory."""
        filled = self._filled
        self._target = None
        self._filled = self._offered = self._room = 0
        if self.state is _FILLING:
            self.state = _BUSY
            try:
                self._current_body().buffer_updated(filled)
            finally:
                self.state = _BODY

    def _check_idle(self) -> None:
        if self.state is _BUSY:
            msg = "a connection cannot be used from the callbacks of a body's receiver"
            raise LocalProtocolError(msg)

    def _forget_body(self) -> None:
        self._check_idle()
        offered = self._offered
        self._settle()
        if self._body is not None:
            self.received_direct += self._body.received_direct
            self.received_copied += self._body.received_copied
        self._body = None
        self._keep_room(offered)

    def _keep_room(self, offered: int) -> None:
        """Move the remaining bytes to the front, where the next head begins, so that a whole head fits.

        Without remaining bytes, give the memory back; unless it was `offered`: a transport may still write there.
        """
        left = self._end - self._start
        if self._start:
            if left:
                self._scratch[:left] = self._scratch[self._start : self._end]
            self._offered = self._room = 0
        self._start, self._end, self._scanned = 0, left, 0
        self._has_skipped = False
        if self._scratch and not (left or offered):
            give_back(self._scratch)
            self._scratch = NOTHING

    def _advance(self) -> None:
        """Pass the bytes that have arrived to the body."""
        body = self._body
        if self.state is not _BODY or body is None:
            return
        self.state, following = _BUSY, _BODY
        try:
            for _ in self._pieces:
                if self._start == self._end or not body.wants_data:
                    break
                self._start += body.receive(self._scratch[self._start : self._end])
            if self._start < self._end and body.wants_data:
                following = _NEEDS_TURN
            elif self.is_eof and body.wants_data:
                body.receive_eof()
        finally:
            self.state = following
        if self._start == self._end > 0:
            self._start = self._end = self._offered = self._room = 0
            if not body.is_waiting:  # else it still reads there
                give_back(self._scratch)
                self._scratch = NOTHING
