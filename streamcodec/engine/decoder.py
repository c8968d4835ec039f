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

This module knows no transport, no clock and no HTTP. The two lengths that HTTP declares are arguments.

States (`State`)::

                       get_buffer()
    start -> RECEIVING -------------> OFFERED
             |  ^    <-------------
             |  |      buffer_updated(), feed()
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

from streamcodec.engine.errors import LocalProtocolError, MessageError, OutOfMemoryError
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

Buffer = bytes | bytearray | memoryview
"""What the push face takes."""

LONG_TARGET_BYTES: Final = 64 << 10
"""A target with more room than this is seldom filled by one read; then it does not matter yet what follows it."""


class State(Enum):
    """What a decoder waits for."""

    RECEIVING = auto()
    """The next bytes; or somebody has taken the target and is at work on it."""
    OFFERED = auto()
    """The same, and the target was handed out by `get_buffer`: `buffer_updated` may be called."""
    PAUSED = auto()
    """That the consumer has finished with a window."""
    NEEDS_TURN = auto()
    """That `work` does a piece of work."""
    COMPLETE = auto()
    """Nothing: the whole message has been received and accepted."""
    FAILED = auto()
    """Nothing: the message was refused, or a callback raised."""


_RECEIVING: Final = State.RECEIVING
_OFFERED: Final = State.OFFERED
_PAUSED: Final = State.PAUSED
_NEEDS_TURN: Final = State.NEEDS_TURN
_COMPLETE: Final = State.COMPLETE
_FAILED: Final = State.FAILED
"""To look a member up in its class takes as long as three calls, and these are looked up with every buffer."""


