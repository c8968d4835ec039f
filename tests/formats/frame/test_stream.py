"""Streams of frames: one after the other, and what damage costs."""

from __future__ import annotations

import io
import random
import socket
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    ErrorCode,
    HeaderReceived,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    TensorReceived,
    WindowReceived,
    Windows,
    encode_request,
)
from streamcodec.formats.frame import Checksum, EndOfStream, FrameReader, Kind, Skipped, request_frame_decoder
from streamcodec.testing import describe_array, describe_error
from streamcodec.transports import aio, files, sync
from tests.formats.frame.samples import NONE, REQUESTS, joined, with_head
from tests.formats.v2.test_linear_work import calls_of

FIRST, SECOND, THIRD = (joined(encode_request({name: np.array([index])})) for index, name in enumerate("abc"))
Log = list[Any]


def told(event: object) -> Any:  # noqa: ANN401 - anything that can be compared
    match event:
        case TensorReceived():
            return event.spec.name, describe_array(event.array)
        case WindowReceived():
            return event.spec.name, event.row, describe_array(event.array)
        case HeaderReceived():
            return [spec.name for spec in event.header.tensors]
        case Skipped():
            return "skipped", event.offset, event.nbytes, describe_error(event.error)
    return event


def drain(frames: FrameReader[Any], log: Log) -> bool:
    """Take all events; return whether the stream has ended."""
    while (event := frames.next_event()) is not NEED_DATA:
        if event is NEED_TURN:
            frames.work()
            continue
        log.append(told(event))
        if isinstance(event, EndOfStream):
            return True
    return False


def push(stream: bytes, sizes: Iterable[int], make: Callable[[], Any] = request_frame_decoder) -> Log:
    frames, log = FrameReader(make), Log()
    for size in sizes:
        chunk, stream = bytearray(stream[:size]), stream[size:]
        position = 0
        while position < len(chunk):
            position += frames.feed(memoryview(chunk)[position:])
            drain(frames, log)
        chunk[:] = bytes(len(chunk))
        chunk.clear()  # nobody has kept it
    frames.receive_eof()
    assert drain(frames, log)
    assert not frames.needs_data
    return log


def pull(
    stream: bytes, sizes: Iterator[int], make: Callable[[], Any] = request_frame_decoder, *, scatter: bool = False
) -> Log:
    frames, log = FrameReader(make), Log()
    position = 0
    while position < len(stream):
        drain(frames, log)
        assert frames.needs_data
        room, start = next(sizes), position
        for buffer in frames.get_buffers() if scatter else [frames.get_buffer()]:
            assert len(buffer) > 0
            count = min(room, len(buffer), len(stream) - position)
            buffer[:count] = stream[position : position + count]
            position, room = position + count, room - count
        frames.buffer_updated(position - start)
    frames.receive_eof()
    drain(frames, log)
    return log


def read(stream: bytes, make: Callable[[], Any] = request_frame_decoder) -> Log:
    """Read a stream in several ways, which must come to the same."""
    log = push(stream, [len(stream)], make)
    assert push(stream, [1] * len(stream), make) == log
    assert pull(stream, iter(lambda: 1 << 30, 0), make) == log
    assert pull(stream, iter(lambda: 7, 0), make, scatter=True) == log
    chance = random.Random(len(stream))  # noqa: S311 - any cuts
    assert push(stream, [chance.randrange(1, 60) for _ in range(len(stream))], make) == log
    assert log[-1] == EndOfStream(nbytes=len(stream))
    ends = sum(entry.nbytes for entry in log if isinstance(entry, EndOfMessage))
    assert ends + sum(entry[2] for entry in log if skips(entry)) == len(stream), "no byte is left out"
    return log


def skips(entry: object) -> bool:
    return isinstance(entry, tuple) and entry[0] == "skipped"


def names(log: Log) -> list[str]:
    """The tensors of frames that were whole, and "-" for what was skipped."""
    found: list[str] = []
    pending: list[str] = []
    for entry in log:
        if isinstance(entry, list):
            pending = entry
        elif isinstance(entry, EndOfMessage):
            found += pending
        elif skips(entry):
            found.append("-")
    return found


