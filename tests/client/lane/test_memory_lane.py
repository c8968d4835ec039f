"""The client's memory lane: with a server, without one, and with servers that cheat."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from streamcodec import LocalProtocolError, RemoteProtocolError
from streamcodec.client import Client, MemoryLane, ServerError
from streamcodec.server import Server, ServerOptions, open_unix_listener
from streamcodec.service import InferenceRequest, Model, ModelRegistry
from streamcodec.transports.sockets.memfd import close_all, map_memory, receive_descriptors
from tests.server.lanes import eventually, mapped_bytes, open_descriptors
from tests.server.programs import server_here

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files exist on Linux only")

MIB = 1 << 20
X = np.arange(100_000, dtype=np.float32)
OPTIONS = ServerOptions(max_lane_bytes=64 * MIB)


def _echo(request: InferenceRequest) -> dict[str, Any]:
    return dict(request.values)


def _negative(request: InferenceRequest) -> dict[str, Any]:
    return {"y": -request.inputs["x"]}


def _fail(_: InferenceRequest) -> dict[str, Any]:
    raise ValueError


def models() -> ModelRegistry:
    return ModelRegistry.of(
        [
            Model(name="copy", predict=_echo),
            Model(name="shared", predict=_echo, shared_inputs=True),
            Model(name="negative", predict=_negative, shared_inputs=True),
            Model(name="fail", predict=_fail),
        ]
    )


@contextmanager
def served(options: ServerOptions = OPTIONS) -> Iterator[tuple[Server, str]]:
    with tempfile.TemporaryDirectory() as folder:
        listener = open_unix_listener(f"{folder}/socket")
        with server_here(models(), options, listener=listener) as (server, _):
            yield server, f"http+unix://{quote(folder, safe='')}%2Fsocket"


@pytest.fixture
def lane() -> MemoryLane:
    return MemoryLane(request_bytes=4 * MIB, answer_bytes=2 * MIB)


@pytest.mark.parametrize("model", ["copy", "shared", "negative"])
@pytest.mark.parametrize("in_lane", [False, True])
def test_there_and_back(lane: MemoryLane, model: str, in_lane: bool) -> None:
    with served() as (_, url), Client(url, memory_lane=lane) as client:
        x = lane.empty(X.shape, X.dtype) if in_lane else np.empty_like(X)
        for number in range(5):
            x[:] = X + number
            [array] = client.infer(model, {"x": x}).outputs.values()
            assert array.flags.writeable
            assert np.array_equal(array, -x if model == "negative" else x)
            assert np.shares_memory(array, x) is (in_lane and model == "shared")
        assert lane.calls == 5
        assert client.sent_bytes < 5000


def test_several_tensors_of_all_kinds(lane: MemoryLane) -> None:
    inputs: dict[str, Any] = {
        "x": X,
        "none": np.zeros((0, 3), np.int64),
        "bool": np.arange(100) % 2 == 0,
        "bytes": np.array([b"abc", b"", b"x" * 5000], object),
        "scalar": np.array(5, np.int16),
        "part": X.reshape(100, 1000)[:, :7],
    }
    with served() as (_, url), Client(url, memory_lane=lane) as client:
        for model in ("copy", "shared"):
            found = client.infer(model, inputs)
            assert list(found.outputs) == list(inputs)
            for name, array in inputs.items():
                assert np.array_equal(found[name], array)
        assert lane.calls == 2


def test_outputs_into_arrays_of_the_caller(lane: MemoryLane) -> None:
    out = np.empty_like(X)
    with served() as (_, url), Client(url, memory_lane=lane) as client:
        found = client.infer("copy", {"x": X}, out={"x": out})
        assert found["x"] is out
        assert np.array_equal(out, X)
        with pytest.raises(LocalProtocolError, match="no output 'z'"):
            client.infer("copy", {"x": X}, out={"z": out})
        assert lane.calls == 2


def test_results_that_are_kept_are_not_written_over(lane: MemoryLane) -> None:
    """Two MiB of answers hold five of these; further ones come over the socket."""
    with served() as (_, url), Client(url, memory_lane=lane) as client:
        kept = [client.infer("negative", {"x": X + number})["y"] for number in range(8)]
        for number, array in enumerate(kept):
            assert np.array_equal(array, -(X + number))
        del kept, array
        assert np.array_equal(client.infer("negative", {"x": X})["y"], -X)


def test_results_outlive_everything(lane: MemoryLane) -> None:
    with served() as (_, url), Client(url, memory_lane=lane) as client:
        y = client.infer("negative", {"x": X})["y"][5:10]
    del client, lane
    gc.collect()
    assert y.tolist() == [-5, -6, -7, -8, -9]


def test_what_goes_through_the_socket(lane: MemoryLane) -> None:
    """Small requests, those without room, JSON, and everything but `infer`."""
    with served() as (_, url), Client(url, memory_lane=lane) as client:
        for inputs in ({"x": X[:10]}, {"x": np.zeros(5 * MIB, np.int8)}):
            [array] = client.infer("copy", inputs).outputs.values()
            assert np.array_equal(array, inputs["x"])
        assert np.array_equal(client.infer("copy", {"x": X}, is_binary=False)["x"], X)
        with client.stream("copy", {"x": X}) as events:
            assert len(list(events)) == 3
        assert client.is_server_live()
        assert lane.calls == 0
    with served() as (_, url), Client(url, memory_lane=lane, request_compression="gzip") as client:
        client.infer("copy", {"x": X})
        assert lane.calls == 0


@pytest.mark.parametrize("options", [ServerOptions(), ServerOptions(max_lane_bytes=MIB)])
def test_a_server_that_offers_no_lane(lane: MemoryLane, options: ServerOptions) -> None:
    with served(options) as (_, url), Client(url, memory_lane=lane) as client:
        assert np.array_equal(client.infer("copy", {"x": X})["x"], X)
        assert lane.calls == 0


def test_after_a_failed_call(lane: MemoryLane) -> None:
    with served() as (_, url), Client(url, memory_lane=lane) as client:
        for _ in range(3):
            with pytest.raises(ServerError, match="fail"):
                client.infer("fail", {"x": X})
            with pytest.raises(ServerError, match="404"):
                client.infer("missing", {"x": X})
        assert np.array_equal(client.infer("copy", {"x": X})["x"], X)


def test_threads(lane: MemoryLane) -> None:
    with served() as (_, url), Client(url, memory_lane=lane, max_connections=3) as client:
        good: list[bool] = []

        def work(number: int) -> None:
            results = (client.infer("negative", {"x": X + number})["y"] for _ in range(10))
            good.extend(np.array_equal(result, -(X + number)) for result in results)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert good == [True] * 60


# Its memory


def test_memory_comes_back(lane: MemoryLane) -> None:
    arrays = [lane.empty(MIB, np.uint8) for _ in range(4)]
    assert all(array.ctypes.data % 64 == 0 for array in arrays)
    with pytest.raises(LocalProtocolError, match="no room for 1 bytes in the memory lane, 0 are free"):
        lane.empty((), np.uint8)
    view = arrays[1][5:]
    del arrays[1], arrays[1]
    assert lane.empty(MIB, np.uint8).shape == (MIB,)
    del view
    assert lane.empty((2, MIB), np.uint8).shape == (2, MIB)
    assert lane.empty((0, 3), np.float32).shape == (0, 3)


def test_what_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="at least 1048576 bytes"):
        MemoryLane(request_bytes=5)
    lane = MemoryLane(request_bytes=MIB, answer_bytes=MIB)
    with pytest.raises(LocalProtocolError, match="objects have no place"):
        lane.empty(3, object)
    with pytest.raises(LocalProtocolError, match="no room"):
        lane.empty((1 << 40, 1 << 40), np.float64)
    with pytest.raises(LocalProtocolError, match="only the server of a Unix socket"):
        Client("http://localhost:8000", memory_lane=lane)


def test_the_descriptor_is_closed() -> None:
    gc.collect()  # of other tests
    before = _memory_files()
    lane = MemoryLane(request_bytes=MIB, answer_bytes=MIB)
    assert _memory_files() > before
    gone = weakref.ref(lane)
    del lane
    gc.collect()
    assert gone() is None
    assert _memory_files() == before


def _memory_files() -> int:
    return sum(name.startswith("/memfd:") for name in open_descriptors(os.getpid()))


# Servers that cheat

_OPENED = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def _answer(places: str, datatype: str = "FP32", shape: int = 100, nbytes: int = 400) -> bytes:
    text = b'{"model_name":"m","outputs":[{"name":"y","datatype":"%b","shape":[%d],'
    text += b'"parameters":{"binary_data_size":%d}}]}'
    text %= (datatype.encode(), shape, nbytes)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nInference-Header-Content-Length: {len(text)}\r\n"
    return f"{head}Tensor-Memory: {places}\r\n\r\n".encode() + text


@contextmanager
def cheating(answer: bytes, act: Callable[[np.ndarray[Any, Any]], object] = lambda _: None) -> Iterator[str]:
    """Run a server that accepts each lane, and answers each request with these bytes."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen(1)

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                _, descriptors, _ = receive_descriptors(sock, 4096, 2)
                octets = map_memory(descriptors[1], os.fstat(descriptors[1]).st_size, is_written=True)[1]
                close_all(descriptors)
                sock.sendall(_OPENED)
                sock.recv(1 << 16)
                act(octets)
                sock.sendall(answer)
                sock.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http+unix://{quote(folder, safe='')}%2Fsocket"
        thread.join(60)


