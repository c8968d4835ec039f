"""Messages through files of all kinds, however they say that nothing is there now, or that nothing will come."""

from __future__ import annotations

import errno
import gzip
import io
import mmap
import os
import select
import socket
import subprocess
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    Decoder,
    EndOfMessage,
    ErrorCode,
    HeaderReceived,
    LocalProtocolError,
    RemoteProtocolError,
    Rows,
    Tensor,
    Windows,
    encode_request,
    encode_response,
    request_decoder,
    response_decoder,
)
from streamcodec.formats import npy, safetensors
from streamcodec.formats.frame import EndOfStream, FrameReader, Kind, encode_frame, request_frame_decoder
from streamcodec.testing import chunkings
from streamcodec.transports import files
from tests.cputime import least_cpu_seconds
from tests.effort import places
from tests.transports.messages import ARRAYS, BODY, MESSAGE, check, decoder

VALUES = np.arange(6, dtype=np.int16).reshape(2, 3)
SMALL = b"".join(encode_request({"x": VALUES}).buffers)


def small() -> Decoder[Any]:
    return request_decoder(header_length=len(SMALL) - 12, body_length=len(SMALL))


def _response() -> Decoder[Any]:
    message = encode_response({"x": VALUES}, model_name="m")
    return response_decoder(header_length=message.header_length, body_length=message.body_length)


_NAMED = safetensors.encode({"x": VALUES})
FORMATS: dict[str, tuple[Any, Callable[[], Decoder[Any]]]] = {
    "request": (encode_request({"x": VALUES}), small),
    "response": (encode_response({"x": VALUES}, model_name="m"), _response),
    "safetensors": (_NAMED, partial(safetensors.decoder, length=_NAMED.nbytes)),  # else it ends with the file
    "npy": (npy.encode(VALUES), npy.decoder),
    "frame": (encode_frame(encode_request({"x": VALUES}), Kind.REQUEST), request_frame_decoder),
}


class Scripted:
    """A file that does what a list says: bytes, None or an exception for each call; then it has ended."""

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps

    def read(self, nbytes: int) -> bytes | None:
        step = self.steps.pop(0) if self.steps else b""
        if isinstance(step, Exception):
            raise step
        if step and len(step) > nbytes:
            self.steps.insert(0, step[nbytes:])
            step = step[:nbytes]
        assert step is None or isinstance(step, bytes)
        return step


class ScriptedRaw(io.RawIOBase):
    """The same as a raw file, which has `readinto` alone, and whose None means that it takes nothing now."""

    def __init__(self, steps: list[Any]) -> None:
        self.script = Scripted(steps)
        self.written = b""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - a buffer
        data = self.script.read(len(buffer))
        if data is None:
            return None
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int | None:  # noqa: ANN401 - the same
        step = self.script.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        if step is None:
            return None
        taken = bytes(data[:step])
        self.written += taken
        return len(taken)


@pytest.fixture
def pipe() -> Iterator[tuple[io.FileIO, io.FileIO]]:
    reading, writing = os.pipe()
    with io.FileIO(reading, "rb") as source, io.FileIO(writing, "wb") as target:
        yield source, target


@contextmanager
def written(file: Any, message: Any = MESSAGE) -> Iterator[None]:  # noqa: ANN401 - any message to any file
    """Write a message in another thread, then close the file."""

    def write() -> None:
        with file:
            files.encode_to(message, file)

    thread = threading.Thread(target=write)
    thread.start()
    yield
    thread.join()


# Kinds of files


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["memory", "buffered", "gzip"])
def test_every_format_leaves_what_follows_it(name: str, kind: str) -> None:
    message, make_decoder = FORMATS[name]
    file = io.BytesIO()
    for _ in range(2):
        files.encode_to(message, file)
    data = file.getvalue() + b"tail"
    source: Any = io.BytesIO(gzip.compress(data) if kind == "gzip" else data)
    if kind != "memory":
        source = gzip.GzipFile(fileobj=source) if kind == "gzip" else io.BufferedReader(source)
    for _ in range(2):
        received = files.decode(source, make_decoder())
        (tensor,) = received.arrays.values()
        np.testing.assert_array_equal(tensor, VALUES, strict=True)
        assert list(received.tensors) == [each.name for each in received.header.tensors]
    assert source.read() == b"tail"


