"""Running: passes one message to one decoder, through one of its interfaces, and records the outcome.

A run is a strict caller. It overwrites and releases the fed memory at once, fills buffers as far as the bytes go, and
requests events after each step. Meanwhile it checks the rules of the interfaces. A buffer is a writable view of bytes,
and never empty. It never reaches past a message that ends by itself. Bytes are taken while they are needed, and not
afterwards. When the input has ended, the message is complete or refused, and stays so.

A run uses only the two interfaces of a decoder, so it works with any object that has them. An `AssertionError` says
which rule is broken. An error in the peer's bytes is not an exception here, but part of the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.events import NEED_DATA, EndOfMessage, HeaderReceived, TensorReceived, WindowReceived
from streamcodec.engine.spec import TensorSpec
from streamcodec.testing.descriptions import (
    ArrayDescription,
    ErrorDescription,
    HeaderDescription,
    SpecDescription,
    describe_array,
    describe_error,
    describe_header,
    describe_spec,
)

_POISON = b"\xaa"
_ANYTHING = b'{"inputs":[]}'
"""Bytes that are offered to a decoder that must not take any."""


class TwoFaced(Protocol):
    """The interface that a run needs. `streamcodec.Decoder` has it; a wrapper or another implementation may have it."""

    @property
    def needs_data(self) -> bool:
        """Whether the decoder can take bytes now."""
        ...

    def feed(self, chunk: bytearray, /) -> int:
        """Take bytes; return how many."""
        ...

    def get_buffer(self, sizehint: int = -1, /) -> memoryview:
        """Return memory for the next bytes, which does not reach past the end of the message."""
        ...

    def buffer_updated(self, nbytes: int, /) -> None:
        """Report that bytes were written to the start of that memory."""
        ...

    def next_event(self) -> object:
        """Return the next event, or `NEED_DATA`."""
        ...

    def receive_eof(self) -> None:
        """Report that no more bytes will come."""
        ...


class ManyTargeted(TwoFaced, Protocol):
    """A decoder that offers several buffers at once."""

    @property
    def offset(self) -> int:
        """Bytes of the message taken so far."""
        ...

    def get_buffers(self, sizehint: int = -1, /) -> list[memoryview]:
        """Return memory for the next bytes, in several pieces."""
        ...


class WindowDescription(NamedTuple):
    """A window with a copy of its content: the decoder reuses the memory."""

    name: str
    """The tensor's name."""
    row: int
    """Number of the window's first row in the tensor."""
    array: ArrayDescription
    """The rows, as they were when the window came."""
    is_last: bool
    """Whether it is the tensor's last."""


class Log(NamedTuple):
    """An outcome in a form that can be compared."""

    header: HeaderDescription | None
    tensors: tuple[tuple[SpecDescription, ArrayDescription], ...]
    windows: tuple[WindowDescription, ...]
    end: EndOfMessage | None
    error: ErrorDescription | None
    taken: int