@pytest.mark.parametrize(
    "answer",
    [
        _answer("a2097152"),
        _answer("a2096800"),
        _answer("r2097152"),
        _answer("r400000"),
        _answer("a0, a0"),
        _answer("x0"),
        _answer("a0", nbytes=399),
        _answer("a0", nbytes=1 << 62, shape=1 << 60),
        _answer("a0", "BOOL", 400),
        _answer("a0", "BYTES", 1),
    ],
)
def test_answers_that_are_refused(lane: MemoryLane, answer: bytes) -> None:
    with (
        cheating(answer, lambda octets: octets.fill(255)) as url,
        Client(url, memory_lane=lane) as client,
        pytest.raises(RemoteProtocolError),
    ):
        client.infer("m", {"x": X})


@pytest.mark.parametrize(("places", "value"), [("a0", 7.0), ("a64", 7.0), ("a1000000", 7.0), ("r4", 1.0)])
def test_answers_that_are_accepted(lane: MemoryLane, places: str, value: float) -> None:
    act = lambda octets: octets.view(np.float32).fill(7)  # noqa: E731 - an argument
    with cheating(_answer(places), act) as url, Client(url, memory_lane=lane) as client:
        assert client.infer("m", {"x": X})["y"][0] == value


# Nothing is left

_KILLED = """
import sys, numpy as np
from streamcodec.client import Client, MemoryLane
lane = MemoryLane(request_bytes=4 << 20, answer_bytes=4 << 20)
with Client(sys.argv[1], memory_lane=lane) as client:
    x = lane.empty(100_000, np.float32)
    print("ready", flush=True)
    while True:
        client.infer("negative", {"x": x})
"""


