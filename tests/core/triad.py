"""The triad: a message must mean the same however its bytes arrive.

`decode` brings one message to fresh decoders whole, in every two pieces and byte by byte, through both faces, with the
bytes of a next message behind it, and insists that all of them report the same: events with every field and every byte
of every tensor, or the same error at the same place. Tests that decode through it get all of that with each message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    EndOfMessage,
    HeaderReceived,
    LimitExceededError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestHeader,
    ResponseHeader,
    TensorReceived,
    TensorSpec,
    WindowReceived,
)
from tests.core.messages import AnyDecoder, Message

Make = Callable[[], AnyDecoder]
Values = np.ndarray[Any, Any]
_NEXT_MESSAGE = b'{"inputs":[]}'
_EVERY_SPLIT = 700
"""Longer messages are cut at some hundred places only."""


@dataclass(kw_only=True)
class Outcome:
    """What came out of one decoder."""

    header: RequestHeader | ResponseHeader | None = None
    tensors: list[TensorReceived] = field(default_factory=list)
    windows: list[tuple[object, ...]] = field(default_factory=list)
    """Windows with their content, which does not stay."""
    end: EndOfMessage | None = None
    error: RemoteProtocolError | None = None
    taken: int = 0
    """Bytes that the decoder said were its own."""

    @property
    def log(self) -> tuple[object, ...]:
        """All of it in a form that can be compared."""
        header = None if self.header is None else describe_header(self.header)
        tensors = [(describe_spec(event.spec), describe_array(event.array)) for event in self.tensors]
        error = None if self.error is None else describe_error(self.error)
        return header, tensors, self.windows, self.end, error, self.taken

    @property
    def arrays(self) -> list[Values]:
        """The tensors' values, in order."""
        return [event.array for event in self.tensors]

    def collect(self, decoder: AnyDecoder) -> None:
        """Take all events that there are, or the error, which must then stay."""
        while self.end is None and self.error is None:
            try:
                event = decoder.next_event()
            except RemoteProtocolError as error:
                self.error = error
                _assert_stays_failed(decoder, error)
                return
            if event is NEED_DATA:
                assert decoder.needs_data
                return
            match event:
                case HeaderReceived(header=header):
                    assert self.header is None
                    self.header = header
                case TensorReceived():
                    assert self.header is not None
                    self.tensors.append(event)
                case WindowReceived(spec=spec, array=array, row=row):
                    self.windows.append((spec.name, row, describe_array(array), event.is_last))
                case EndOfMessage():
                    self.end = event


Face = Callable[[AnyDecoder, list[bytes], Outcome], None]


def decode(source: Message | Make, body: bytes | None = None, *, has_eof: bool = True) -> Outcome:
    """Decode a message in every way there is; return what all ways agree on.

    Args:
        source: a message; or what makes its decoder, with the bytes as `body`.
        body: the bytes, if `source` does not know them.
        has_eof: whether the end of input is told, as by the end of a connection.
    """
    make, data = (source.decoder, source.body) if isinstance(source, Message) else (source, body or b"")
    expected = _run(make, push, [data], has_eof=has_eof)
    for pieces in cuts(data):
        for face in (push, pull, scatter) if len(pieces) == 1 else (push, pull):
            assert _run(make, face, pieces, has_eof=has_eof).log == expected.log, f"{face.__name__} of {pieces}"
    if expected.end is not None and not _is_ended_by_eof(make, data):
        for face in (push, pull):
            assert _run(make, face, [data + _NEXT_MESSAGE], has_eof=False).log == expected.log
    return expected


def refuse(source: Message | Make, body: bytes | None = None) -> RemoteProtocolError:
    """Decode a message that must be refused, in every way there is; return the error that all ways agree on."""
    outcome = decode(source, body)
    assert outcome.error is not None, "the message was accepted"
    return outcome.error