@pytest.mark.parametrize("buffering", [0, -1])
def test_a_file_on_disk(tmp_path: Path, buffering: int) -> None:
    path = tmp_path / "message"
    with path.open("wb", buffering) as file:
        files.encode_to(MESSAGE, file)
        file.write(b"tail")
    with path.open("rb", buffering) as file:
        check(files.decode(file, decoder()).arrays)
        assert file.read() == b"tail"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        check(files.decode(mapped, decoder()).arrays)
        assert mapped.read() == b"tail"


@pytest.mark.parametrize("is_blocking", [True, False])
@pytest.mark.parametrize("is_buffered", [True, False])
def test_a_pipe(pipe: tuple[io.FileIO, io.FileIO], is_blocking: bool, is_buffered: bool) -> None:
    source, target = pipe
    os.set_blocking(source.fileno(), is_blocking)
    os.set_blocking(target.fileno(), is_blocking)
    with written(target):
        file = io.BufferedReader(source) if is_buffered else source
        check(files.decode(file, decoder(), timeout=60).arrays)
        if isinstance(file, io.BufferedReader):
            assert file.peek() == b""
            file.detach()


def test_a_buffer_over_a_pipe_that_does_not_block(pipe: tuple[io.FileIO, io.FileIO]) -> None:
    """`io` tells by an exception how much it has kept."""
    source, target = pipe
    os.set_blocking(target.fileno(), False)
    buffered = io.BufferedWriter(target)

    def write() -> None:
        files.encode_to(MESSAGE, buffered)
        os.set_blocking(target.fileno(), True)
        buffered.flush()

    thread = threading.Thread(target=write)
    thread.start()
    time.sleep(0.02)
    check(files.decode(source, decoder()).arrays)
    thread.join()
    buffered.detach()


@pytest.mark.slow
def test_a_subprocess() -> None:
    code = (
        "import sys\nfrom streamcodec.transports import files\nfrom tests.transports.messages import *\n"
        "files.decode(open(0, 'rb', 0), decoder())\nfiles.encode_to(MESSAGE, sys.stdout.buffer)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        files.encode_to(MESSAGE, process.stdin)
        check(files.decode(process.stdout, decoder()).arrays)


@pytest.mark.parametrize("buffering", [0, None])
def test_a_socket_as_a_file(buffering: int | None) -> None:
    left, right = socket.socketpair()
    with left, right, right.makefile("rb", buffering) as source:
        with written(left.makefile("wb")):
            check(files.decode(source, decoder()).arrays)
        left.close()
        assert source.read() == b""


def test_a_buffer_loses_nothing_when_its_socket_has_waited_too_long() -> None:
    """Whoever insists on a full buffer would have read the first part, and forgotten it."""
    for nbytes in (5_000, 60_000):  # fewer than most buffers have, and more
        left, right = socket.socketpair()
        right.settimeout(0.02)
        source = decoder()
        with left, right, right.makefile("rb") as file:
            left.sendall(BODY[:nbytes])
            with pytest.raises(TimeoutError):
                files.decode(file, source)
            assert source.offset == nbytes


@pytest.mark.parametrize("buffer_bytes", [1, 50, 1000, 8192, 1 << 17, 1 << 20])
@pytest.mark.parametrize("piece_bytes", [7, 60, 5000, 90_000])
def test_a_buffer_loses_nothing_when_reads_fail(buffer_bytes: int, piece_bytes: int) -> None:
    """Before and after each piece, a read fails, as in a program whose signals raise exceptions."""
    message, make_decoder = (FORMATS["npy"][0], npy.decoder) if piece_bytes < 100 else (MESSAGE, decoder)
    data = b"".join(message.buffers)
    pieces = [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]
    steps = [step for piece in pieces for step in (OSError("again"), piece)]
    file, source = io.BufferedReader(ScriptedRaw([*steps, b"tail"]), buffer_bytes), make_decoder()
    event = None
    while not isinstance(event, EndOfMessage):
        with suppress(OSError):
            event = files.next_event(file, source)
    assert event.nbytes == len(data)
    assert file.read(4) == b"tail"


def test_the_body_of_a_response_ends_while_its_connection_stays_open() -> None:
    """Nothing is asked of the connection after the last byte: nobody would answer."""
    data = b"".join(_NAMED.buffers)
    left, right = socket.socketpair()
    right.settimeout(10)
    with left, right:
        left.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data))
        response = HTTPResponse(right)
        response.begin()
        np.testing.assert_array_equal(files.decode(response, safetensors.decoder())["x"], VALUES)


