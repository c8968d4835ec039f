"""Both clients while tensors come and go in windows: in both directions at once, broken off, refused, misplaced."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from typing import Any

import anyio
import numpy as np
import pytest

from streamcodec import (
    Elements,
    EndOfMessage,
    ErrorCode,
    Event,
    HeaderReceived,
    Into,
    LocalProtocolError,
    NewArray,
    Placement,
    RemoteProtocolError,
    Rows,
    TensorReceived,
    TensorSpec,
    WindowReceived,
    Windows,
)
from streamcodec.client import AsyncClient, ServerError, Timeout
from tests.client.answers.test_answers import GOOD, VALUES
from tests.client.drivers import KINDS, Kind
from tests.client.growing import growing
from tests.client.scripted import hung_up, response, scripted, stalling
from tests.server.models import models
from tests.server.programs import server_here

Array = np.ndarray[Any, Any]

WIDTH = 1 << 18
COUNT = 96
"""Rows of 1 MiB: more than all buffers of a connection hold."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"http://{host}:{port}"


def _row(number: int) -> Array:
    return np.full((1, WIDTH), number, "<i4")


def _rows(kind: Kind, count: int = COUNT, *, extra: int = 0, failure: Exception | None = None) -> Rows:
    """Make rows that come one by one, all in the same memory: asynchronously where the client is."""
    memory = np.empty((1, WIDTH), "<i4")

    def windows() -> Iterator[Array]:
        for number in range(count + extra):
            memory[:] = number
            yield memory
        if failure is not None:
            raise failure

    async def async_windows() -> AsyncIterator[Array]:
        for window in windows():
            yield window

    return Rows("INT32", (count, WIDTH), async_windows() if kind.is_asynchronous else windows())


def _in_windows(_: TensorSpec) -> Placement:
    return Windows(max_window_bytes=3 << 20)


@pytest.mark.slow
@KINDS
def test_an_answer_that_grows_while_the_request_is_being_sent(kind: Kind) -> None:
    """Somebody who sends all before reading would wait for ever, and so would the server."""
    seen = []
    with growing(1 << 20) as url, kind.client(url) as client:
        with client.stream("double", {"x": _rows(kind)}, place=_in_windows) as events:
            first = next(events)
            assert isinstance(first, HeaderReceived)
            assert first.header.tensors[0].shape == (COUNT, WIDTH)
            for event in events:
                if isinstance(event, WindowReceived):
                    assert (event.array[:, 0] == event.array[:, -1]).all()
                    seen += event.array[:, 0].tolist()
        assert isinstance(event, EndOfMessage)
        assert seen == [2 * number for number in range(COUNT)]
        doubled = client.infer("double", {"x": np.broadcast_to(_row(7), (COUNT, WIDTH))})["x"]
        assert doubled.shape == (COUNT, WIDTH)
        assert (doubled == 14).all()


@KINDS
def test_rows_from_an_ordinary_generator(kind: Kind, url: str) -> None:
    with kind.client(url) as client:
        for _ in range(2):
            rows = Rows("INT32", (8, WIDTH), (_row(number) for number in range(8)))
            assert client.infer("identity", {"x": rows})["x"][:, 3].tolist() == list(range(8))


@KINDS
def test_rows_are_not_compressed(kind: Kind, url: str) -> None:
    with kind.client(url, request_compression="gzip") as client:
        assert client.infer("identity", {"x": _rows(kind, 2)})["x"].shape == (2, WIDTH)