def accept(source: Message | Make, body: bytes | None = None) -> list[Values]:
    """Decode a message that must be accepted, in every way there is; return its tensors' values."""
    outcome = decode(source, body)
    assert outcome.error is None, outcome.error
    assert outcome.end is not None
    assert outcome.end.nbytes == outcome.taken
    return outcome.arrays


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Yield the ways of cutting a message: whole, byte by byte, every two pieces."""
    yield [data]
    yield [data[i : i + 1] for i in range(len(data))]
    step = 1 if len(data) <= _EVERY_SPLIT else len(data) // 200
    for i in range(1, len(data), step):
        yield [data[:i], data[i:]]


def push(decoder: AnyDecoder, pieces: list[bytes], outcome: Outcome) -> None:
    """Bring pieces by `feed`, each from memory that is overwritten and given back right after."""
    for piece in pieces:
        rest = piece
        while rest and decoder.needs_data:
            chunk = bytearray(rest)
            taken = decoder.feed(chunk)
            chunk[:] = b"\xaa" * len(chunk)
            chunk.clear()  # raises if the decoder still held a view of it
            assert not (decoder.is_paused and decoder.feed(rest))
            outcome.taken += taken
            outcome.collect(decoder)
            rest = rest[taken:]


def pull(decoder: AnyDecoder, pieces: list[bytes], outcome: Outcome) -> None:
    """Bring pieces as a `recv_into` would, by `get_buffer` and `buffer_updated`."""
    for piece in pieces:
        rest = piece
        while rest and decoder.needs_data:
            buffer = decoder.get_buffer()
            assert (buffer.format, buffer.ndim, buffer.readonly) == ("B", 1, False)
            assert len(buffer) > 0
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            decoder.buffer_updated(count)
            outcome.taken += count
            outcome.collect(decoder)
            rest = rest[count:]


def scatter(decoder: AnyDecoder, pieces: list[bytes], outcome: Outcome) -> None:
    """Bring pieces as a `recvmsg_into` would, by `get_buffers` and `buffer_updated`."""
    for piece in pieces:
        rest = piece
        while rest and decoder.needs_data:
            before, count = decoder.offset, 0
            for buffer in decoder.get_buffers():
                part = rest[count : count + len(buffer)]
                buffer[: len(part)] = part
                count += len(part)
            decoder.buffer_updated(count)
            outcome.collect(decoder)
            # What was written behind the place of an error is not the message's.
            outcome.taken += decoder.offset - before
            assert decoder.offset - before == count or outcome.error is not None
            rest = rest[count:]


def _run(make: Make, face: Face, pieces: list[bytes], *, has_eof: bool) -> Outcome:
    decoder, outcome = make(), Outcome()
    outcome.collect(decoder)
    face(decoder, pieces, outcome)
    if has_eof:
        decoder.receive_eof()
        outcome.collect(decoder)
    assert decoder.offset == outcome.taken
    assert decoder.is_complete is (outcome.end is not None)
    assert decoder.is_complete <= (not decoder.needs_data)
    if decoder.is_complete:
        _assert_stays_complete(decoder)
    return outcome


def _is_ended_by_eof(make: Make, data: bytes) -> bool:
    return _run(make, push, [data], has_eof=False).end is None


def _assert_stays_failed(decoder: AnyDecoder, error: RemoteProtocolError) -> None:
    assert not decoder.needs_data
    for act in (decoder.next_event, decoder.get_buffer, lambda: decoder.feed(b"{"), lambda: decoder.buffer_updated(1)):
        with pytest.raises(type(error)) as again:
            act()
        assert describe_error(again.value) == describe_error(error)
    decoder.receive_eof()


def _assert_stays_complete(decoder: AnyDecoder) -> None:
    assert decoder.feed(_NEXT_MESSAGE) == 0
    decoder.receive_eof()
    for act in (decoder.next_event, decoder.get_buffer, lambda: decoder.buffer_updated(1)):
        with pytest.raises(LocalProtocolError, match="complete"):
            act()


def describe_error(error: RemoteProtocolError) -> tuple[object, ...]:
    """Everything an error says."""
    limit = error.limit if isinstance(error, LimitExceededError) else None
    return type(error), error.code, error.message, error.offset, error.path, error.status_hint, limit, str(error)


def describe_spec(spec: TensorSpec) -> tuple[object, ...]:
    """Everything a header says of a tensor."""
    data = None if spec.data is None else describe_array(spec.data)
    described = spec.name, spec.datatype, spec.shape, spec.nbytes, spec.offset, spec.count, spec.is_binary
    # By their text: NaN, which parameters may not hold but data may, is unequal to itself.
    return *described, data, repr(spec.parameters)


def describe_header(header: RequestHeader | ResponseHeader) -> tuple[object, ...]:
    """Everything a header says."""
    tensors = [describe_spec(spec) for spec in header.tensors]
    if isinstance(header, RequestHeader):
        return tensors, header.outputs, header.id, repr(header.parameters)
    return tensors, header.model_name, header.model_version, header.id, repr(header.parameters)


def describe_array(array: Values) -> tuple[object, ...]:
    """Dtype, shape and every bit of an array."""
    values = array.reshape(-1).tolist() if array.dtype.hasobject else array.tobytes()
    return array.dtype, array.shape, values
