"""The decoder: the engine that turns the bytes of one message into events and filled arrays.

Theory. At any moment the decoder has exactly one *target*: a writable view of the memory that the next bytes of the
message belong to. While the JSON header is read, that is scratch memory of exactly the declared length; after that it
is the memory of the tensor being filled. The target never reaches past the message, so reading too far is impossible.

There are two interfaces. The *pull* interface returns the target: call `get_buffer()`, read into it, call
`buffer_updated(nbytes)`. The *push* interface, `feed(chunk)`, copies the chunk into the same targets. Both use the same
code. So the way in which the bytes are split into chunks cannot change the events, the arrays, or the error and its
offset.

The structure of a message is described in `machine.py`, by a generator that yields targets. This module drives the
generator, so that the caller keeps control.

After a window of a tensor the machine may have to wait for the consumer, because the memory of the window is used
again. Then the decoder is *paused*, and takes no data through either interface. The consumer calls `next_event` again
when it has finished with the window, and the decoder goes on.

A *paced* decoder works in small pieces. It is also paused before each piece of work: `next_event` returns `NEED_TURN`,
and `work` does the piece. So an event loop can serve other connections in between.

Each operation *takes* the target first, and puts the same or the next target back at its end. Meanwhile there is no
target. So a callback that calls the decoder, or a second thread, gets an error and does no harm. No lock is needed: the
target is taken by one assignment, and the interpreter does not switch threads within it.

A message can be *resumed*: a new decoder gets the header again, and `resume_at` then passes over the bytes that are in
their places since before. They go through the machine like bytes that have just come, so they are checked as usual.

This module knows no transport, no clock and no HTTP. The two lengths that HTTP declares are arguments.

States (`DecoderState`)::

                       get_buffer()
    start -> RECEIVING -------------> OFFERED
             |  ^    <-------------
             |  |      buffer_updated(), feed(), resume_at()
             |  |
             |  +------ next_event(), when the events have been taken ------ PAUSED
             |  +------ work() ---------------------------------------- NEEDS_TURN
             |
             +- a target is full, or the input has ended: the machine goes on until it yields
                  a target                      -> RECEIVING
                  a pause behind a window       -> PAUSED
                  a pause before a piece of work-> NEEDS_TURN
                or ends
                  the message is complete       -> COMPLETE, for good
                  a rule is broken, or a callback raised -> FAILED, for good

While the machine runs, the state is RECEIVING, and the target is taken.
"""

from __future__ import annotations

from copy import copy
from enum import Enum, auto
from typing import Final, Generic

from streamcodec.engine.errors import LocalProtocolError, MessageError, OutOfMemoryError, ProtocolError
from streamcodec.engine.events import (
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    HeaderReceived,
    HeaderT,
    NeedData,
    NeedTurn,
    TensorReceived,
    WindowReceived,
)
from streamcodec.engine.machine import Machine
from streamcodec.engine.receiving import LONG_TARGET_BYTES, Buffer

_KEPT_BYTES: Final = 1 << 10
"""Bytes of the untaken rest of a chunk that are kept, to see that the next chunk begins with them."""


class DecoderState(Enum):
    """The state of a decoder: what it waits for."""

    RECEIVING = auto()
    """It waits for the next bytes, or an operation is using the target."""
    OFFERED = auto()
    """As RECEIVING, and `get_buffer` has returned the target: `buffer_updated` may be called."""
    PAUSED = auto()
    """It waits until the consumer has finished with a window."""
    NEEDS_TURN = auto()
    """It waits for a call of `work`."""
    COMPLETE = auto()
    """It waits for nothing: the whole message has been received and accepted."""
    FAILED = auto()
    """It waits for nothing: the message was refused, or a callback raised."""


_RECEIVING: Final = DecoderState.RECEIVING
_OFFERED: Final = DecoderState.OFFERED
_PAUSED: Final = DecoderState.PAUSED
_NEEDS_TURN: Final = DecoderState.NEEDS_TURN
_COMPLETE: Final = DecoderState.COMPLETE
_FAILED: Final = DecoderState.FAILED
"""To access a member of an enum takes as long as three calls, and these are needed for each buffer."""


