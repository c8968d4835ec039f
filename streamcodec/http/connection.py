"""Connection: the receiving half of HTTP/1.1, the same for server and client. Sans-IO.

Theory. A head goes through h11; the bytes of a body never do, since h11 would copy each of them three times. To know
where the head ends without asking h11, this room looks for the blank line itself, and gives h11 exactly the head: what
h11 makes of it is then a function of those bytes alone. Where a body ends is found out in `body` and `chunks`.

The transport sees two faces. `get_buffer()` is either scratch memory (for heads, short chunks and compressed bodies),
or, in the middle of a body, the decoder's own target: the socket then writes tensor bytes into the tensor. What is read
together with the head, or with the line in front of a chunk, is copied out of the scratch, once; so it is at most one
scratch's size each time. `feed(chunk)` is written on `get_buffer()` and takes what belongs to the messages so far as
they may proceed: while the connection waits for a decision (where does this body go?) or for the answer to be sent, it
takes nothing. So nothing is ever buffered without bound, pipelined requests included. The same holds while the body's
receiver is paused, because a window of a tensor is being consumed: what has come by then stays where it is, and no more
is taken.

A *paced* connection does no more of a body at once than a bounded piece: what is compressed, and a body in very many
chunks, it goes on with in `work()`, when `next_event` has asked a turn for it. Until then it wants no bytes.

States (`State`)::

           blank line           read_body()
    HEAD ---------------> DECIDE ----------> BODY ------ end of message ------> DONE
     ^                                       |  ^                                |
     |                                       |  +-- BUSY        the receiver runs, in _settle(), work(), _advance()
     |                                       |  +-- FILLING     its memory is being filled; full, or asked: BUSY
     |                                       |  +-- NEEDS_TURN  a piece is to be done: work()
     |                                       |                                   |
     +------------- next_cycle() ------------+-----------------------------------+

and CLOSED from anywhere, by `close()`. That the peer has ended its half, `is_eof`, may happen in any state. One h11
connection serves one cycle: a new one costs a microsecond, and h11's own way to the next cycle would demand that it had
seen the body.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

from streamcodec.engine.decoder import LONG_TARGET_BYTES, Buffer
from streamcodec.engine.errors import ErrorCode, LimitExceededError, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, NEED_TURN, EndOfMessage, NeedData, NeedTurn
from streamcodec.engine.inflate import Inflater
from streamcodec.engine.limits import Limits
from streamcodec.engine.placement import uninitialised_bytes
from streamcodec.formats.v2.model import Event
from streamcodec.http.body import Body, Receiver
from streamcodec.http.chunks import Chunks
from streamcodec.http.heads import check_head, invalid_http
from streamcodec.http.messages import RequestHead, ResponseHead

SCRATCH_BYTES: Final = 64 << 10
"""Read at once where bytes may belong to several things; larger only if a head may be larger."""

_PIECES: Final = 16
"""Of framing and data between it, at once in a paced connection: half a millisecond where chunks have a byte each, so
that what one turn of an event loop reads for sixteen clients is not long either."""

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
    """Within a body, and nothing is being done."""
    FILLING = auto()
    """Within a body: the receiver's memory is being filled and not full, so that there can be no event."""
    BUSY = auto()
    """Within a body: the receiver is at work, and its callbacks may be running; perhaps in another thread."""
    NEEDS_TURN = auto()
    """Within a body: `work` is to do a piece of work before more bytes can be taken."""
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
"""To look a member up in its class takes as long as three calls, and these are looked up with every request."""