# Serial lines


@contextmanager
def serial_line(deciseconds: int) -> Iterator[tuple[int, io.FileIO]]:
    """A pty whose reads return nothing after so many tenths of a second: the far end, and ours as a raw file."""
    far, near = os.openpty()
    try:
        tty.setraw(near)
        modes: list[Any] = termios.tcgetattr(near)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 0, deciseconds
        termios.tcsetattr(near, termios.TCSANOW, modes)
        with io.FileIO(near, "r+b") as line:
            yield far, line
    finally:
        os.close(far)


@pytest.mark.parametrize("deciseconds", [0, 1])
def test_a_serial_line_that_pauses(deciseconds: int) -> None:
    """A read that returns nothing is not the end of it."""
    with serial_line(deciseconds) as (far, line):

        def speak() -> None:
            for start in range(0, len(SMALL), 40):
                time.sleep(0.12 if start == 40 else 0.005)
                os.write(far, SMALL[start : start + 40])

        thread = threading.Thread(target=speak)
        thread.start()
        received = files.decode(line, small(), empty_is_end=False, timeout=60)
        np.testing.assert_array_equal(received["x"], VALUES)
        thread.join()


def test_a_serial_line_both_ways() -> None:
    with serial_line(1) as (far, line), io.FileIO(os.dup(far), "r+b") as device:
        files.encode_to(encode_request({"x": VALUES}), line)
        np.testing.assert_array_equal(files.decode(device, small())["x"], VALUES)


def test_a_serial_line_on_which_nothing_comes() -> None:
    """It is given up, loses nothing, and goes on."""
    source = small()
    with serial_line(0) as (far, line):
        os.write(far, SMALL[:50])
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"nothing has moved for 0[.]05 seconds"):
            files.next_event(line, source, empty_is_end=False, timeout=0.05)
        assert time.monotonic() - began > 0.04
        os.write(far, SMALL[50:])
        while not isinstance(event := files.next_event(line, source, empty_is_end=False), EndOfMessage):
            pass
        assert event.nbytes == len(SMALL)


def test_waiting_takes_no_processor() -> None:
    with serial_line(0) as (_, line):

        def wait() -> None:
            with pytest.raises(TimeoutError):
                files.decode(line, small(), empty_is_end=False, timeout=0.3)

        assert least_cpu_seconds(wait, enough=0.15) < 0.15


def test_a_pty_whose_other_end_has_been_closed() -> None:
    far, near = os.openpty()
    tty.setraw(near)
    os.write(near, SMALL[:30])
    os.close(near)
    with io.FileIO(far, "rb") as line, pytest.raises((OSError, RemoteProtocolError)) as caught:
        files.decode(line, small())
    assert not isinstance(caught.value, OSError) or caught.value.errno == errno.EIO


# Nothing now, and the end


