"""Streams of frames, cut and damaged: what is accepted and what is skipped, as a naive search for frames finds it.

The bytes of an input are a V2 body, or a stream as it is. A body is put into a frame by hand, which stands between two
good ones; then some bytes are changed, left out or added. The stream is read whole and in pieces, which must come to
the same. The oracle has all of it at once: it looks for heads at one place after the other with `struct`, and gives
what it takes for a body to the V2 decoder alone, which has targets of its own. Each part of the stream is also read as
a whole frame, in place.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from typing import Any, Final, TypeAlias

from streamcodec import (
    NEED_DATA,
    EndOfMessage,
    HeaderReceived,
    Limits,
    MessageError,
    RemoteProtocolError,
    TensorReceived,
    request_decoder,
    response_decoder,
)
from streamcodec.formats.frame import (
    EndOfStream,
    FrameReader,
    Skipped,
    WholeFrames,
    request_frame_decoder,
    response_frame_decoder,
)
from streamcodec.testing import describe_array, describe_error, describe_header
from targets.case import SMALL_LIMITS, USUAL_LIMITS, Face
from targets.choices import Choices, ChoicesWriter
from targets.cuts import piece_sizes

Log: TypeAlias = list[tuple[Any, ...]]

_BOTH = (False, True)
_FACES = tuple(Face)
_SIZES = range(256)
_PIECES: Final = 40
_HEAD: Final = 24
_GOOD: Final = b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","parameters":{"binary_data_size":1}}]}\x07'


def framed(body: bytes, header_length: int, *, is_response: bool, has_checksum: bool) -> bytes:
    """Put a body into a frame."""
    fields = struct.pack("<4BIQ", 1, is_response, has_checksum, 0, header_length, len(body))
    frame = b"\x89V2F" + struct.pack("<I", zlib.crc32(fields)) + fields + body
    return frame + struct.pack("<I", zlib.crc32(frame)) if has_checksum else frame


@dataclass(frozen=True, kw_only=True)
class Case:
    """A stream, and how it arrives."""

    data: bytes
    is_stream: bool = False
    """Whether the bytes are the stream; else they are a body."""
    is_response: bool = False
    """What the middle frame holds, and the receiver expects."""
    has_checksum: bool = True
    header_change: int = 0
    """What is added to the length of the middle frame's JSON header."""
    changed_at: int = 0
    """Where some bytes are left out, one is changed, and zeros are added."""
    change: int = 0
    missing: int = 0
    added: int = 0
    is_limited: bool = False
    """Whether limits apply that small messages can exceed."""
    face: Face = Face.PULL
    first_piece: int = 0
    """Bytes of the first piece of the second reading; 0 leaves it out."""
    piece: int = 0
    """Bytes of each of the next few pieces; 0 is all that there is, as is the last piece."""

    @classmethod
    def read(cls, data: bytes) -> Case:
        """Take a case from an input."""
        choices = Choices(data)
        return cls(
            is_stream=choices.pick(_BOTH),
            is_response=choices.pick(_BOTH),
            has_checksum=choices.pick(_BOTH),
            header_change=choices.pick(_SIZES),
            changed_at=choices.number(),
            change=choices.pick(_SIZES),
            missing=choices.pick(_SIZES),
            added=choices.pick(_SIZES),
            is_limited=choices.pick(_BOTH),
            face=choices.pick(_FACES),
            first_piece=choices.number(),
            piece=choices.pick(_SIZES),
            data=choices.rest(),
        )

    def write(self) -> bytes:
        """Return the input that gives this case."""
        choices = ChoicesWriter()
        choices.pick(_BOTH, self.is_stream)
        choices.pick(_BOTH, self.is_response)
        choices.pick(_BOTH, self.has_checksum)
        choices.pick(_SIZES, self.header_change)
        choices.number(self.changed_at)
        choices.pick(_SIZES, self.change)
        choices.pick(_SIZES, self.missing)
        choices.pick(_SIZES, self.added)
        choices.pick(_BOTH, self.is_limited)
        choices.pick(_FACES, self.face)
        choices.number(self.first_piece)
        choices.pick(_SIZES, self.piece)
        return choices.finish(self.data)

    @cached_property
    def stream(self) -> bytes:
        """All bytes that arrive."""
        return self.data if self.is_stream else self._damaged(self._frames)

    @property
    def _frames(self) -> bytes:
        good = framed(_GOOD, len(_GOOD) - 1, is_response=False, has_checksum=True)
        text, brace, rest = self.data.rpartition(b"}")
        spaces = len(rest) - len(rest.lstrip(b" "))
        header_length = len(text + brace) + spaces + self.header_change
        middle = framed(self.data, header_length, is_response=self.is_response, has_checksum=self.has_checksum)
        return good + middle + good

    def _damaged(self, stream: bytes) -> bytes:
        place = self.changed_at % len(stream)
        changed = bytes([stream[place] ^ self.change])
        return stream[:place] + bytes(self.added) + (changed + stream[place + 1 :])[self.missing :]

    @property
    def limits(self) -> Limits:
        """What applies."""
        return SMALL_LIMITS if self.is_limited else USUAL_LIMITS

    @property
    def pieces(self) -> Iterator[int]:
        """Sizes of the pieces of the second reading."""
        return piece_sizes(self.first_piece, self.piece, len(self.stream), count=_PIECES)