def code(entry: Any) -> str:  # noqa: ANN401 - an entry of a log
    return str(entry[3].code)


def test_frames_one_after_the_other() -> None:
    assert names(read(FIRST + SECOND + THIRD)) == ["a", "b", "c"]
    assert read(b"") == [EndOfStream(nbytes=0)]


@pytest.mark.parametrize("name", REQUESTS)
def test_all_kinds_of_messages_in_a_stream(name: str) -> None:
    frame = joined(REQUESTS[name])
    log = push(FIRST + frame + joined(REQUESTS[name], checksum=NONE) + THIRD, [1 << 20])
    assert [type(entry) for entry in log].count(EndOfMessage) == 4


@pytest.mark.parametrize("change", [1, 0x80, 0xFF])
def test_damage_of_any_byte_costs_one_frame_and_no_other(change: int) -> None:
    for position in range(len(SECOND)):
        stream = bytearray(FIRST + SECOND + THIRD)
        stream[len(FIRST) + position] ^= change
        log = push(bytes(stream), [len(stream)])
        assert names(log) == ["a", "-", "c"]
        assert pull(bytes(stream), iter(lambda: 11, 0)) == log
        ((_, offset, nbytes, _),) = filter(skips, log)
        assert (offset, nbytes) == (len(FIRST), len(SECOND))


def test_noise_before_between_and_behind() -> None:
    noise = b"\x89V2\x89V2F\x89\x89" + bytes(range(100, 256)) + b"\x89V2"
    log = read(noise + FIRST + noise[:30] + SECOND + noise)
    assert names(log) == ["-", "a", "-", "b", "-"]
    assert [entry[2] for entry in log if skips(entry)] == [len(noise), 30, len(noise)]
    assert {code(entry) for entry in log if skips(entry)} == {"invalid-frame"}


@pytest.mark.parametrize("shift", range(30))
def test_the_magic_is_found_wherever_it_is(shift: int) -> None:
    for noise in (b"\x89" * shift, b"\x89V2F" * shift, bytes(shift)):
        assert names(push(noise + FIRST, [1000])) == ["-"] * bool(noise) + ["a"]


def test_a_stream_that_ends_anywhere() -> None:
    for end in range(len(FIRST) + 1, len(FIRST) + len(SECOND)):
        log = read((FIRST + SECOND)[:end])
        assert names(log) == ["a", "-"]
        (_, offset, nbytes, error) = next(filter(skips, log))
        assert (offset, nbytes, error.code) == (len(FIRST), end - len(FIRST), ErrorCode.TRUNCATED)


def test_missing_bytes_cost_the_next_frame_too_and_no_more() -> None:
    for position in range(24, len(FIRST)):
        log = push(FIRST[:position] + FIRST[position + 1 :] + SECOND + THIRD + FIRST, [1 << 20])
        assert names(log) == ["-", "-", "c", "a"]


def test_a_frame_in_a_refused_frame_is_not_read() -> None:
    """Else who can write tensors could send messages in the name of whoever writes frames."""
    inner = np.frombuffer(SECOND, np.uint8)
    outer = joined(encode_request({"x": inner}))
    assert names(read(outer)) == ["x"]
    small = partial(request_frame_decoder, limits=Limits(max_tensor_bytes=len(inner) - 1))
    log = read(outer + THIRD, small)
    assert names(log) == ["-", "c"]
    assert code(log[0]) == ErrorCode.LIMIT_EXCEEDED
    broken = with_head(b"{" + SECOND + b"}", len(SECOND) + 2)
    assert names(read(broken + THIRD)) == ["-", "c"]
    response = with_head(SECOND, len(SECOND), kind=Kind.RESPONSE)
    assert names(read(response + THIRD)) == ["-", "c"]


def test_a_refused_frame_that_is_cut_short() -> None:
    broken = with_head(b"{" + bytes(50), 20)
    log = read(broken[:-10])
    assert names(log) == ["-"]
    assert code(log[0]) == ErrorCode.INVALID_JSON