def test_none_is_never_the_end() -> None:
    for steps in ([None, SMALL[:7], None, None, SMALL[7:]], [SMALL[:-1], None, SMALL[-1:]]):
        for file in (Scripted(list(steps)), ScriptedRaw(list(steps)), io.BufferedReader(ScriptedRaw(list(steps)))):
            np.testing.assert_array_equal(files.decode(file, small())["x"], VALUES)


def test_empty_is_the_end_unless_somebody_says_that_it_is_not() -> None:
    steps = [SMALL[:7], b"", SMALL[7:]]
    with pytest.raises(RemoteProtocolError) as caught:
        files.decode(Scripted(list(steps)), small())
    assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, 7)
    np.testing.assert_array_equal(files.decode(Scripted(list(steps)), small(), empty_is_end=False)["x"], VALUES)


def test_what_is_there_is_taken_without_waiting() -> None:
    """A time limit of 0, as of a poll."""
    file, source = Scripted([SMALL[:20], None, SMALL[20:]]), small()
    with pytest.raises(TimeoutError):
        files.next_event(file, source, timeout=0)
    assert source.offset == 20
    assert isinstance(files.next_event(file, source, timeout=0), HeaderReceived)


def test_a_pipe_that_stays_silent_is_given_up(pipe: tuple[io.FileIO, io.FileIO]) -> None:
    source, target = pipe
    os.set_blocking(source.fileno(), False)
    target.write(SMALL[:5])

    def wait() -> None:
        with pytest.raises(TimeoutError):
            files.decode(source, small(), timeout=0.1)

    assert least_cpu_seconds(wait, enough=0.05) < 0.05
    target.close()
    with pytest.raises(RemoteProtocolError, match="too early"):
        files.decode(source, small(), timeout=0.1)


def test_each_byte_renews_the_patience(pipe: tuple[io.FileIO, io.FileIO]) -> None:
    source, target = pipe
    os.set_blocking(source.fileno(), False)

    def trickle() -> None:
        for start in range(0, len(SMALL), 30):
            time.sleep(0.2)
            target.write(SMALL[start : start + 30])

    thread = threading.Thread(target=trickle)
    thread.start()
    files.decode(source, small(), timeout=1.0)
    thread.join()


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_is_cut_anywhere(name: str) -> None:
    message, make_decoder = FORMATS[name]
    data = b"".join(message.buffers)
    for end in range(len(data)):
        with pytest.raises(RemoteProtocolError) as caught:
            files.decode(io.BytesIO(data[:end]), make_decoder())
        assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, end)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", [Scripted, ScriptedRaw])