def test_one_input(data: bytes) -> None:
    """Read one stream in several ways and compare."""
    check(Case.read(data))


def check(case: Case) -> None:
    """Read one stream in several ways and compare."""
    whole = read(case, Face.PUSH, repeat(len(case.stream)))
    assert read(case, case.face, case.pieces) == whole, "a cut shows"
    assert sum(entry[1] for entry in whole) == len(case.stream), "bytes are in no frame, and are not told as skipped"
    assert whole == naive(case), "a naive search finds other frames"
    read_in_place(case, whole)


def explain(data: bytes) -> str:
    """Say what an input means, and what comes of it."""
    case = Case.read(data)
    return f"{case}\nstream: {case.stream!r}\nours: {read(case, case.face, case.pieces)}\nnaive: {naive(case)}"


def read(case: Case, face: Face, pieces: Iterator[int]) -> Log:
    """Read a stream by our own reader: frames with their bytes and content, and what was skipped with its reason."""
    make: Any = response_frame_decoder if case.is_response else request_frame_decoder
    frames: FrameReader[Any] = FrameReader(partial(make, limits=case.limits))
    log: Log = []
    content: list[Any] = []
    position = 0
    while True:
        event = frames.next_event()
        match event:
            case EndOfMessage():
                log.append(("frame", event.nbytes, content))
            case Skipped():
                error = event.error
                log.append(("skipped", event.nbytes, error.code, error.offset, error.path))
            case EndOfStream():
                assert event.nbytes == len(case.stream)
                return log
            case HeaderReceived():
                content = [describe_header(event.header)]
            case TensorReceived():
                content.append(describe_array(event.array))
            case _:
                assert event is NEED_DATA
                assert frames.needs_data
                if position == len(case.stream):
                    frames.receive_eof()
                else:
                    position += _bring(frames, case.stream[position : position + next(pieces)], face)


def read_in_place(case: Case, log: Log) -> None:
    """Read each part of the stream as a whole frame: what came before must not change what is told of it."""
    make: Any = response_frame_decoder if case.is_response else request_frame_decoder
    frames: WholeFrames[Any] = WholeFrames(make, limits=case.limits)
    position = 0
    for kind, nbytes, *rest in log:
        part = case.stream[position : position + nbytes]
        position += nbytes
        place = case.changed_at % nbytes
        changed = part[:place] + bytes([part[place] ^ (case.change or 1)]) + part[place + 1 :]
        for data in (part, part, changed):
            alone: WholeFrames[Any] = WholeFrames(make, limits=case.limits)
            assert _told_in_place(frames, data) == _told_in_place(alone, data), "a frame depends on the one before it"
        assert kind == "skipped" or _told_in_place(frames, part) == rest[0], "a frame is not as the decoder reads it"


