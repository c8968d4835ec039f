"""Forwarded frames: their bytes pass as they are, what is no frame does not, and nobody needs memory or numpy."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    EncodedMessage,
    EndOfMessage,
    ErrorCode,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    encode_request,
)
from streamcodec.formats import frame
from streamcodec.formats.frame import (
    EndOfStream,
    ForwardedFrame,
    FramePiece,
    FrameReader,
    Kind,
    Skipped,
    request_frame_decoder,
)
from streamcodec.formats.frame.stream import FrameDecoder
from streamcodec.testing import describe_error
from tests.formats.frame.samples import MESSAGES, NONE, joined, with_head

FIRST, SECOND, THIRD = (joined(encode_request({name: np.array([index])})) for index, name in enumerate("abc"))
Make = Callable[[], FrameDecoder[object]]


def pushed(stream: bytes, size: int, make: Make = ForwardedFrame) -> tuple[bytes, list[Skipped]]:
    """Feed a stream in chunks; return what is passed on, and what is not."""
    frames = FrameReader(make)
    pieces, skipped = [], []
    chunks: Iterable[bytes] = [*(stream[start : start + size] for start in range(0, len(stream), size)), b""]
    for chunk in chunks:
        left = chunk
        if not left:
            frames.receive_eof()
        while True:
            left = left[frames.feed(left) :]
            while (event := frames.next_event()) is not NEED_DATA and not isinstance(event, EndOfStream):
                if isinstance(event, FramePiece):
                    assert event.data.readonly
                    pieces.append(bytes(event.data))
                elif isinstance(event, Skipped):
                    skipped.append(event)
            if not left:
                break
    return b"".join(pieces), skipped


def told(skipped: Iterable[Skipped]) -> list[object]:
    return [(each.offset, each.nbytes, describe_error(each.error)) for each in skipped]


def pulled(stream: bytes, make: Make = ForwardedFrame) -> bytes:
    """Write a stream into the memory for it; return what is passed on."""
    frames, passed = FrameReader(make), b""
    while True:
        event = frames.next_event()
        if isinstance(event, EndOfStream):
            return passed
        if isinstance(event, FramePiece):
            passed += event.data
        elif event is NEED_DATA and stream:
            (room,) = frames.get_buffers()
            count = min(len(room), len(stream))
            room[:count], stream = stream[:count], stream[count:]
            frames.buffer_updated(count)
        elif event is NEED_DATA:
            frames.receive_eof()


@pytest.mark.parametrize("piece_bytes", [24, 25, 100, 1 << 16])
@pytest.mark.parametrize(("kind", "name", "message"), MESSAGES)
def test_frames_pass_as_they_are(kind: Kind, name: str, message: EncodedMessage, piece_bytes: int) -> None:
    del name
    both = joined(message, kind) + joined(message, kind, NONE)
    make = partial(ForwardedFrame, piece_bytes=piece_bytes)
    for size in (1, 7, len(both)):
        assert pushed(both, size, make) == (both, [])
    assert pulled(both, make) == both


def test_what_is_no_frame_is_left_out_as_by_any_reader() -> None:
    stream = b"noise" + FIRST + b"\x89V2F" + SECOND + SECOND[:10] + THIRD
    for size in (1, 11, len(stream)):
        passed, skipped = pushed(stream, size)
        assert passed == FIRST + SECOND + THIRD
        assert told(skipped) == told(pushed(stream, size, request_frame_decoder)[1])
        assert [each.nbytes for each in skipped] == [5, 4, 10]


def test_a_frame_that_is_cut_short_is_told() -> None:
    for end in range(25, len(SECOND)):
        for size in (1, len(FIRST) + end):
            passed, (skipped,) = pushed(FIRST + SECOND[:end], size, partial(ForwardedFrame, piece_bytes=40))
            assert passed == FIRST + SECOND[: end - end % 40]
            assert (skipped.nbytes, skipped.error.code, skipped.error.offset) == (end, ErrorCode.TRUNCATED, end)
            assert skipped.error.message == "the input ends before the frame does"


@pytest.mark.parametrize(
    ("limits", "limit"),
    [(Limits(max_header_bytes=60), "max_header_bytes"), (Limits(max_message_bytes=120), "max_message_bytes")],
)
def test_a_frame_over_the_limits_is_refused_at_its_head(limits: Limits, limit: str) -> None:
    small, large = with_head(b"{}" + bytes(3), 2), with_head(bytes(121), 61)
    passed, (skipped,) = pushed(small + large + small, 13, partial(ForwardedFrame, limits))
    assert passed == small * 2
    assert (skipped.offset, skipped.nbytes, skipped.error.offset) == (len(small), len(large), 24)
    assert isinstance(skipped.error, LimitExceededError)
    assert skipped.error.limit == limit


def test_damage_passes_and_is_told() -> None:
    for position in range(24, len(SECOND)):
        damaged = bytearray(SECOND)
        damaged[position] ^= 4
        stream = FIRST + bytes(damaged) + THIRD
        passed, (skipped,) = pushed(stream, 50, partial(ForwardedFrame, piece_bytes=30))
        assert passed == stream
        assert (skipped.offset, skipped.nbytes) == (len(FIRST), len(SECOND))
        assert (skipped.error.code, skipped.error.offset) == (ErrorCode.INVALID_CHECKSUM, len(SECOND) - 4)


def test_a_long_frame_takes_the_memory_of_one_piece() -> None:
    length = 100 << 20
    frames = FrameReader(ForwardedFrame)
    frames.feed(with_head(b"", 10, body_length=length))
    pieces, event = 0, frames.next_event()
    memory = set()
    while not isinstance(event, EndOfMessage):
        if event is NEED_DATA:
            buffer = frames.get_buffer()
            assert len(buffer) <= 64 << 10
            memory.add(id(buffer.obj))
            frames.buffer_updated(len(buffer))
        else:
            pieces += 1
        event = frames.next_event()
    assert (event.nbytes, pieces, len(memory)) == (length + 24, (length + 24 + 0xFFFF) >> 16, 1)


def test_an_abandoned_frame_is_freed_at_once() -> None:
    one = ForwardedFrame()
    one.feed(FIRST)
    one.next_event()
    freed = weakref.ref(one)
    del one
    assert freed() is None


def test_one_frame_by_itself() -> None:
    with pytest.raises(LocalProtocolError, match="24"):
        ForwardedFrame(piece_bytes=23)
    one = ForwardedFrame()
    one.work()
    for nbytes in (0, 25):
        with pytest.raises(LocalProtocolError, match="24"):
            one.buffer_updated(nbytes)
    assert one.feed(b"no head of a frame has these") == 24
    for _ in range(2):
        with pytest.raises(RemoteProtocolError) as caught:
            one.next_event()
        assert caught.value.code is ErrorCode.INVALID_FRAME


def test_a_reader_of_forwarded_frames_needs_no_numpy() -> None:
    code = f"""
import sys
sys.modules["numpy"] = None
from streamcodec.formats.frame import ForwardedFrame, FrameReader
frames = FrameReader(ForwardedFrame)
data = {FIRST!r}
while data:
    data = data[frames.feed(data):]
    event = frames.next_event()
print(bytes(event.data) == {FIRST!r}, frames.next_event())
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.split() == ["True", f"EndOfMessage(nbytes={len(FIRST)})"]


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        frame.nonsense  # type: ignore[attr-defined]  # noqa: B018 - as it says