def test_a_frame_that_is_too_long_is_skipped_in_constant_memory() -> None:
    frames = FrameReader(partial(request_frame_decoder, limits=Limits(max_message_bytes=1000)))
    length = 100 << 20
    frames.feed(with_head(b"", 10, body_length=length))
    assert frames.next_event() is NEED_DATA
    while length:
        buffer = frames.get_buffer()
        assert len(buffer) <= 64 << 10
        frames.buffer_updated(len(buffer))
        length -= len(buffer)
    event = frames.next_event()
    assert isinstance(event, Skipped)
    assert isinstance(event.error, LimitExceededError)
    assert event.nbytes == 24 + (100 << 20)
    assert frames.feed(FIRST) == len(FIRST)
    assert isinstance(frames.next_event(), HeaderReceived)


@pytest.mark.parametrize("noise", [b"\x89", b"\x89V2", b"\x89V2F", b"\0", b"\x89V2F" + bytes(19), FIRST[:24]])
def test_skipping_takes_linear_work(noise: bytes) -> None:
    if noise == FIRST[:24]:
        noise = noise[:12] + bytes([noise[12] ^ 1]) + noise[13:]
    counts = []
    for size in (10_000, 20_000):
        frames = FrameReader(request_frame_decoder)
        stream = (noise * size)[:size]
        counts.append(calls_of(partial(frames.feed, stream)))
        assert len(frames.get_buffer()) <= 24
    assert counts[1] < 2.2 * counts[0]


CANDIDATES = (b"\x89V2Fabcd\1\0\0\0abcd", b"\x89V2F\x89V2F\1\0\0\0\1\0\0\0")
"""What looks like the beginning of a head and is none, packed as densely as that goes."""


@pytest.mark.parametrize(
    ("noise", "most"), [(b"\0", 4000), (b"\x89", 4000), (b"\x89V2F", 4000), *((noise, 80_000) for noise in CANDIDATES)]
)
def test_noise_is_searched_and_not_looked_at_byte_by_byte(noise: bytes, most: int) -> None:
    stream = (noise * (64 << 10))[: 64 << 10]
    assert calls_of(partial(FrameReader(request_frame_decoder).feed, stream)) < most


@pytest.mark.parametrize(("noise", "size"), [(b"\0", 3 << 20), *((noise, 40_000) for noise in CANDIDATES)])
@pytest.mark.parametrize("pulls", [False, True])
def test_a_paced_reader_of_noise_asks_for_turns(noise: bytes, size: int, pulls: bool) -> None:
    stream = memoryview((noise * size)[: size if not pulls else min(size, 40_000)])
    frames = FrameReader(request_frame_decoder, paced=True)
    turns, calls, left = 0, [], stream
    while left:
        if pulls:
            buffer = frames.get_buffer()[: len(left)]
            buffer[:] = left[: len(buffer)]
            frames.buffer_updated(len(buffer))
            left = left[len(buffer) :]
        else:
            taken = 0

            def feed(chunk: memoryview = left) -> None:
                nonlocal taken
                taken = frames.feed(chunk)

            calls.append(calls_of(feed))
            left = left[taken:]
        while frames.next_event() is NEED_TURN:
            assert not frames.needs_data
            assert frames.feed(b"x") == 0
            with pytest.raises(LocalProtocolError, match="next_event"):
                frames.get_buffer()
            frames.work()
            turns += 1
    assert turns >= 2
    assert max(calls, default=0) < 20_000
    assert frames.next_event() is NEED_DATA
    assert frames.feed(FIRST) == len(FIRST)
    assert isinstance(frames.next_event(), Skipped)


def test_a_searched_chunk_is_read_as_bytes_that_come_one_by_one() -> None:
    chosen = random.Random(7)  # noqa: S311 - to be the same again, not to be secret
    parts = (b"\x89", b"\x89V", b"\x89V2F", b"\0", FIRST, SECOND[:20], THIRD[:30], FIRST[:24], bytes(5000), *CANDIDATES)
    for _ in range(12):
        read(b"".join(chosen.choices(parts, k=chosen.randrange(1, 12))))