@KINDS
def test_outputs_are_received_into_the_arrays_given(kind: Kind, url: str) -> None:
    mine: dict[str, Array] = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.int64)}
    inputs: dict[str, Any] = {
        "a": np.ones((2, 3), np.float32),
        "b": np.arange(4),
        "c": np.arange(2),
        "d": Elements(["words"]),
    }
    placed: list[str] = []
    other = np.zeros(2, np.int64)

    def place(spec: TensorSpec) -> Placement:
        placed.append(spec.name)
        return Into(other)

    with kind.client(url) as client:
        for is_binary in (True, False):
            for array in (*mine.values(), other):
                array[:] = 0
            outputs = client.infer("identity", inputs, out=mine, place=place, is_binary=is_binary).outputs
            assert all(outputs[name] is mine[name] for name in mine)
            assert outputs["c"] is other
            assert all(np.array_equal(outputs[name], inputs[name]) for name in ("a", "b", "c"))
            assert outputs["d"].tolist() == [b"words"]
    assert placed == ["c"] * 2, "BYTES are not placed"


@KINDS
@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("x", np.zeros(3, np.int64), r"int64 \[3\], the tensor is int64 \[2\]"),
        ("x", np.zeros(2, np.int32), r"int32 \[2\], the tensor is int64 \[2\]"),
        ("x", np.broadcast_to(np.int64(1), (2,)), "writable"),
        ("y", np.zeros(2, np.int64), "no output 'y'"),
        ("words", np.zeros(1, object), "no output 'words'"),
    ],
    ids=["shape", "dtype", "read-only", "unknown", "BYTES"],
)
def test_an_output_that_does_not_fit_its_array(kind: Kind, url: str, name: str, array: Array, text: str) -> None:
    with kind.client(url) as client:
        for _ in range(2):
            with pytest.raises(LocalProtocolError, match=text):
                client.infer("identity", {"x": np.arange(2), "words": ["a"]}, out={name: array})
        assert client.infer("identity", {"x": [1]})["x"] == 1
    assert not np.asarray(array, object).astype(bool).any() or not array.flags.writeable


@KINDS
def test_bytes_without_objects(kind: Kind, url: str) -> None:
    words = Elements(["", "word", "größe"])
    with kind.client(url) as client:
        for is_binary in (True, False):
            result = client.infer("identity", {"x": words, "y": [1]}, is_binary=is_binary)
            assert result.elements("x").offsets.tolist() == words.offsets.tolist()
            assert result["x"].tolist() == [b"", b"word", "größe".encode()]
            with pytest.raises(LocalProtocolError, match="INT64"):
                result.elements("y")


@KINDS
def test_windows_are_for_streams(kind: Kind, url: str) -> None:
    with kind.client(url) as client:
        with pytest.raises(LocalProtocolError, match="'x' comes in windows"):
            client.infer("identity", {"x": [1]}, place=_in_windows)
        assert client.infer("identity", {"x": [1]})["x"] == 1


@KINDS
def test_the_events_of_a_stream(kind: Kind, url: str) -> None:
    inputs = {"a": np.arange(6).reshape(3, 2), "b": np.float32(3), "words": [b"w"]}

    def place(spec: TensorSpec) -> Placement:
        return Windows(max_window_bytes=32) if spec.name == "a" else NewArray()

    with kind.client(url) as client:
        for _ in range(2):
            log: list[Any] = []
            with client.stream("identity", inputs, request_id="7", place=place) as events:
                for event in events:
                    match event:
                        case HeaderReceived(header=header):
                            log.append(header.id)
                        case WindowReceived(array=array, row=row):
                            log.append((row, event.is_last, array.tolist()))
                        case TensorReceived(spec=spec, array=array):
                            log.append((spec.name, array.tolist()))
                        case EndOfMessage():
                            log.append("end")
            assert log == [
                "7",
                (0, False, [[0, 1], [2, 3]]),
                (2, True, [[4, 5]]),
                ("b", 3),
                ("words", [b"w"]),
                "end",
            ]


@KINDS
def test_a_stream_that_is_refused(kind: Kind, url: str) -> None:
    with kind.client(url) as client:
        refused = pytest.raises(ServerError, match="404: there is no model 'nobody'")
        with refused, client.stream("nobody", {"x": [1]}) as events:
            next(events)
        assert client.infer("identity", {"x": [1]})["x"] == 1