@dataclass(kw_only=True)
class Outcome:
    """Everything that a decoder reported."""

    header: Any = None
    """The header, if it has come."""
    tensors: list[TensorReceived] = field(default_factory=list)
    """The tensors that have come, in order."""
    windows: list[WindowDescription] = field(default_factory=list)
    """The windows that have come, in order."""
    end: EndOfMessage | None = None
    """The end, if the message was accepted."""
    error: MessageError | None = None
    """Why the message was refused, if it was."""
    taken: int = 0
    """Bytes that the decoder took."""

    @property
    def log(self) -> Log:
        """The whole outcome, every field and every bit, in a form that can be compared; made anew at every call."""
        return Log(
            header=None if self.header is None else describe_header(self.header),
            tensors=tuple((describe_spec(event.spec), describe_array(event.array)) for event in self.tensors),
            windows=tuple(self.windows),
            end=self.end,
            error=None if self.error is None else describe_error(self.error),
            taken=self.taken,
        )

    @property
    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The tensors' values, in order; object dtype for BYTES."""
        return [event.array for event in self.tensors]

    @property
    def is_over(self) -> bool:
        """Whether the message was accepted or refused."""
        return self.end is not None or self.error is not None

    def collect(self, decoder: TwoFaced) -> None:
        """Take all events that there are, or the error.

        Raises:
            AssertionError: the order of the events is impossible, or the decoder needs data but does not take them.
        """
        while not self.is_over:
            try:
                event = decoder.next_event()
            except MessageError as error:
                self.error = error
                return
            if event is NEED_DATA:
                _expect(decoder.needs_data, "next_event() returned NEED_DATA, but needs_data is false")
                return
            self._note(event)

    def _note(self, event: object) -> None:
        match event:
            case HeaderReceived(header=header):
                _expect(self.header is None, "a second HeaderReceived")
                self.header = header
            case TensorReceived():
                self._expect_announced(event.spec)
                self.tensors.append(event)
            case WindowReceived(spec=spec, array=array, row=row):
                self._expect_announced(spec)
                self.windows.append(WindowDescription(spec.name, row, describe_array(array), event.is_last))
            case EndOfMessage():
                _expect(self.header is not None, "EndOfMessage before HeaderReceived")
                self.end = event
            case _:
                msg = f"next_event() returned {type(event).__name__}, which is no event"
                raise AssertionError(msg)

    def _expect_announced(self, spec: TensorSpec) -> None:
        _expect(self.header is not None, f"tensor {spec.name!r} came before HeaderReceived")


Make = Callable[[], TwoFaced]
"""Makes a decoder that is ready for the first byte; called once for each run."""


def run_push(make_decoder: Make, chunks: Iterable[bytes], *, has_eof: bool = True) -> Outcome:
    """Pass a message to a decoder by `feed`. The memory of each chunk is overwritten and released at once.

    Args:
        make_decoder: makes the decoder.
        chunks: the bytes as they arrive; empty chunks are left out. Bytes after the message are not passed.
        has_eof: whether the end of input is reported, as at the end of a connection.

    Returns:
        The outcome.

    Raises:
        AssertionError: the decoder broke a rule of its interface.

    Example:
        >>> import streamcodec
        >>> text = b'{"inputs":[{"name":"x","datatype":"BOOL","shape":[2],"data":[true,false]}]}'
        >>> make = lambda: streamcodec.request_decoder(header_length=None, body_length=len(text))
        >>> outcome = run_push(make, [text[:9], text[9:]])
        >>> outcome.arrays[0].tolist(), outcome.taken == len(text), outcome.error
        ([True, False], True, None)
    """
    return _run(make_decoder(), _push, chunks, has_eof=has_eof)


def run_pull(make_decoder: Make, chunks: Iterable[bytes], *, has_eof: bool = True) -> Outcome:
    """Pass a message to a decoder by `get_buffer` and `buffer_updated`, as with `recv_into`.

    Args:
        make_decoder: makes the decoder.
        chunks: as for `run_push`.
        has_eof: as for `run_push`.

    Returns:
        The outcome.

    Raises:
        AssertionError: the decoder broke a rule of its interface.
    """
    return _run(make_decoder(), _pull, chunks, has_eof=has_eof)


def run_scatter(make_decoder: Callable[[], ManyTargeted], chunks: Iterable[bytes], *, has_eof: bool = True) -> Outcome:
    """Pass a message to a decoder by `get_buffers` and `buffer_updated`, as with `recvmsg_into`.

    Args:
        make_decoder: makes the decoder, which has `get_buffers` and `offset`, too.
        chunks: as for `run_push`.
        has_eof: as for `run_push`.

    Returns:
        The outcome.

    Raises:
        AssertionError: the decoder broke a rule of its interface.
    """
    return _run(make_decoder(), _scatter, chunks, has_eof=has_eof)


class _Step(Protocol):
    """Passes some of the bytes to a decoder; returns how many, and how many its buffers have room for."""

    def __call__(self, decoder: Any, data: memoryview, /) -> tuple[int, int]: ...  # noqa: ANN401 - has the methods that the step uses