def _told_in_place(frames: WholeFrames[Any], data: bytes) -> list[Any]:
    try:
        frame = frames.read(data)
    except MessageError as error:
        return [describe_error(error)]
    return [describe_header(frame.header), *map(describe_array, frame.arrays.values())]


def _bring(frames: FrameReader[Any], chunk: bytes, face: Face) -> int:
    if face is Face.PUSH:
        return frames.feed(chunk)
    position = 0
    for view in frames.get_buffers() if face is Face.SCATTER else [frames.get_buffer()]:
        assert view.nbytes
        count = min(len(view), len(chunk) - position)
        view[:count] = chunk[position : position + count]
        position += count
    frames.buffer_updated(position)
    return position


def naive(case: Case) -> Log:
    """Read a stream by looking at one place after the other."""
    stream, log = case.stream, Log()
    start = position = 0
    while position < len(stream):
        lengths = _lengths(stream[position : position + _HEAD])
        if lengths is None:
            position += 1
            continue
        log += _skipped(stream, start, position)
        header_length, body_length, is_response, has_checksum = lengths
        frame = stream[position : position + _HEAD + body_length + 4 * has_checksum]
        log.append(_frame(case, frame, header_length, body_length, is_response=is_response, has_checksum=has_checksum))
        position = start = position + len(frame)
    return log + _skipped(stream, start, len(stream))


def _lengths(head: bytes) -> tuple[int, int, bool, bool] | None:
    """Return the lengths and flags of a right head."""
    if len(head) < _HEAD or head[:4] != b"\x89V2F" or struct.unpack("<I", head[4:8])[0] != zlib.crc32(head[8:]):
        return None
    version, kind, checksum, reserved, header_length, body_length = struct.unpack("<4BIQ", head[8:])
    is_known = version == 1 and kind in _BOTH and checksum in _BOTH and not reserved
    return (header_length, body_length, kind, checksum) if is_known and 1 <= header_length <= body_length else None


def _skipped(stream: bytes, start: int, end: int) -> Log:
    """Return what is to be said of bytes that are no frame: what is wrong with the first head among them."""
    if start == end:
        return []
    head = stream[start : start + _HEAD]
    if len(head) < _HEAD:
        return [("skipped", end - start, "truncated", len(head), None)]
    version, kind, checksum, reserved, _, _ = struct.unpack("<4BIQ", head[8:])
    is_checked = struct.unpack("<I", head[4:8])[0] == zlib.crc32(head[8:])
    wrong = [head[:4] != b"\x89V2F", not is_checked, version != 1, kind > 1, checksum > 1, reserved > 0, True]
    return [("skipped", end - start, "invalid-frame", (0, 4, 8, 9, 10, 11, 12)[wrong.index(True)], None)]


def _frame(
    case: Case, frame: bytes, header_length: int, body_length: int, *, is_response: bool, has_checksum: bool
) -> tuple[Any, ...]:
    """Read a frame whose head is right: its body by the decoder of V2, alone."""
    if is_response != case.is_response:
        return "skipped", len(frame), "invalid-frame", 9, None
    make: Any = response_decoder if is_response else request_decoder
    decoder = make(header_length=header_length, body_length=body_length, limits=case.limits)
    content: list[Any] = []
    try:
        decoder.feed(frame[_HEAD : _HEAD + body_length])
        decoder.receive_eof()
        while not isinstance(event := decoder.next_event(), EndOfMessage):
            is_header = isinstance(event, HeaderReceived)
            content.append(describe_header(event.header) if is_header else describe_array(event.array))
    except RemoteProtocolError as error:  # a rule or a limit is broken: the one answer to bad bytes
        offset = None if error.offset is None else _HEAD + error.offset
        return "skipped", len(frame), error.code, offset, error.path
    end = _HEAD + body_length
    if has_checksum and len(frame) < end + 4:
        return "skipped", len(frame), "truncated", len(frame), None
    if has_checksum and frame[end:] != struct.pack("<I", zlib.crc32(frame[:end])):
        return "skipped", len(frame), "invalid-checksum", end, None
    return "frame", len(frame), content