@KINDS
def test_one_connection_for_streams_and_calls(kind: Kind) -> None:
    with scripted([GOOD, GOOD, GOOD]) as server, kind.client(server.url) as client:
        client.infer("m", {"x": [1]})
        with client.stream("m", {"x": [1]}) as events:
            assert [type(event) for event in events] == [HeaderReceived, TensorReceived, EndOfMessage]
        client.infer("m", {"x": [1]})
    assert server.accepted == 1


class _OwnError(Exception):
    pass


@KINDS
@pytest.mark.parametrize("way", ["leaving", "raising"])
def test_whoever_leaves_a_stream_early_closes_its_connection(kind: Kind, way: str) -> None:
    with scripted([GOOD[:-1], hung_up], [GOOD]) as server, kind.client(server.url) as client:
        expected = pytest.raises(_OwnError) if way == "raising" else nullcontext()
        with expected, client.stream("m", {"x": [1]}) as events:
            assert isinstance(next(events), HeaderReceived)
            if way == "raising":
                raise _OwnError
        assert server.has_closed()
        assert np.array_equal(client.infer("m", {"x": [1]})["y"], VALUES)
    assert server.accepted == 2


@KINDS
def test_leaving_a_stream_ends_the_sending_too(kind: Kind) -> None:
    with growing(1 << 20) as url, kind.client(url) as client:
        for _ in range(2):
            with client.stream("double", {"x": _rows(kind, 2000)}, place=_in_windows) as events:
                while not isinstance(next(events), WindowReceived):
                    pass


@KINDS
def test_a_stream_holds_one_connection(kind: Kind, url: str) -> None:
    with kind.client(url, max_connections=1, timeout=Timeout(pool=0.1)) as client:
        with client.stream("identity", {"x": [1, 2]}) as events:
            next(events)
            with pytest.raises(TimeoutError, match=r"0\.1 seconds: all 1 of max_connections .* `with` block"):
                client.infer("identity", {"x": [1]})
            assert [type(event) for event in events] == [TensorReceived, EndOfMessage]
        assert client.infer("identity", {"x": [1]})["x"] == 1


def _read_to_the_end(sock: socket.socket, taken: list[bytes] | None = None) -> None:
    """Read all that the client sends, to keep it or not."""
    while data := sock.recv(1 << 20):
        if taken is not None:
            taken.append(data)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_call_and_a_cancellation_in_the_middle_of_a_stream(url: str, backend: str) -> None:
    async def main() -> None:
        async with AsyncClient(url, timeout=60) as client:
            async with client.stream("identity", {"x": [1, 2]}) as events:
                await anext(events)
                assert (await client.infer("identity", {"x": [3]}))["x"] == 3
                with anyio.move_on_after(0.01):
                    await anyio.sleep_forever()
                assert [type(event) async for event in events] == [TensorReceived, EndOfMessage]
            assert (await client.infer("identity", {"x": [1]}))["x"] == 1

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_stream_that_is_cancelled(backend: str) -> None:
    with growing(1 << 20) as url:

        async def main() -> None:
            async with AsyncClient(url, timeout=60) as client:
                with anyio.move_on_after(0.2) as scope:
                    rows = _rows(Kind(backend), 1 << 12)
                    async with client.stream("double", {"x": rows}, place=_in_windows) as events:
                        async for _ in events:
                            await anyio.sleep(0.01)
                assert scope.cancelled_caught
                assert (await client.infer("double", {"x": [1, 2]}))["x"].tolist() == [2, 4]

        anyio.run(main, backend=backend)


SOURCES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a row too many": ({"extra": 1}, LocalProtocolError, "1 rows where 0 of 3 were missing"),
    "a row too few": ({"extra": -1}, LocalProtocolError, "ended after 2 of 3 rows"),
    "a failure": ({"extra": -2, "failure": _OwnError("mine")}, _OwnError, "mine"),
    "a failure after the last row": ({"failure": _OwnError("mine")}, _OwnError, "mine"),
    "a connection of its own that fails": ({"failure": ConnectionError("mine")}, ConnectionError, "mine"),
}