@pytest.mark.slow
def test_nothing_is_left_after_a_thousand_exchanges_and_killed_clients() -> None:
    """In a server of its own: no descriptor, no mapping, and room for as many lanes as before."""
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/socket"
        command = [sys.executable, "-m", "streamcodec", "serve", f"{__name__}:models", "--no-access-log"]
        command += ["--uds", place, "--memory-lane", "16M"]
        url = f"http+unix://{quote(place, safe='')}"
        with subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()
                before = _exchanged(url, process.pid, 10)
                for _ in range(5):
                    _kill_a_client(url, process.pid)
                assert _exchanged(url, process.pid, 1000) == before
            finally:
                process.terminate()


def _exchanged(url: str, pid: int, count: int) -> list[str]:
    lane = MemoryLane(request_bytes=8 * MIB, answer_bytes=8 * MIB)  # all that the server has for lanes
    for _ in range(2):
        with Client(url, memory_lane=lane) as client:
            for _ in range(count // 2):
                client.infer("negative", {"x": X})
        assert eventually(lambda: mapped_bytes(pid) == 0)
    assert lane.calls == count
    return [name for name in open_descriptors(pid) if not name.startswith("socket")]


def _kill_a_client(url: str, pid: int) -> None:
    with subprocess.Popen([sys.executable, "-c", _KILLED, url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert eventually(lambda: mapped_bytes(pid) > 0)
        process.kill()
    assert eventually(lambda: mapped_bytes(pid) == 0)