class Decoder(Generic[HeaderT]):
    """Decodes one message. Made by `format_decoder`, or by the functions of a format, as `request_decoder`."""

    def __init__(self, machine: Machine[HeaderT]) -> None:
        """Run the machine up to its first target."""
        self._machine = machine
        self._steps = machine.run()
        self._target: memoryview | None = None
        self._filled = 0
        self._failure: Exception | None = None
        self._state = _RECEIVING
        self._go_on(None)

    # The pull face

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - the signature of asyncio.BufferedProtocol
        """Return the memory that the next bytes of the message belong to.

        Args:
            sizehint: ignored; present so that the method is `asyncio.BufferedProtocol`'s.

        Returns:
            A writable byte view, never empty, that ends where the memory or the message ends. It stays valid until
            `buffer_updated` or `feed` is called.

        Raises:
            LocalProtocolError: the message is complete, the decoder is paused, or it is in use: the call comes from one
                of its own callbacks, or from a second thread.
            RemoteProtocolError: the message is refused; the same error as from `next_event`.
        """
        target = self._target
        if target is None:
            raise self._no_target()
        self._state = _OFFERED
        return target[self._filled :]  # a view of its own, which may be released

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        """Return the memory that the next bytes of the message belong to, in several pieces where several are known.

        The first is `get_buffer()`; what follows are small tensors, placed a little ahead of their turn. They are to be
        filled in this order, as `socket.recvmsg_into` does.

        Args:
            sizehint: ignored.

        Returns:
            Writable byte views, at most 64, none of them empty, and valid as that of `get_buffer`.

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
        """Tell that bytes were written to the start of the last `get_buffer()`, or of the last `get_buffers()`.

        Args:
            nbytes: how many; at least 1.

        Raises:
            LocalProtocolError: fewer than 1, more than the buffers hold, or there are none: none was asked for since
                the last call, or there was none to be had.
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
        self._filled = filled
        if filled < len(target):
            self._target = target
        else:
            self._go_on(filled)

    def next_event(
        self,
    ) -> HeaderReceived[HeaderT] | TensorReceived | WindowReceived | EndOfMessage | NeedData | NeedTurn:
        """Return the next event, `NEED_DATA` if it needs more bytes, or `NEED_TURN` if it needs `work`.

        Raises:
            RemoteProtocolError: the message breaks a rule. Raised after the events before it, again at every call.
            LocalProtocolError: the last event has been returned already, or a callback or placement misbehaved.
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
        """Do one piece of the work that a paced decoder has left, about 2 ms of it; without effect if there is none."""
        if self._state is _NEEDS_TURN:
            self._state = _RECEIVING
            self._go_on(0)

    # The push face

    def feed(self, chunk: Buffer) -> int:
        """Copy the chunk's bytes to where they belong; no reference to the chunk is kept.

        Args:
            chunk: the next bytes; any length.

        Returns:
            How many bytes were taken. Fewer than the chunk has when the message ends within it; when it is refused,
            which `next_event` then reports; or when the decoder is paused: feed the rest after `next_event`.

        Raises:
            LocalProtocolError: the decoder is in use, see `get_buffer`.
            RemoteProtocolError: the message has been refused before.
        """
        if self._target is None and (self._state is _COMPLETE or self.is_paused):
            return 0
        # Released here, since the frame itself may live on in the traceback of an error.
        with memoryview(chunk) as view, view.cast("B") as source:
            return self._copy(source)

    # Both faces

    def receive_eof(self) -> None:
        """Tell that no more bytes will come; without effect on a message that is complete or refused.

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
        """Whether there is a buffer to fill: the message is neither complete nor refused, the decoder not paused."""
        return self._target is not None

    @property
    def is_paused(self) -> bool:
        """Whether nothing can be taken before the events have been, and `next_event` or `work` has been called."""
        return self._state is _PAUSED or self._state is _NEEDS_TURN

    @property
    def is_complete(self) -> bool:
        """Whether the whole message has been received and accepted."""
        return self._state is _COMPLETE

    @property
    def offset(self) -> int:
        """Bytes of the message taken so far."""
        return self._machine.envelope_bytes + self._machine.offset + self._filled

    @property
    def held_bytes(self) -> int:
        """Memory taken so far for what is being received, but for the tensors that were placed.

        That is the text of the header that is kept, the values of tensors that came in it, and the offsets of BYTES.
        """
        return self._machine.held_bytes

    def _no_target(self) -> Exception:
        if isinstance(self._failure, MessageError):
            return copy(self._failure)  # raising the one we keep would tie the caller's frames to it
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
        """Copy bytes to target after target, as long as there are any of both; return how many were copied."""
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

    def _update_several(self, first: memoryview, nbytes: int) -> None:
        """Go from target to target, as far as bytes were written; the first has been taken."""
        room = len(first) - self._filled
        if not (self._state is _OFFERED and 0 < nbytes <= room + sum(map(len, self._machine.placed_targets))):
            self._target = first
            raise self._impossible(nbytes, room)
        self._state = _RECEIVING
        target: memoryview | None = first
        filled = self._filled + nbytes
        while target is not None and filled >= len(target):
            filled -= len(target)
            target = self._step(len(target))
        if target is not None:
            self._filled = filled
            self._target = target

    def _impossible(self, nbytes: int, room: int) -> LocalProtocolError:
        msg = f"{nbytes} bytes cannot have been written to a buffer of {room}"
        if self._state is not _OFFERED:
            msg = "no buffer was asked for since the last bytes; get_buffer() comes before buffer_updated()"
        return LocalProtocolError(msg + "; the end of input is receive_eof()" * (nbytes == 0))

    def _go_on(self, filled: int | None) -> None:
        """Make a step, and put the next target back, if there is one."""
        target = self._step(filled)
        if target is not None:  # else a second thread may have one by now: a pause can be over at once
            self._target = target

    def _step(self, filled: int | None) -> memoryview | None:
        """Run the machine until it wants the next target filled, or has to wait; None starts it.

        Args:
            filled: bytes of the target that has been taken.

        Returns:
            The next target, which the caller has taken too; None if the message has ended, one way or the other, or
            the decoder is paused.
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