@KINDS
@pytest.mark.parametrize("case", SOURCES)
def test_a_source_that_fails_leaves_no_whole_request_behind(kind: Kind, case: str) -> None:
    options, failure, text = SOURCES[case]
    taken: list[bytes] = []
    with scripted([lambda sock: _read_to_the_end(sock, taken)], [GOOD]) as server, kind.client(server.url) as client:
        with pytest.raises(failure, match=text):
            client.infer("m", {"x": _rows(kind, 3, **options)})
        assert server.has_closed()
        assert np.array_equal(client.infer("m", {"x": [1]})["y"], VALUES)
    head, _, body = b"".join(taken).partition(b"\r\n\r\n")
    (length,) = [line.split()[1] for line in head.split(b"\r\n") if line.startswith(b"Content-Length")]
    assert len(body) < int(length)
    if case not in {"a row too few", "a failure"}:
        assert len(body) == int(length) - 1, "all but the last byte, which waits for the end of the source"


def _refuse(sock: socket.socket) -> None:
    """Answer at the first bytes, then read on without end."""
    sock.recv(1000)
    sock.sendall(response(b'{"error":"not you"}', status="403 Forbidden"))
    _read_to_the_end(sock)


@KINDS
def test_a_refusal_ends_the_sending_also_of_a_server_that_reads_on(kind: Kind) -> None:
    with scripted([_refuse], [GOOD]) as server, kind.client(server.url) as client:
        with pytest.raises(ServerError, match="403: not you"):
            client.infer("m", {"x": _rows(kind, 1 << 20)})  # a terabyte
        assert server.has_closed()
        client.infer("m", {"x": [1]})
    assert server.accepted == 2


@KINDS
def test_an_answer_that_is_whole_before_the_request_is(kind: Kind) -> None:
    def answer(sock: socket.socket) -> None:
        sock.recv(1000)
        sock.sendall(GOOD)
        _read_to_the_end(sock)

    with scripted([answer], [GOOD]) as server, kind.client(server.url) as client:
        assert np.array_equal(client.infer("m", {"x": _rows(kind, 1 << 20)})["y"], VALUES)
        assert server.has_closed()
        client.infer("m", {"x": [1]})
    assert server.accepted == 2


def _slowly(sock: socket.socket) -> None:
    """Take a part, and later give a part, with a pause each time; in all longer than the client waits for one move."""
    for _ in range(6):
        time.sleep(0.4)
        left = 6 << 20
        while left > 0:
            left -= len(sock.recv(1 << 20))
    for start in range(0, 60, 10):
        time.sleep(0.4)
        sock.sendall(GOOD[start : start + 10])
    sock.sendall(GOOD[60:])
    _read_to_the_end(sock)


@pytest.mark.slow
@KINDS
def test_progress_in_either_direction_is_progress(kind: Kind) -> None:
    with scripted([_slowly]) as server, kind.client(server.url, timeout=2.0) as client:
        assert np.array_equal(client.infer("m", {"x": np.zeros(64 << 20, np.uint8)})["y"], VALUES)


@pytest.mark.slow
@KINDS
def test_no_progress_in_both_directions(kind: Kind) -> None:
    late = pytest.raises(TimeoutError, match=r"nothing has moved for 0\.2 seconds")
    with stalling() as server, kind.client(server.url, timeout=0.2) as client, late:
        client.infer("m", {"x": _rows(kind)})


@KINDS
def test_an_answer_that_is_cut_in_the_middle_of_a_stream(kind: Kind) -> None:
    seen: list[Event] = []
    with scripted([GOOD[:-1]]) as server, kind.client(server.url) as client:
        with pytest.raises(RemoteProtocolError) as caught, client.stream("m", {"x": [1]}) as events:
            seen += events
        assert caught.value.code == ErrorCode.TRUNCATED
    assert [type(event) for event in seen] == [HeaderReceived]
