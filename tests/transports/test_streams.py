"""Messages through the streams of anyio, on asyncio and trio, while other tasks run."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from anyio.abc import ByteReceiveStream, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.file import FileReadStream, FileWriteStream
from anyio.streams.tls import TLSStream

from streamcodec import (
    EndOfMessage,
    ErrorCode,
    LocalProtocolError,
    RemoteProtocolError,
    Rows,
    Tensor,
    TensorReceived,
    Windows,
    encode_request,
    request_decoder,
)
from streamcodec.formats.frame import EndOfStream, FrameReader, request_frame_decoder
from streamcodec.testing import chunkings
from streamcodec.transports import streams
from streamcodec.transports.source import READ_BYTES
from tests.effort import places
from tests.transports.certificates import client_side, server_side
from tests.transports.messages import BODY, MESSAGE, check, decoder
from tests.transports.test_aio import Run, run
from tests.transports.test_files import FORMATS, SMALL, VALUES, small
from tests.transports.test_turns import have_it_pass

__all__ = ["run"]  # a fixture


class Scripted(ByteReceiveStream):
    """A stream that brings pieces, waits for ever where one is None, and has ended after the last."""

    def __init__(self, steps: list[bytes | None]) -> None:
        self.steps = steps

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self.steps:
            raise anyio.EndOfStream
        step = self.steps.pop(0)
        if step is None:
            await anyio.sleep_forever()
            raise AssertionError
        if len(step) > max_bytes:
            self.steps.insert(0, step[max_bytes:])
        return step[:max_bytes]

    async def aclose(self) -> None:
        """Nothing is open."""


@asynccontextmanager
async def sockets() -> AsyncIterator[tuple[SocketStream, SocketStream]]:
    left, right = socket.socketpair()
    async with await SocketStream.from_socket(left) as here, await SocketStream.from_socket(right) as there:
        yield here, there


# Kinds of streams


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_leaves_what_follows_it(run: Run, name: str) -> None:
    message, make_decoder = FORMATS[name]

    async def main() -> None:
        async with sockets() as (here, there):
            for _ in range(2):
                await streams.send_message(here, message)
            await here.send(b"tail")
            for _ in range(2):
                received = await streams.receive_message(there, make_decoder())
                assert np.array_equal([*received.arrays.values()], [VALUES])
            assert await there.receive() == b"tail"

    run(main)


def test_a_socket_both_ways_at_once(run: Run) -> None:
    async def main() -> None:
        async with sockets() as (here, there), anyio.create_task_group() as tasks:
            tasks.start_soon(streams.send_message, here, MESSAGE)
            tasks.start_soon(streams.send_message, there, MESSAGE)
            for stream in (here, there):
                check((await streams.receive_message(stream, decoder())).arrays)

    run(main)


def test_tls(run: Run) -> None:
    async def main() -> None:
        async with sockets() as (here, there), anyio.create_task_group() as tasks:

            async def serve() -> None:
                async with await TLSStream.wrap(there, ssl_context=server_side()) as stream:
                    received = await streams.receive_message(stream, decoder())
                    await streams.send_message(stream, encode_request(received.arrays))

            tasks.start_soon(serve)
            async with await TLSStream.wrap(here, hostname="localhost", ssl_context=client_side()) as stream:
                await streams.send_message(stream, MESSAGE)
                check((await streams.receive_message(stream, decoder())).arrays)

    run(main)


def test_tls_that_is_cut(run: Run) -> None:
    async def main() -> None:
        async with sockets() as (here, there), anyio.create_task_group() as tasks:

            async def serve() -> None:
                stream = await TLSStream.wrap(there, ssl_context=server_side())
                await stream.send(BODY[:1000])
                await there.aclose()

            tasks.start_soon(serve)
            stream = await TLSStream.wrap(here, hostname="localhost", ssl_context=client_side())
            with pytest.raises((anyio.BrokenResourceError, ssl.SSLError)):
                await streams.receive_message(stream, decoder())

    run(main)


def test_a_process(run: Run) -> None:
    code = (
        "import sys\nfrom streamcodec.transports import files\nfrom tests.transports.messages import *\n"
        "files.decode(open(0, 'rb', 0), decoder())\nfiles.encode_to(MESSAGE, sys.stdout.buffer)\n"
    )

    async def main() -> None:
        async with await anyio.open_process([sys.executable, "-c", code], stderr=None) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            await streams.send_message(process.stdin, MESSAGE)
            check((await streams.receive_message(process.stdout, decoder())).arrays)

    run(main)


def test_a_file(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with await FileWriteStream.from_path(tmp_path / "message") as file:
            await streams.send_message(file, MESSAGE)
        async with await FileReadStream.from_path(tmp_path / "message") as source:
            check((await streams.receive_message(source, decoder())).arrays)
            with pytest.raises(anyio.EndOfStream):
                await source.receive()

    run(main)


def test_a_stream_of_objects_keeps_what_is_too_much(run: Run) -> None:
    """Whatever it pushes at once: several messages, or parts of two."""

    async def main() -> None:
        sending, receiving = anyio.create_memory_object_stream[bytes](10)
        async with sending, BufferedByteReceiveStream(receiving) as stream, anyio.create_task_group() as tasks:
            await sending.send(SMALL + SMALL + SMALL[:40])
            await sending.send(SMALL[40:] + b"tail")
            for _ in range(3):
                np.testing.assert_array_equal((await streams.receive_message(stream, small()))["x"], VALUES)
            assert stream.buffer == b"tail"
            assert await stream.receive() == b"tail"
            tasks.start_soon(streams.send_message, sending, MESSAGE)
            check((await streams.receive_message(stream, decoder())).arrays)

    run(main)


def test_a_stream_of_objects_gets_bytes_of_its_own(run: Run) -> None:
    """So that windows that share their memory can be kept by it."""
    memory = np.empty((1, 100_000), "<i4")

    def windows() -> Any:  # noqa: ANN401 - of numpy
        for index in range(5):
            memory[:] = index
            yield memory

    message = encode_request({"x": Rows("INT32", (5, 100_000), windows())})

    async def main() -> None:
        sending, receiving = anyio.create_memory_object_stream[bytes](100)
        async with sending, BufferedByteReceiveStream(receiving) as stream:
            await streams.send_message(sending, message)
            source = request_decoder(header_length=message.header_length, body_length=message.body_length)
            assert (await streams.receive_message(stream, source))["x"][:, -1].tolist() == [0, 1, 2, 3, 4]

    run(main)


def test_asynchronous_windows(run: Run) -> None:
    async def windows() -> AsyncIterator[Any]:
        for index in range(5):
            await anyio.lowlevel.checkpoint()
            yield np.full((1, 3), index, "<i4")

    message = encode_request({"x": Rows("INT32", (5, 3), windows())})

    async def main() -> None:
        async with sockets() as (here, there):
            await streams.send_message(here, message)
            source = request_decoder(header_length=message.header_length, body_length=message.body_length)
            assert (await streams.receive_message(there, source))["x"][:, 0].tolist() == [0, 1, 2, 3, 4]

    run(main)


def test_a_stream_of_frames_to_its_end(run: Run) -> None:
    frame = b"".join(FORMATS["frame"][0].buffers)
    source = FrameReader(request_frame_decoder)

    async def main() -> None:
        stream, names = Scripted([frame[:50], frame[50:] + b"noise" + frame]), []
        while not isinstance(event := await streams.next_event(stream, source), EndOfStream):
            names.append(type(event).__name__)
        assert names[2:4] == ["EndOfMessage", "Skipped"]
        assert names[:3] == names[4:]

    run(main)


def test_windows_are_for_who_takes_events(run: Run) -> None:
    source = request_decoder(
        header_length=MESSAGE.header_length, body_length=None, place=lambda _: Windows(max_window_bytes=8000)
    )

    async def main() -> None:
        with pytest.raises(LocalProtocolError, match="'values' comes in windows"):
            await streams.receive_message(Scripted([BODY]), source)

    run(main)


# Pieces, the end, time and cancellation


@pytest.mark.parametrize("name", FORMATS)
def test_a_stream_that_brings_any_pieces(name: str) -> None:
    message, make_decoder = FORMATS[name]
    data = b"".join(message.buffers)

    async def main() -> None:
        for chunks in chunkings(data, at_most=len(places(range(len(data))))):
            stream = Scripted([*filter(None, chunks), b"tail"])
            received = await streams.receive_message(stream, make_decoder())
            (array,) = received.arrays.values()
            np.testing.assert_array_equal(array, VALUES, strict=True)
            assert stream.steps == [b"tail"]

    anyio.run(main)


@pytest.mark.parametrize("name", FORMATS)
def test_a_stream_that_ends_anywhere(name: str) -> None:
    message, make_decoder = FORMATS[name]
    data = b"".join(message.buffers)

    async def main() -> None:
        for end in range(len(data)):
            with pytest.raises(RemoteProtocolError) as caught:
                await streams.receive_message(Scripted([data[:end]] if end else []), make_decoder())
            assert (caught.value.code, caught.value.offset) == (ErrorCode.TRUNCATED, end)

    anyio.run(main)


def test_a_socket_that_ends_too_early(run: Run) -> None:
    async def main() -> None:
        async with sockets() as (here, there):
            await here.send(SMALL[:-1])
            await here.send_eof()
            with pytest.raises(RemoteProtocolError, match="too early"):
                await streams.receive_message(there, small())

    run(main)


@pytest.mark.parametrize("cut", range(0, len(SMALL), 7))
def test_a_wait_that_is_cancelled_or_too_long_loses_nothing(run: Run, cut: int) -> None:
    async def main() -> None:
        async with sockets() as (here, there):
            source = small()
            await here.send(SMALL[:cut] if cut else b"")
            names: list[str] = []

            async def collect(**options: Any) -> None:  # noqa: ANN401 - of `next_event`
                while "EndOfMessage" not in names:
                    event = await streams.next_event(there, source, **options)
                    names.append(type(event).__name__)
                    if isinstance(event, TensorReceived):
                        np.testing.assert_array_equal(event.array, VALUES)

            with anyio.move_on_after(0.01) as scope:
                await collect()
            assert scope.cancelled_caught
            with pytest.raises(TimeoutError):
                await collect(timeout=0.01)
            assert source.offset == cut
            await here.send(SMALL[cut:])
            await collect()
            assert names == ["HeaderReceived", "TensorReceived", "EndOfMessage"]

    run(main)


def test_cancellation_at_every_wait_loses_nothing(run: Run) -> None:
    """Each call is cancelled while it waits; another goes on from there."""
    step = 997
    pieces = [BODY[start : start + step] for start in range(0, len(BODY), step)]

    async def main() -> None:
        source, arrays, cancelled = decoder(), {}, 0
        stream = Scripted([each for piece in pieces for each in (None, piece)])
        event: object = None
        while not isinstance(event, EndOfMessage):
            with anyio.CancelScope() as scope:
                scope.cancel()
                event = await streams.next_event(stream, source)
                if isinstance(event, TensorReceived):
                    arrays[event.spec.name] = event.array
            if scope.cancelled_caught:
                cancelled += 1
        check(arrays)
        assert cancelled >= len(pieces)

    run(main)


def test_cancellation_by_the_means_of_asyncio() -> None:
    async def main() -> None:
        async with sockets() as (here, there):
            source = small()
            await here.send(SMALL[:20])
            task = asyncio.create_task(streams.next_event(there, source))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert source.offset == 20
            await here.send(SMALL[20:])
            np.testing.assert_array_equal((await streams.receive_message(there, source))["x"], VALUES)

    anyio.run(main)


def test_a_message_that_somebody_else_has_begun(run: Run) -> None:
    async def main() -> None:
        stream, source = Scripted([SMALL]), small()
        await streams.next_event(stream, source)
        with pytest.raises(LocalProtocolError, match="already been taken"):
            await streams.receive_message(stream, source)

    run(main)


def test_sending_to_somebody_who_takes_nothing(run: Run) -> None:
    message = encode_request({"x": np.zeros(10_000_000, np.uint8)})

    async def main() -> None:
        left, right = socket.socketpair()
        with right:  # anyio would begin to read
            async with await SocketStream.from_socket(left) as here:
                with pytest.raises(TimeoutError, match=r"nothing has moved for 0[.]05 seconds"):
                    await streams.send_message(here, message, timeout=0.05)

    run(main)


def test_errors_of_the_stream_pass(run: Run) -> None:
    async def main() -> None:
        async with sockets() as (here, there):
            await there.aclose()
            with pytest.raises(anyio.ClosedResourceError):
                await streams.receive_message(there, decoder())
            for message in [MESSAGE] * 5:
                with suppress(anyio.BrokenResourceError):
                    await streams.send_message(here, message)
            with pytest.raises(anyio.BrokenResourceError):
                await streams.send_message(here, MESSAGE)

    run(main)


def test_rows_that_are_too_few(run: Run) -> None:
    message = encode_request({"x": Rows("INT32", (3, 2), [np.zeros((2, 2), np.int32)])})

    async def main() -> None:
        async with sockets() as (here, _):
            with pytest.raises(LocalProtocolError):
                await streams.send_message(here, message)

    run(main)


# What it costs


class Recording(ByteReceiveStream):
    """Brings a message from memory without ever waiting, and counts."""

    def __init__(self, data: bytes) -> None:
        self.rest = memoryview(data)
        self.nbytes: list[int] = []

    async def receive(self, max_bytes: int = 65536) -> bytes:
        piece, self.rest = bytes(self.rest[:max_bytes]), self.rest[max_bytes:]
        self.nbytes.append(len(piece))
        return piece

    async def aclose(self) -> None:
        """Nothing is open."""


def test_no_read_is_longer_than_the_message_and_small_tensors_come_together(run: Run) -> None:
    many = encode_request([Tensor(name=f"t{index}", array=np.arange(3)) for index in range(500)])
    data = b"".join(many.buffers)

    async def main() -> None:
        stream = Recording(data + bytes(1000))
        source = request_decoder(header_length=many.header_length, body_length=many.body_length)
        assert len((await streams.receive_message(stream, source)).tensors) == 500
        assert sum(stream.nbytes) == len(data)
        assert len(stream.nbytes) < 20
        assert max(stream.nbytes) <= READ_BYTES

    run(main)


def test_each_byte_is_copied_once(run: Run) -> None:
    """From the piece that came into the tensor, and nowhere else."""

    async def main() -> None:
        stream, source = Recording(BODY), decoder()
        views: list[memoryview] = []
        get_buffers = source.get_buffers

        def recording(sizehint: int = -1) -> list[memoryview]:
            buffers = get_buffers(sizehint)
            views.extend(buffers)
            return buffers

        source.get_buffers = recording  # type: ignore[method-assign]  # to look
        received = await streams.receive_message(stream, source)
        values = received["values"]
        assert sum(np.shares_memory(np.frombuffer(view, np.uint8), values) for view in views) > 2
        assert sum(stream.nbytes) == len(BODY) == source.offset

    run(main)


def test_others_have_their_turn_though_the_stream_never_waits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    have_it_pass(monkeypatch, seconds=0.0004)  # a dozen looks take as long as a turn may
    ticks: list[int] = []
    message = encode_request({"x": np.zeros(32 << 20, np.uint8)})
    stream = Recording(b"".join(message.buffers))

    async def tick() -> None:
        while True:
            ticks.append(len(stream.nbytes))
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            source = request_decoder(header_length=message.header_length, body_length=None)
            await streams.receive_message(stream, source)
            tasks.cancel_scope.cancel()

    run(main)
    assert max(np.diff(ticks)) <= 2 * 32  # on trio the order within a turn is chance
    assert len(ticks) > 20


def test_a_long_header_is_read_in_turns(run: Run) -> None:
    many = encode_request([Tensor(name=f"t{index}", array=np.empty(0)) for index in range(5000)])
    turns: list[float] = []

    async def tick() -> None:
        while True:
            turns.append(time.perf_counter())
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            source = request_decoder(header_length=many.header_length, body_length=many.body_length, paced=True)
            stream = Recording(b"".join(many.buffers))
            assert len((await streams.receive_message(stream, source)).tensors) == 5000
            tasks.cancel_scope.cancel()

    run(main)
    assert len(turns) > 40


@pytest.mark.slow
def test_no_memory_waits_for_the_garbage_collector(run: Run) -> None:
    async def main() -> None:
        async with sockets() as (here, there):
            for _ in range(3):
                await streams.send_message(here, FORMATS["request"][0])
                await streams.receive_message(there, small())
            with pytest.raises(TimeoutError):
                await streams.receive_message(there, small(), timeout=0.01)

    run(main)
    gc.collect()
    gc.disable()
    try:
        before = len([each for each in gc.get_objects() if type(each).__name__ == "Decoder"])
        run(main)
        assert len([each for each in gc.get_objects() if type(each).__name__ == "Decoder"]) <= before
    finally:
        gc.enable()


_PEAK = """
import os, sys, socket, anyio, numpy as np
from anyio.abc import SocketStream
from streamcodec import Rows, encode_request, request_decoder
from streamcodec.transports import streams
from tests.processes import forget_peak, peak_resident, resident