def _run(decoder: TwoFaced, step: _Step, chunks: Iterable[bytes], *, has_eof: bool) -> Outcome:
    outcome, reach = Outcome(), 0
    outcome.collect(decoder)
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest and not outcome.is_over and decoder.needs_data:
            taken, room = step(decoder, rest)
            reach = max(reach, outcome.taken + room)
            outcome.taken += taken
            rest = rest[taken:]
            outcome.collect(decoder)
    if outcome.end is not None:  # by itself; who has to be told of the end cannot know how far it is
        past = reach - outcome.end.nbytes
        _expect(past <= 0, f"a buffer reached {past} bytes past the message, where the next one would be lost")
    if has_eof:
        decoder.receive_eof()
        outcome.collect(decoder)
        _expect(outcome.is_over, "the input has ended, but the message is neither complete nor refused")
    _check_over(decoder, outcome)
    return outcome


def _push(decoder: TwoFaced, data: memoryview) -> tuple[int, int]:
    chunk = bytearray(data)
    taken = decoder.feed(chunk)
    chunk[:] = _POISON * len(chunk)
    try:
        chunk.clear()
    except BufferError:
        msg = "feed() kept a view of its chunk"
        raise AssertionError(msg) from None
    _expect(0 <= taken <= len(data), f"feed() took {taken} bytes of {len(data)}")
    _expect(taken > 0 or not decoder.needs_data, "feed() took nothing, but needs_data is true")
    _expect(taken == len(data) or not decoder.needs_data, "feed() left bytes, but needs_data is true")
    return taken, 0


def _pull(decoder: TwoFaced, data: memoryview) -> tuple[int, int]:
    buffer = decoder.get_buffer()
    _check_buffer(buffer)
    count = min(len(buffer), len(data))
    buffer[:count] = data[:count]
    decoder.buffer_updated(count)
    return count, len(buffer)


def _scatter(decoder: ManyTargeted, data: memoryview) -> tuple[int, int]:
    before, count, room = decoder.offset, 0, 0
    for buffer in decoder.get_buffers():
        _check_buffer(buffer)
        part = data[count : count + len(buffer)]
        buffer[: len(part)] = part
        count += len(part)
        room += len(buffer)
    decoder.buffer_updated(count)
    # What was written behind the place of an error is not the message's.
    taken = decoder.offset - before
    _expect(0 < taken <= count, f"{count} bytes were written to the buffers, but the offset grew by {taken}")
    _expect(taken == count or not decoder.needs_data, "bytes were written that the decoder passed over")
    return taken, room


def _check_buffer(buffer: memoryview) -> None:
    _expect(
        (buffer.format, buffer.ndim, buffer.readonly, buffer.contiguous) == ("B", 1, False, True),
        f"a buffer is no writable view of bytes: format {buffer.format!r}, {buffer.ndim} dimensions",
    )
    _expect(len(buffer) > 0, "a buffer is empty; transports take that for the end of input")


def _check_over(decoder: TwoFaced, outcome: Outcome) -> None:
    """Check that a complete message takes no more bytes, and that a refused message stays refused."""
    if outcome.end is not None:
        _expect(outcome.end.nbytes == outcome.taken, f"{outcome.taken} bytes were taken of {outcome.end.nbytes}")
        _expect(not decoder.needs_data, "the message is complete, but needs_data is true")
        _expect(decoder.feed(bytearray(_ANYTHING)) == 0, "the message is complete, but feed() takes bytes")
        _expect(_raises(decoder.get_buffer), "the message is complete, but get_buffer() returns memory")
    elif outcome.error is not None:
        _expect(not decoder.needs_data, "the message was refused, but needs_data is true")
        again = Outcome()
        again.collect(decoder)
        _expect(again.log.error == outcome.log.error, "the message was refused, but next_event() says something else")
        _expect(_raises(decoder.get_buffer), "the message was refused, but get_buffer() returns memory")


def _raises(act: Callable[[], object]) -> bool:
    try:
        act()
    except (LocalProtocolError, MessageError):
        return True
    return False


def _expect(condition: object, message: str) -> None:
    """Do the same as `assert`, also if Python runs without assertions."""
    if not condition:
        raise AssertionError(message)