class Decoder(Generic[HeaderT]):
    """Decodes one message. Made by `format_decoder`, or by the functions of a format, as `request_decoder`."""

    def __init__(self, machine: Machine[HeaderT]) -> None:
        """Run the machine up to its first target."""
        self._machine = machine
        self._steps = machine.run()
        self._filled = 0
        self._failure: Exception | None = None
        self._rest: tuple[int, bytes] | None = None  # where the untaken rest of a chunk belongs, and how it begins
        self._state = _RECEIVING
        self._target: memoryview | None = self._step(None)

    # The pull interface

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return the memory that the next bytes of the message belong to.

        Args:
            sizehint: ignored; present so that the method is `asyncio.BufferedProtocol`'s.

        Returns:
            A writable byte view, never empty, that ends at the end of the memory or of the message. It is valid until
            `buffer_updated` or `feed` is called.

        Raises:
            LocalProtocolError: the message is complete, the decoder is paused, or it is in use: the call comes from one
                of its own callbacks, or from a second thread.
            RemoteProtocolError: the message has been refused; the same error as from `next_event`.
        """
        target = self._target
        if target is None:
            raise self._no_target()
        self._state = _OFFERED
        return target[self._filled :]  # a view of its own, which may be released

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return the memory that the next bytes of the message belong to, in several pieces if they are known.

        The first piece is that of `get_buffer()`. The others are small tensors, which are placed a little ahead of
        their turn. The pieces must be filled in this order, as `socket.recvmsg_into` does.

        Args:
            sizehint: ignored.

        Returns:
            Writable byte views, at most 64, never empty, and valid as long as that of `get_buffer`.

        Raises:
            LocalProtocolError: as `get_buffer`.
            RemoteProtocolError: as `get_buffer`.
        """
        buffers = [self.get_buffer(sizehint)]
        if len(buffers[0]) > LONG_TARGET_BYTES:
            return buffers
        target = self._take_target()
        buffers += [following[:] for following in self._machine.place_ahead()]
        self._target = target
        return buffers

    def buffer_updated(self, nbytes: int) -> None:
        """Report that bytes were written to the start of the last `get_buffer()` or `get_buffers()`.

        Args:
            nbytes: number of bytes; at least 1.

        Raises:
            LocalProtocolError: `nbytes` is less than 1 or more than the buffers hold, or no buffer was requested since
                the last call.
            RemoteProtocolError: the message has been refused before.
        """
        self._machine.in_a_row = 0
        filled = self._filled + nbytes
        target, self._target = self._target, None
        if target is None:
            raise self._no_target()
        if nbytes < 1 or filled > len(target) or self._state is not _OFFERED:
            self._update_several(target, nbytes)
            return
        self._state = _RECEIVING
        if filled < len(target):
            self._filled = filled
            self._target = target
        elif (target := self._step(filled)) is not None:
            self._target = target

    def next_event(
        self,
    ) -> HeaderReceived[HeaderT] | TensorReceived | WindowReceived | EndOfMessage | NeedData | NeedTurn:
        """Return the next event, `NEED_DATA` if it needs more bytes, or `NEED_TURN` if it needs `work`.

        Raises:
            RemoteProtocolError: the message breaks a rule. Raised after the events before it, and at each later call.
            LocalProtocolError: the last event has been returned already, or a callback or a placement has a bug.
        """
        events = self._machine.events
        while not events:
            if self._target is not None:
                return NEED_DATA
            if self._state is _NEEDS_TURN:
                return NEED_TURN
            if self._state is not _PAUSED:
                raise self._no_target()
            self._state = _RECEIVING
            self._go_on(0)
        return events.popleft()

    def work(self) -> None:
        """Do one piece of the work that a paced decoder has left, about 2 ms; no effect if no work is left."""
        if self._state is _NEEDS_TURN:
            self._state = _RECEIVING
            self._go_on(0)

    # The push interface

    def feed(self, chunk: Buffer) -> int:
        """Copy the bytes of the chunk to their places; no reference to the chunk is kept.

        Args:
            chunk: the next bytes, of any length.

        Returns:
            The number of bytes that were taken. It is smaller than the chunk in three cases. The message ends within
            the chunk. Or the message is refused, which `next_event` then reports. Or the decoder is paused; then feed
            the rest after `next_event`.

        Raises:
            LocalProtocolError: the decoder is in use, see `get_buffer`. Or the chunk before was taken in part, because
                the decoder was paused, and this one does not begin with its rest; nothing is taken then, and the rest
                may still be fed. Their first 1,024 bytes are compared.
            RemoteProtocolError: the message has been refused before.
        """
        if self._target is None and self._state is _COMPLETE:
            return 0
        # Released here, because the traceback of an error may keep this frame alive.
        with memoryview(chunk) as view, view.cast("B") as source:
            if self._rest is not None:
                self._check_rest(source, *self._rest)
            taken = 0 if self._target is None and self.is_paused else self._copy(source)
            if taken < len(source):
                offset = self.offset
                if self.is_paused:  # asked after the offset was read, because a second thread may end the pause
                    self._rest = offset, bytes(source[taken : taken + _KEPT_BYTES])
            return taken

    # Both interfaces

    def resume_at(self, offset: int) -> int:
        """Continue a message that another decoder has begun: the bytes up to `offset` are in their places already.

        First this decoder needs the bytes of the header again, and only these. Then call this method, and have the
        sender continue at the offset that it returns. The bytes in between are checked as usual, where they are.

        Only memory that existed before can hold them: `Into`, `MemoryMap` with `resume`, and placements of your own
        whose slabs are not `is_new`. A BYTES tensor is not placed. So all of its bytes have to come again, but the
        tensors behind it can be passed over by another call.

        Args:
            offset: of the next byte that will come; counted as in `offset`, in any place of a tensor.

        Returns:
            The `offset` of this decoder. It is smaller than requested in three cases. The message ends before. Or the
            message is refused, which `next_event` then reports. Or the decoder is paused; then call this method again
            after `next_event`.

        Raises:
            LocalProtocolError: some of the bytes cannot be in their places: those of the header, of a BYTES tensor, or
                of a tensor in new memory. The decoder has passed over the bytes before them, and can go on there. Or
                the offset lies before the decoder's, or the decoder is in use, see `get_buffer`.
            RemoteProtocolError: the message has been refused before.
        """
        if offset < self.offset:
            msg = f"the decoder cannot go back to byte {offset}: it has the bytes before {self.offset}"
            raise LocalProtocolError(msg)
        if self._target is None and (self._state is _COMPLETE or self.is_paused):
            return self.offset
        target: memoryview | None = self._take_target()
        self._machine.in_a_row = 0
        self._state = _RECEIVING
        while target is not None and (missing := offset - self.offset):
            if not self._machine.may_hold:
                self._target = target
                msg = (
                    f"byte {self.offset} of the message has to come again: only a tensor in memory that existed before"
                    " can hold its bytes, and no header, BYTES tensor or new memory can"
                )
                raise LocalProtocolError(msg)
            self._filled += min(len(target) - self._filled, missing)
            if self._filled == len(target):
                target = self._step(self._filled)
        if target is not None:
            self._target = target
        return self.offset

    def receive_eof(self) -> None:
        """Report that no more bytes will come; no effect if the message is complete or refused.

        Raises:
            LocalProtocolError: the decoder is in use, see `get_buffer`.
        """
        if self.is_paused:
            self._machine.has_ended = True
        elif not (self._state is _COMPLETE or self._state is _FAILED):
            self._take_target()
            self._go_on(self._filled)

    @property
    def needs_data(self) -> bool:
        """Whether more bytes are needed now: the message is not complete or refused, and the decoder is not paused."""
        return self._target is not None

    @property
    def is_paused(self) -> bool:
        """Whether the decoder waits: take all events, and then call `next_event` or `work` before more bytes."""
        return self._state is _PAUSED or self._state is _NEEDS_TURN

    @property
    def is_complete(self) -> bool:
        """Whether the whole message has been received and accepted."""
        return self._state is _COMPLETE

    @property
    def offset(self) -> int:
        """Bytes of the message taken so far, so where in the message the next byte belongs.

        Each byte before it is in its place, whatever happens to the transport. So after a broken connection a sender
        continues here (`EncodedMessage.buffers_from`), with the same decoder, or with a new one (`resume_at`).
        """
        return self._machine.envelope_bytes + self._machine.offset + self._filled

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the message takes so far, except for the tensors that were placed.

        These are the text of the header that is kept, the values of JSON tensors, and the offsets of BYTES elements.
        """
        return self._machine.held_bytes

    def _no_target(self) -> Exception:
        if isinstance(self._failure, ProtocolError):
            return copy(self._failure)  # a new error: raising the kept one would add the caller's frames to it
        if self._failure is not None:
            return self._failure
        if self._state is _COMPLETE:
            return LocalProtocolError("the message is complete; make a new decoder for the next one")
        if self.is_paused:
            return LocalProtocolError("the memory is still in use; call next_event() until it returns NEED_DATA")
        msg = "a decoder cannot be used from its own callbacks, by two threads at once, or after one was interrupted"
        return LocalProtocolError(msg)

    def _take_target(self) -> memoryview:
        target, self._target = self._target, None
        if target is None:
            raise self._no_target()
        return target

    def _copy(self, source: memoryview) -> int:
        """Copy bytes to one target after the other, until bytes or targets run out; return how many were copied."""
        target: memoryview | None = self._take_target()
        self._machine.in_a_row = 0
        self._state = _RECEIVING
        taken = 0
        while target is not None and taken < len(source):
            start = self._filled
            count = min(len(target) - start, len(source) - taken)
            self._filled = start + count
            target[start : self._filled] = source[taken : taken + count]
            taken += count
            if self._filled == len(target):
                target = self._step(self._filled)
        if target is not None:
            self._target = target
        return taken

    def _check_rest(self, source: memoryview, start: int, rest: bytes) -> None:
        """Refuse a chunk that does not go on where the chunk before was left; `start` is where its rest belongs."""
        rest = rest[self.offset - start :]  # other bytes may have come since, perhaps through the pull interface
        if not rest or self._state is _FAILED:
            self._rest = None
        elif not rest.startswith(bytes(source[: len(rest)])):
            msg = (
                f"the chunk before was taken up to byte {self.offset}, because the decoder was paused, and this chunk"
                " does not begin with its rest: feed() returns how many bytes it took; feed the others, chunk[taken:],"
                " again after the events have been taken"
            )
            raise LocalProtocolError(msg)

    def _update_several(self, first: memoryview, nbytes: int) -> None:
        """Go from target to target, as far as bytes were written; the caller has taken the first one."""
        room = len(first) - self._filled
        if not (self._state is _OFFERED and 0 < nbytes <= room + sum(map(len, self._machine.placed_targets))):
            self._target = first
            msg = f"{nbytes} bytes cannot have been written to a buffer of {room}"
            if self._state is not _OFFERED:
                msg = "no buffer was asked for since the last bytes; get_buffer() comes before buffer_updated()"
            raise LocalProtocolError(msg + "; the end of input is receive_eof()" * (nbytes == 0))
        self._state = _RECEIVING
        target: memoryview | None = first
        filled = self._filled + nbytes
        while target is not None and filled >= len(target):
            filled -= len(target)
            target = self._step(len(target))
        if target is not None:
            self._filled = filled
            self._target = target

    def _go_on(self, filled: int | None) -> None:
        """Make a step, and store the next target, if there is one."""
        target = self._step(filled)
        if target is not None:  # else a second thread may already have stored one: a pause can be over at once
            self._target = target

    def _step(self, filled: int | None) -> memoryview | None:
        """Run the machine until it needs the next target filled, or has to wait.

        Args:
            filled: bytes written to the target that the caller has taken; None starts the machine.

        Returns:
            The next target, which the caller has taken too; None if the message is complete or refused, or the decoder
            is paused.
        """
        self._filled = 0
        self._state = _RECEIVING
        try:
            target = next(self._steps) if filled is None else self._steps.send(filled)
        except StopIteration:
            self._state = _COMPLETE
        except MessageError as failure:
            own = copy(failure)  # without its traceback, whose frames hold the message's memory
            if failure.offset is not None:
                own.offset = self._machine.envelope_bytes + failure.offset
            self._fail(own)
        except LocalProtocolError as failure:  # memory that does not fit is the peer's doing, too
            self._fail(copy(failure))
        except MemoryError:
            self._fail(OutOfMemoryError("there is no memory to read the message any further"))
        except Exception as failure:  # noqa: BLE001 - a user's callback may raise anything: kept, and reported in order
            self._fail(failure)
        else:
            if target is None:
                self._state = _NEEDS_TURN if self._machine.needs_turn else _PAUSED
            return target
        return None

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self._state = _FAILED