MIB = 1 << 20
def message(count):
    window = np.zeros(MIB // 4, np.uint8)
    return encode_request({"x": Rows("UINT8", (count * MIB,), (window for _ in range(4 * count)))})

async def run(stream, count):
    before = resident(os.getpid()); forget_peak(os.getpid())
    sent = message(count)
    if sys.argv[3] == "send":
        await streams.send_message(stream, sent)
        return peak_resident(os.getpid()) - before
    source = request_decoder(header_length=sent.header_length, body_length=sent.body_length, paced=True)
    array = (await streams.receive_message(stream, source))["x"]
    assert array.nbytes == count * MIB
    return peak_resident(os.getpid()) - before - array.nbytes

async def main():
    async with await SocketStream.from_socket(socket.socket(fileno=int(sys.argv[2]))) as stream:
        await run(stream, 1)
        print(await run(stream, 64))
anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process has had")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_memory_for_64_mib(backend: str) -> None:
    """Who receives has the tensor and less than 1 MiB; who sends, less than 1 MiB."""
    left, right = socket.socketpair()
    command = [sys.executable, "-c", _PEAK, backend]
    with left, right:
        ends = [
            subprocess.Popen([*command, str(sock.fileno()), role], pass_fds=[sock.fileno()], stdout=subprocess.PIPE)
            for sock, role in ((left, "send"), (right, "receive"))
        ]
    for end in ends:
        with end:
            printed, _ = end.communicate(timeout=60)
        print(backend, int(printed))  # noqa: T201 - a figure
        assert int(printed) < 1 << 20