def test_a_file_that_returns_any_pieces(
    name: str, kind: Callable[[list[Any]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with pauses between them."""
    monkeypatch.setattr(files, "_IDLE_SECONDS", 0)
    message, make_decoder = FORMATS[name]
    data = b"".join(message.buffers)
    for chunks in chunkings(data, at_most=places_of(data)):
        pieces = [chunk for chunk in chunks if chunk]
        for steps in (pieces, [step for piece in pieces for step in (None, piece)]):
            file = kind([*steps, b"tail"])
            (array,) = files.decode(file, make_decoder()).arrays.values()
            np.testing.assert_array_equal(array, VALUES, strict=True)
            assert file.read(100) == b"tail"


def places_of(data: bytes) -> int:
    return len(places(range(len(data))))


def _events(file: Any, source: Any) -> list[Any]:  # noqa: ANN401 - any file, any source
    events = [files.next_event(file, source)]
    while not isinstance(events[-1], EndOfMessage | EndOfStream):
        events.append(files.next_event(file, source))
    return events


def _digest(events: Any) -> list[str]:  # noqa: ANN401 - of a run, or the decoder's own
    return [type(event).__name__ for event in events]


def test_a_stream_of_frames_to_its_end() -> None:
    frame = b"".join(FORMATS["frame"][0].buffers)
    names = _digest(_events(io.BytesIO(frame + b"noise" + frame), FrameReader(request_frame_decoder)))
    message = ["HeaderReceived", "TensorReceived", "EndOfMessage"]
    events, source = [], FrameReader(request_frame_decoder)
    file = io.BytesIO(frame + b"noise" + frame)
    while not isinstance(event := files.next_event(file, source), EndOfStream):
        events.append(event)
    assert names == message
    assert _digest(events) == [*message, "Skipped", *message]


def test_a_paced_decoder_works_at_once() -> None:
    many = encode_request([Tensor(name=f"t{index}", array=np.empty(0)) for index in range(200)])
    source = request_decoder(header_length=many.header_length, body_length=many.body_length, paced=True)
    assert len(files.decode(io.BytesIO(b"".join(many.buffers)), source).tensors) == 200


def test_windows_are_for_who_takes_events() -> None:
    source = request_decoder(
        header_length=MESSAGE.header_length, body_length=None, place=lambda _: Windows(max_window_bytes=8000)
    )
    with pytest.raises(LocalProtocolError, match="'values' comes in windows"):
        files.decode(io.BytesIO(BODY), source)


def test_a_message_that_somebody_else_has_begun() -> None:
    file, source = io.BytesIO(SMALL), small()
    files.next_event(file, source)
    with pytest.raises(LocalProtocolError, match="already been taken"):
        files.decode(file, source)


def test_errors_of_the_file_pass() -> None:
    with pytest.raises(OSError, match="broken"):
        files.decode(Scripted([b"{", OSError("broken")]), small())
    with pytest.raises(OSError, match="broken"):
        files.encode_to(MESSAGE, ScriptedRaw([5, OSError("broken")]))


# Writing


@pytest.mark.parametrize("steps", [[1], [7, None, 0], [50, BlockingIOError(errno.EAGAIN, "", 0)], [1 << 20]], ids=repr)
def test_a_file_that_takes_a_part(steps: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_IDLE_SECONDS", 0)
    file = ScriptedRaw(steps * len(SMALL))
    files.encode_to(FORMATS["request"][0], file)
    assert file.written == SMALL


def test_a_file_that_does_not_say_how_much_it_takes_takes_all() -> None:
    class Silent:
        data = b""

        def write(self, data: memoryview) -> None:
            self.data += data

    file = Silent()
    files.encode_to(MESSAGE, file)
    assert file.data == BODY


@pytest.mark.parametrize("step", [None, 0, BlockingIOError(errno.EAGAIN, "", 0)], ids=repr)
def test_a_file_that_takes_nothing(step: object) -> None:
    with pytest.raises(TimeoutError, match=r"nothing has moved for 0[.]02 seconds"):
        files.encode_to(MESSAGE, ScriptedRaw([step] * 1000), timeout=0.02)


def test_a_pipe_that_nobody_reads(pipe: tuple[io.FileIO, io.FileIO]) -> None:
    os.set_blocking(pipe[1].fileno(), False)

    def wait() -> None:
        with pytest.raises(TimeoutError):
            files.encode_to(MESSAGE, pipe[1], timeout=0.1)

    assert least_cpu_seconds(wait, enough=0.05) < 0.05


def test_windows_are_made_while_they_are_written() -> None:
    memory = np.empty((10, 1000), "<i4")
    made: list[int] = []

    class Watching(io.BytesIO):
        def write(self, data: Any) -> int:  # noqa: ANN401 - a buffer
            assert len(made) <= len(self.getvalue()) // memory.nbytes + 1
            return super().write(data)

    def windows() -> Iterator[Any]:
        for index in range(10):
            made.append(index)
            memory[:] = index
            yield memory

    message = encode_request({"x": Rows("INT32", (100, 1000), windows())})
    file = Watching()
    files.encode_to(message, file)
    file.seek(0)
    source = request_decoder(header_length=message.header_length, body_length=message.body_length)
    assert files.decode(file, source)["x"][:, 0].tolist() == [index for index in range(10) for _ in range(10)]


def test_rows_that_are_too_few() -> None:
    message = encode_request({"x": Rows("INT32", (3, 2), [np.zeros((2, 2), np.int32)])})
    with pytest.raises(LocalProtocolError):
        files.encode_to(message, io.BytesIO())


# What it costs


class Recording(io.FileIO):
    """A file that keeps what it was asked to fill, and to write."""

    views: list[memoryview]

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - typeshed's own
        self.views.append(buffer)
        return super().readinto(buffer)

    def write(self, data: Any) -> int:  # noqa: ANN401 - typeshed's own
        self.views.append(data)
        return super().write(data)


def test_no_byte_of_a_tensor_is_copied(tmp_path: Path) -> None:
    with Recording(tmp_path / "message", "wb") as file:
        file.views = []
        files.encode_to(MESSAGE, file)
    values = ARRAYS["values"]
    shared = [view for view in file.views if np.shares_memory(np.frombuffer(view, np.uint8), values)]
    assert sum(map(len, shared)) == values.nbytes
    with Recording(tmp_path / "message", "rb") as file:
        file.views = []
        values = files.decode(file, decoder())["values"]
    shared = [view for view in file.views if np.shares_memory(np.frombuffer(view, np.uint8), values)]
    assert sum(map(len, shared)) == values.nbytes
    assert max(map(len, file.views)) <= 256 << 10


_PEAK = """
import gzip, io, os, sys, numpy as np
from streamcodec import Rows, encode_request, request_decoder
from streamcodec.transports import files
from tests.processes import forget_peak, peak_resident, resident

MIB = 1 << 20
def message(count):
    window = np.full(MIB // 4, 7, np.uint8)
    return encode_request({"x": Rows("UINT8", (count * MIB,), (window for _ in range(4 * count)))})
def run(count):
    sent = message(count)
    with opened(sys.argv[2], "wb") as file:
        files.encode_to(sent, file)
    before = resident(os.getpid()); forget_peak(os.getpid())
    with opened(sys.argv[2], "rb") as file:
        array = files.decode(file, request_decoder(header_length=sent.header_length, body_length=None))["x"]
    assert array.nbytes == count * MIB
    return peak_resident(os.getpid()) - before
opened = {"gzip": lambda path, mode: gzip.open(path, mode, 1), "buffered": open,
          "raw": lambda path, mode: open(path, mode, 0)}[sys.argv[1]]
run(1)
writing = resident(os.getpid()); forget_peak(os.getpid())
files.encode_to(message(64), opened(os.devnull, "wb"))
print(peak_resident(os.getpid()) - writing, run(64) - 64 * MIB)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process has had")
@pytest.mark.parametrize("kind", ["gzip", "buffered", "raw"])
def test_memory_for_64_mib(tmp_path: Path, kind: str) -> None:
    """Reading takes the tensor and less than 1 MiB; writing, less than 1 MiB."""
    command = [sys.executable, "-c", _PEAK, kind, str(tmp_path / "message")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    writing, reading = map(int, result.stdout.split())
    assert writing < 1 << 20
    assert reading < 1 << 20


def test_it_needs_numpy_alone() -> None:
    script = "import sys, streamcodec.transports.files; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "numpy" in result.stdout.split()
    assert not {"anyio", "h11", "asyncio"} & set(result.stdout.split())


def test_a_file_that_the_system_cannot_wait_for_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS, `poll` says so of devices: it returns at once, and nothing has come."""
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(select, "poll", _Blind)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(reading, "rb", 0) as file, os.fdopen(writing, "wb", 0), pytest.raises(TimeoutError):
        files.decode(file, npy.decoder(), timeout=0.001)
    assert slept


class _Blind:
    """Is what `select.poll` is for such a device."""

    def register(self, *_: int) -> None:
        """Take no notice."""

    def poll(self, _: float | None) -> list[tuple[int, int]]:
        """Return at once."""
        return [(0, select.POLLNVAL)]