class Incoming:
    """Reads message after message; the server's and the client's connection each own one.

    Attributes:
        state: see `State`.
        is_eof: whether the peer has said that it will send no more.
        received: bytes that have come, in all.
        head_bytes: of the last head that was read.
        received_direct: tensor bytes that the transport wrote straight into their memory.
        received_copied: bytes of bodies that were copied there from scratch memory.
    """

    def __init__(self, limits: Limits, *, paced: bool = False) -> None:
        """Begin between messages; `paced` to leave long work to `work()`."""
        self._limits = limits
        self._is_paced = paced
        self._pieces = range(_PIECES if paced else _ENDLESS)
        self._scratch = uninitialised_bytes(max(SCRATCH_BYTES, limits.max_head_bytes + 1))
        self._start = 0
        self._end = 0
        self._scanned = 0
        self._has_skipped = False
        self._offered = 0
        self._room = 0
        self._target: memoryview | None = None
        self._filled = 0
        self.is_eof: bool = False
        self.received: int = 0
        self.head_bytes: int = 0
        self._body: Body | None = None
        self.state: State = State.HEAD
        self.received_direct: int = 0
        self.received_copied: int = 0

    # The transport's side

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return memory for the next bytes: a tensor's own, or scratch. Never empty.

        It stays valid until `buffer_updated` or `feed` is called, or an event ends or begins a message.

        Raises:
            LocalProtocolError: nothing can be taken now; `next_event` says what is to be done first.
        """
        if self.state is not _FILLING:
            if not self.wants_data:
                msg = "no bytes can be taken now; call next_event() until it returns NEED_DATA"
                raise LocalProtocolError(msg)
            self._target = None if self._body is None else self._body.get_buffer()
        buffer = self._scratch[self._end :] if self._target is None else self._target[self._filled :]
        self._offered = self._room = len(buffer)
        return buffer

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return memory for the next bytes in several pieces where several are known; see `Decoder.get_buffers`.

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
        """Tell that bytes were written to the start of the last `get_buffer()`, or of the last `get_buffers()`.

        Raises:
            LocalProtocolError: fewer than 1, or more than the buffers hold.
        """
        if not 0 < nbytes <= self._offered:
            msg = f"{nbytes} bytes cannot have been written to a buffer of {self._offered}"
            raise LocalProtocolError(msg + "; the end of input is receive_eof()" * (nbytes == 0))
        self.received += nbytes
        is_full = nbytes >= self._room
        self._offered = self._room = 0
        if self._target is None:
            self._end += nbytes
            self._advance()
            return
        self._filled += nbytes
        self.state = _FILLING
        if is_full:
            self._settle()

    def feed(self, chunk: Buffer) -> int:
        """Copy a chunk to where its bytes belong, and return how many were taken.

        Fewer than the chunk has when the connection has to wait, for a decision or for an answer to be sent: feed the
        rest after that.
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
        """Tell that the peer will send no more bytes."""
        self._settle()
        self.is_eof = True
        self._advance()

    def work(self) -> bool:
        """Do a bounded piece of the work that `next_event` has asked a turn for, by `NEED_TURN`, if there is any.

        It may be called by another thread, while this one leaves the connection alone.

        Returns:
            Whether there is more to be done at once; whoever has little time may ask for the next event first.

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
        """Whether the body at hand is compressed: then a thread can do its work while others go on."""
        return self._body is not None and self._body.inflates

    @property
    def wants_data(self) -> bool:
        """Whether `get_buffer` can be called."""
        if self.state is _HEAD:
            return self._end < len(self._scratch) and not self.is_eof
        if self.state is not _BODY or self._body is None:
            return self.state is _FILLING
        return self._body.wants_data

    @property
    def is_filling(self) -> bool:
        """Whether small reads into a large tensor go no further than this room."""
        return self.state is _FILLING

    @property
    def has_work(self) -> bool:
        """Whether there is work to be done, or being done: it is not the peer who is waited for."""
        return self.state is _NEEDS_TURN or self.state is _BUSY

    @property
    def has_input(self) -> bool:
        """Whether bytes have come that no message has claimed yet, or the peer has closed."""
        return self._start < self._end or self.is_eof

    # The owner's side

    @property
    def kept(self) -> int:
        """Bytes that have come and wait here: for a receiver, or since they are of the next message."""
        return self._end - self._start

    @property
    def unsettled(self) -> int:
        """Bytes that have been written to the receiver's memory without its being told yet."""
        return self._filled

    def read_head(self, *, skips_empty_line: bool = False) -> bytes | None:
        """Take the next head out of what has come, as far as the blank line; None if it is not complete.

        Args:
            skips_empty_line: whether one empty line may come before it (RFC 9112, section 2.2).

        Raises:
            RemoteProtocolError: these bytes are no head, or the connection ended within it.
            LimitExceededError: longer than `max_head_bytes`, or more than `max_head_fields`; status 431, or 414 if the
                first line alone is too long.
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
        head = bytes(self._scratch[:end])
        check_head(head, self._limits)
        self._start = self.head_bytes = end
        self.state = _DECIDE
        return head

    def _skip_empty_line(self, *, is_allowed: bool) -> bool:
        """Skip an empty line before a head; return whether it has come as a whole.

        Some old clients send one behind a body. Nobody takes it for a request, or for a part of one, so that this says
        nothing else to us than to a proxy; a second one is refused nevertheless.

        Raises:
            RemoteProtocolError: the first character is not printable, for another reason than that.
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
        """Make the error for a head that is too long; 414 says that its first line, so the target, is."""
        limit = self._limits.max_head_bytes
        has_line = b"\n" in bytes(self._scratch[: limit + 1])
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if has_line else HTTPStatus.REQUEST_URI_TOO_LONG
        msg = f"the {'head' if has_line else 'first line of the head'} has more than {limit} bytes"
        return LimitExceededError(msg, limit="max_head_bytes", status_hint=int(status))

    def begun(self, nbytes: int) -> bytes:
        """Return the first bytes of the head at hand, or of the next one; fewer where they have not come."""
        return bytes(self._scratch[: min(nbytes, self._end)])

    def peek(self) -> bytes:
        """Return what has come of the messages that have not begun yet.

        Nothing where the end of the first head was looked for before, and has not come since: to copy all at every byte
        of a head that comes in small pieces would take quadratic time.
        """
        if self.state is not _HEAD:
            return b""
        if self._scanned and _HEAD_END.search(self._scratch, self._scanned, self._end) is None:
            return b""
        return bytes(self._scratch[: self._end])

    def skip(self, nbytes: int) -> None:
        """Leave out messages that somebody else has read, by `peek`."""
        self._start = nbytes
        self._keep_room()

    def receive_body(self, receiver: Receiver, head: RequestHead | ResponseHead | None) -> None:
        """Let the body that a head has announced go to a receiver.

        Raises:
            RemoteProtocolError: `unsupported-encoding`.
            LocalProtocolError: no head is waiting.
        """
        if head is None or self.state is not _DECIDE:
            msg = "receive_body() answers the head of a message, once"
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
    ) -> None:
        """Let a body, or what is left of one, go to a receiver.

        Args:
            receiver: takes the decompressed bytes.
            content_length: bytes on the wire; None if they come in `chunks`, or until the connection ends.
            chunks: find the data of a chunked body.
            inflater: undoes the compression.
        """
        self._body = Body(
            receiver, content_length=content_length, chunks=chunks, inflater=inflater, paced=self._is_paced
        )
        self.state = _BODY
        self._advance()

    def next_body_event(self) -> Event | NeedData | NeedTurn:
        """Return the next event of the body; the state is DONE with the last one.

        Raises:
            RemoteProtocolError: the body breaks a rule; `remaining` bytes of it are unread.
        """
        self._check_idle()
        body = self._current_body()
        # Where it has gone on, so can what was held back meanwhile.
        while (event := body.next_event()) is NEED_DATA and self.wants_data and self.has_input:
            self._advance()
        if event is NEED_DATA and self.state is _NEEDS_TURN:
            return NEED_TURN
        if event is NEED_TURN:
            self.state = _NEEDS_TURN
        elif isinstance(event, EndOfMessage):
            self.state = State.DONE
        return event

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
        """Go on to the next message."""
        self._forget_body()
        self.state = State.HEAD

    def close(self) -> None:
        """Read nothing more."""
        self._forget_body()
        self.state = State.CLOSED

    def _current_body(self) -> Body:
        if self._body is None:
            msg = "there is no body to be read"
            raise LocalProtocolError(msg)
        return self._body

    def _settle(self) -> None:
        """Tell the body what has been written to its memory since it was asked for it."""
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
        self._settle()
        if self._body is not None:
            self.received_direct += self._body.received_direct
            self.received_copied += self._body.received_copied
        self._body = None
        self._keep_room()

    def _keep_room(self) -> None:
        """Move what is left to the front, where the next head begins, so that a whole one fits."""
        left = self._end - self._start
        if self._start:
            self._scratch[:left] = self._scratch[self._start : self._end]
            self._offered = self._room = 0
        self._start, self._end, self._scanned = 0, left, 0
        self._has_skipped = False

    def _advance(self) -> None:
        """Hand what has come to the body."""
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