def test_windows_and_turns_of_frames_in_a_stream() -> None:
    place = lambda _: Windows(max_window_bytes=8)  # noqa: E731 - the shortest place
    frame = joined(encode_request({"x": np.arange(4, dtype="<i8")}))
    log = read(frame + FIRST + frame, partial(request_frame_decoder, place=place))
    assert [entry[1] for entry in log if isinstance(entry, tuple)] == [0, 1, 2, 3, 0, 0, 1, 2, 3]
    large = joined(encode_request({"x": np.zeros(3 << 20, np.uint8)}))
    paced = push(large + FIRST, [1 << 30], partial(request_frame_decoder, paced=True))
    assert names(paced) == ["x", "a"]


def test_misuse_is_told() -> None:
    frames = FrameReader(request_frame_decoder)
    frames.work()
    for nbytes in (0, -1, 25):
        with pytest.raises(LocalProtocolError, match="24"):
            frames.buffer_updated(nbytes)
    frames.feed(FIRST)
    assert frames.feed(b"x") == 0
    for act in (frames.get_buffer, frames.get_buffers, lambda: frames.buffer_updated(1)):
        with pytest.raises(LocalProtocolError):
            act()
    drain(frames, [])
    frames.receive_eof()
    assert frames.feed(b"x") == 0
    for _ in range(2):
        assert frames.next_event() == EndOfStream(nbytes=len(FIRST))
        with pytest.raises(LocalProtocolError, match="next_event"):
            frames.get_buffer()
        with pytest.raises(LocalProtocolError):
            frames.buffer_updated(1)
        frames.receive_eof()


def test_a_callback_that_fails_is_nobody_elses_fault() -> None:
    def place(_: object) -> Any:  # noqa: ANN401 - it never returns
        raise KeyError("x")

    frames = FrameReader(partial(request_frame_decoder, place=place))
    frames.feed(FIRST)
    assert isinstance(frames.next_event(), HeaderReceived)
    with pytest.raises(KeyError):
        frames.next_event()


def test_the_drivers_read_streams_from_files_and_sockets() -> None:
    stream = b"noise" + FIRST + SECOND
    log: Log = []
    frames = FrameReader(request_frame_decoder)
    file = io.BytesIO(stream)
    while not isinstance(log[-1:] and log[-1], EndOfStream):
        log.append(told(files.next_event(file, frames)))
    assert log == push(stream, [len(stream)])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(stream)
        theirs.shutdown(socket.SHUT_WR)
        frames, found = FrameReader(request_frame_decoder), Log()
        while not isinstance(found[-1:] and found[-1], EndOfStream):
            found.append(told(sync.next_event(ours, frames)))
    assert found == log


def test_the_asynchronous_driver_reads_streams_too() -> None:
    stream = FIRST + b"noise" + SECOND

    async def run() -> Log:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.sendall(stream)
            theirs.shutdown(socket.SHUT_WR)
            frames, found = FrameReader(request_frame_decoder), Log()
            while not isinstance(found[-1:] and found[-1], EndOfStream):
                found.append(told(await aio.next_event(ours, frames, timeout=30)))
            return found

    assert anyio.run(run) == push(stream, [len(stream)])


def test_checksums_may_differ_from_frame_to_frame() -> None:
    plain = joined(REQUESTS["small"], checksum=Checksum.NONE)
    assert names(read(plain + FIRST + plain)) == ["x", "a", "x"]


def test_a_right_check_of_a_wrong_head_is_skipped_too() -> None:
    later = with_head(b"", 1, version=2, body_length=5)
    log = read(later + later + FIRST)
    assert names(log) == ["-", "a"]
    assert log[0][3].offset == 8
    assert read(b"x" + later + FIRST)[0][3].offset == 0, "what was wrong first is told"


@pytest.mark.parametrize("stream", [b"noise" + bytes(30) + FIRST, SECOND[:-1] + b"?"])
def test_errors_hold_no_memory(stream: bytes) -> None:
    frames = FrameReader(request_frame_decoder)
    frames.feed(stream)
    while not isinstance(event := frames.next_event(), Skipped):
        pass
    assert event.error.__traceback__ is None
