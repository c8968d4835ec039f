"""The memory lane of the bundled server: what is refused, what a client that cheats can do, and what is left behind."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import LocalProtocolError
from streamcodec.server import Server, ServerOptions, open_listener, open_unix_listener
from streamcodec.server.connection import lanes
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service
from streamcodec.transports.sockets.memfd import close_all, new_memory, send_descriptors
from tests.processes import announced
from tests.server.lanes import MIB, OPENING, LaneWire, eventually, head, mapped_bytes, offered, open_descriptors
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, floats, infer_request
from tests.transports.test_memfd import WRONG

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files exist on Linux only")

X = np.arange(1000, dtype=np.float32)
OPTIONS = ServerOptions(max_lane_bytes=16 * MIB, idle_timeout=60, read_timeout=60)
_KEPT: list[np.ndarray[Any, Any]] = []
_RELEASE = threading.Event()


def _echo(request: InferenceRequest) -> dict[str, Any]:
    return dict(request.inputs)


async def _later(request: InferenceRequest) -> dict[str, Any]:
    return {"y": -request.inputs["x0"]}


async def _wrong(_: InferenceRequest) -> dict[str, Any]:
    return {"y": object()}


def _keep(request: InferenceRequest) -> dict[str, Any]:
    _KEPT.append(request.inputs["x0"])
    return {"y": X[:1]}


def _wait(request: InferenceRequest) -> dict[str, Any]:
    _RELEASE.wait(60)
    return {"y": request.inputs["x0"] + 1}


def models() -> ModelRegistry:
    return ModelRegistry.of(
        [
            Model(name="m", predict=_echo),
            Model(name="identity", predict=_echo),
            Model(name="shared", predict=_echo, shared_inputs=True),
            Model(name="later", predict=_later),
            Model(name="later-shared", predict=_later, shared_inputs=True),
            Model(name="wrong", predict=_wrong),
            Model(name="wrong-shared", predict=_wrong, shared_inputs=True),
            Model(name="keep", predict=_keep, shared_inputs=True),
            Model(name="wait", predict=_wait, shared_inputs=True),
        ]
    )


class _Process:
    """A server in a process of its own: what its clients cheat it with must not end it."""

    pid = 0


@pytest.fixture(scope="module")
def path() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/socket"
        command = [sys.executable, "-m", "streamcodec", "serve", f"{__name__}:models", "--no-access-log"]
        command += ["--uds", place, "--memory-lane", "16M", "--max-memory", "256M"]
        with subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True) as process:
            _Process.pid = process.pid
            try:
                assert announced(process.stdout or ())
                with Wire(place) as wire:  # the event loop opens a descriptor of its own at its first connection
                    assert wire.send(GET_LIVE).response().status == 200
                yield place
                assert process.poll() is None
                assert eventually(lambda: mapped_bytes(process.pid) == 0)
            finally:
                process.terminate()


@contextmanager
def _served(options: ServerOptions = OPTIONS, backend: str = "asyncio") -> Iterator[tuple[Server, str]]:
    """Run a server; at its end nothing of any lane is left."""
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/socket"
        with server_here(models(), options, backend=backend, listener=open_unix_listener(place)) as (server, _):
            yield server, place
            _KEPT.clear()
            _RELEASE.set()
            assert eventually(lambda: server.reserved_bytes == 0)
            _RELEASE.clear()


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("model", ["identity", "shared"])
def test_there_and_back(backend: str, model: str) -> None:
    with _served(backend=backend) as (server, place), LaneWire(place) as wire:
        assert wire.opened.status == 200
        assert wire.opened.document == {"memory_lane": 1}
        assert wire.opened.fields["memory-lane"] == "1"
        assert server.reserved_bytes == 2 * MIB
        for _ in range(3):
            found = wire.infer(model, X, start=64)
            assert found.fields["tensor-memory"] == ("r64" if model == "shared" else "a0")
            memory = wire.requests[64:] if model == "shared" else wire.answers[:]
            assert memory[: X.nbytes] == X.tobytes()
            assert floats(wire.send(infer_request("identity", count=5)).response()) == list(range(5))
            assert wire.send(GET_LIVE).response().status == 200


@pytest.mark.parametrize("model", ["later", "later-shared"])
def test_models_that_are_async(path: str, model: str) -> None:
    with LaneWire(path) as wire:
        assert wire.infer(model, X).fields["tensor-memory"] == "a0"
        assert wire.answers[: X.nbytes] == (-X).tobytes()
        found = wire.infer(model, np.array([True]))
        assert found.status == 500  # the negative of a bool
        wire.infer(model, np.array([True]))
        text = b'{"inputs":[{"name":"x0","datatype":"BOOL","shape":[1],"parameters":{"binary_data_size":1}}]}'
        wire.requests[0] = 2
        assert wire.send(head(model, text, "0", "0, 64")).response().status == 400
    _at_rest()


@pytest.mark.parametrize("model", ["wrong", "wrong-shared"])
def test_async_models_whose_answer_cannot_be_sent(path: str, model: str) -> None:
    with LaneWire(path) as wire:
        assert wire.infer(model, X).status == 500
    _at_rest()


def test_others_are_served_as_without_lanes(path: str) -> None:
    with Wire(path) as wire:
        assert floats(wire.send(infer_request("identity")).response()) == list(range(4))
        assert wire.send(GET_LIVE * 2).response().status == 200


# Descriptors


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("place", [0, 1])
def test_memory_that_is_refused(path: str, kind: str, place: int) -> None:
    make, _ = WRONG[kind]
    descriptors = [new_memory(MIB, seals_writing=True)[0], new_memory(MIB, seals_writing=False)[0]]
    os.close(descriptors[place])
    descriptors[place] = make()
    with Wire(path) as wire:
        wire.send(GET_LIVE)
        wire.response()
        before = _at_rest()
        with Wire(path) as other:
            found = offered(other, descriptors)
            if kind == "may have holes" and place == 1:  # as it must be
                assert found.status == 200
            elif kind == "too large":
                assert found.status == (400 if place else 200)
            else:
                assert (found.status, "the memory that came" in found.error) == (400, True)
            assert other.send(GET_LIVE).response().status == 200
            assert other.send(head("m", b"{}", "0", "0, 64")).response().status in {200, 400}
        for descriptor in descriptors:
            os.close(descriptor)
        assert eventually(lambda: _of_server() == before)


def _at_rest() -> Counter[str]:
    """The descriptors of the server when no lane is left.

    It may be reading a file of the system, on a busy machine for several samples. So what is not in all is left out.
    """
    assert eventually(lambda: mapped_bytes(_Process.pid) == 0)
    found = _of_server()
    for _ in range(20):
        time.sleep(0.01)
        found &= _of_server()
    return found


def _of_server() -> Counter[str]:
    """The descriptors of the server, without its connections."""
    return Counter(name for name in open_descriptors(_Process.pid) if not name.startswith("socket"))


@pytest.mark.parametrize("count", [0, 1, 3, 253])
def test_a_lane_has_two_descriptors(path: str, count: int) -> None:
    before = _at_rest()
    descriptors = [new_memory(MIB, seals_writing=True)[0] for _ in range(count)]
    with Wire(path) as wire:
        found = offered(wire, descriptors)
        assert (found.status, found.error) == (
            400,
            "a lane is opened with 2 descriptors, sent together with the first byte",
        )
        assert wire.send(GET_LIVE).response().status == 200
    for descriptor in descriptors:
        os.close(descriptor)
    assert eventually(lambda: _of_server() == before)


def test_descriptors_anywhere_else_are_closed_by_the_system(path: str) -> None:
    """With each byte of a request, and of one after a lane has been opened."""
    before = _at_rest()
    null = os.open("/dev/null", os.O_RDONLY)
    for opens in (False, True):
        with LaneWire(path) if opens else Wire(path) as wire:
            for byte in GET_LIVE:
                send_descriptors(wire.sock, bytes([byte]), [null] * 5)
            assert wire.response().status == 200
            if isinstance(wire, LaneWire):
                assert wire.infer("identity", X).status == 200
    os.close(null)
    assert eventually(lambda: _of_server() == before)


@pytest.mark.parametrize(
    "opening",
    [
        OPENING[:-2] + b"Content-Length: 2\r\n\r\n{}",
        OPENING + GET_LIVE,
        OPENING.replace(b"1.1", b"1.0"),
        OPENING.replace(b"lane ", b"lane/ "),
        OPENING.replace(b"lane ", b"lane?x "),
        OPENING.replace(b"Host: x\r\n", b""),
        OPENING.replace(b"Host", b"X-Long: " + b"x" * 5000 + b"\r\nHost"),
    ],
)
def test_what_is_no_opening_is_an_ordinary_request(path: str, opening: bytes) -> None:
    before = _at_rest()
    descriptors = [new_memory(MIB, seals_writing=True)[0], new_memory(MIB, seals_writing=False)[0]]
    with Wire(path) as wire:
        assert offered(wire, descriptors, opening).status in {400, 404}
    for descriptor in descriptors:
        os.close(descriptor)
    assert eventually(lambda: _of_server() == before)


def test_an_opening_comes_with_one_write(path: str) -> None:
    with Wire(path) as wire:
        wire.send(OPENING[:20])
        time.sleep(0.1)
        assert wire.send(OPENING[20:]).response().status == 404


def test_another_version_is_refused(path: str) -> None:
    with LaneWire(path, opening=OPENING.replace(b": 1", b": 2")) as wire:
        assert (wire.opened.status, "Memory-Lane must be 1" in wire.opened.error) == (400, True)
        assert wire.infer("identity", X).status == 400


def test_the_same_memory_again(path: str) -> None:
    """Memory for requests may serve several connections. That for answers belongs to one: it is sealed by then."""
    first, requests = new_memory(MIB, seals_writing=True)
    answers = [new_memory(MIB, seals_writing=False)[0] for _ in range(2)]
    with Wire(path) as one, Wire(path) as two, Wire(path) as three:
        assert offered(one, [first, answers[0]]).status == 200
        found = offered(two, [first, answers[0]])
        assert (found.status, "must not be sealed further" in found.error) == (400, True)
        assert offered(three, [first, answers[1]]).status == 200
        assert offered(three, [first, answers[1]]).status == 404  # once for a connection
    for descriptor in (first, *answers):
        os.close(descriptor)
    assert len(requests) == MIB


# Clients that cheat


@pytest.mark.parametrize("model", ["identity", "shared"])
@pytest.mark.parametrize("array", [np.array([b"abc", b"de"] * 500, object), np.ones(5000, bool)], ids=["BYTES", "BOOL"])
def test_values_that_change_while_they_are_read(path: str, model: str, array: np.ndarray[Any, Any]) -> None:
    """Each verdict is one of the two that a copy of some moment gets, and an accepted answer is valid."""
    with LaneWire(path) as wire:
        text = wire.request(model, array)
        good = np.frombuffer(wire.requests, np.uint8)[:8192].copy()
        memory = np.frombuffer(wire.requests, np.uint8)[:8192]
        is_over = threading.Event()

        def change() -> None:
            while not is_over.is_set():
                memory[:4000] = 255
                memory[:4000] = good[:4000]

        thread = threading.Thread(target=change)
        thread.start()
        try:
            statuses = set()
            for _ in range(200):
                found = wire.send(text).response()
                statuses.add(found.status)
                if found.status == 200 and array.dtype == bool:
                    assert max(wire.answers[: array.size]) <= 1
                elif found.status == 200:
                    assert wire.answers[:4] == b"\x03\0\0\0"
        finally:
            is_over.set()
            thread.join()
        assert statuses <= {200, 400}
        assert wire.send(text).response().status == 200


def test_files_that_cannot_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of FUSE whose server does not answer: it holds up a thread, and after eight of them no lane is opened."""
    is_over = threading.Event()

    def close(descriptors: Iterable[int]) -> None:
        if threading.current_thread().name == "streamcodec closing":
            is_over.wait(60)
        close_all(descriptors)

    monkeypatch.setattr(lanes, "close_all", close)
    null = os.open("/dev/null", os.O_RDONLY)
    with _served() as (_, place):
        statuses = []
        for _ in range(10):
            with Wire(place) as wire:
                statuses.append(offered(wire, [null, null]).status)
                assert wire.send(GET_LIVE).response().status == 200
        assert statuses == [400] * 8 + [404] * 2
        is_over.set()
        with LaneWire(place) as wire:
            assert eventually(lambda: not any(each.name == "streamcodec closing" for each in threading.enumerate()))
        with LaneWire(place) as wire:
            assert wire.opened.status == 200
    os.close(null)


def test_random_clients(path: str) -> None:
    """Whatever descriptors and fields come, in whatever order, the server stays, and is left as it was before."""
    chance = random.Random(5)  # noqa: S311 - the same each time
    before = _at_rest()
    kinds = [make for make, _ in WRONG.values()]
    kinds += [lambda: new_memory(MIB, seals_writing=True)[0], lambda: new_memory(MIB, seals_writing=False)[0]] * 9
    numbers = ["0", "64", "1048512", "1048576", "-1", "9" * 19, "9" * 30, "x", ""]
    statuses = []
    for _ in range(150):
        with Wire(path) as wire:
            descriptors = [chance.choice(kinds)() for _ in range(chance.choice([0, 1, 2, 2, 2, 2, 3]))]
            statuses.append(offered(wire, descriptors).status)
            for _ in range(3):
                names = ", ".join(chance.choice(numbers) for _ in range(chance.randrange(1, 4)))
                room = f"{chance.choice(numbers)}, {chance.choice(numbers)}"
                nbytes = chance.choice([0, 1, 64, MIB, MIB + 1, 1 << 40, -1])
                text = b'{"inputs":[{"name":"x0","datatype":"UINT8","shape":[%d],"parameters":' % nbytes
                text += b'{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}' % nbytes
                request = head(chance.choice(["identity", "shared"]), text, names, room)
                send_descriptors(wire.sock, request, descriptors[: chance.randrange(3)])
                statuses.append(wire.response().status)
                if chance.random() < 0.2:
                    break
            for descriptor in descriptors:
                os.close(descriptor)
    assert {200, 400} <= set(statuses) <= {200, 400, 413, 503}
    assert eventually(lambda: _of_server() == before)


# The budget


def test_room_for_lanes_is_bounded() -> None:
    with _served(ServerOptions(max_lane_bytes=4 * MIB)) as (server, place):
        with LaneWire(place) as one, LaneWire(place) as two, LaneWire(place) as three:
            assert [each.opened.status for each in (one, two, three)] == [200, 200, 503]
            assert three.opened.fields["retry-after"] == "1"
            assert floats(three.send(infer_request("identity")).response()) == list(range(4))
            assert eventually(lambda: server.reserved_bytes == 4 * MIB)
        assert eventually(lambda: server.reserved_bytes == 0)
        with LaneWire(place) as wire:
            assert wire.opened.status == 200


def test_lanes_are_a_part_of_all_memory() -> None:
    with _served(ServerOptions(max_lane_bytes=4 * MIB, max_memory_bytes=MIB)) as (_, place), LaneWire(place) as wire:
        assert wire.opened.status == 503


def test_no_memory_can_be_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(12, "no memory")

    with _served() as (server, place):
        monkeypatch.setattr(lanes, "map_memory", fail)
        with LaneWire(place) as wire:
            assert wire.opened.status == 503
            assert server.reserved_bytes == 0
            assert wire.send(GET_LIVE).response().status == 200


# Lifetimes


def test_an_array_that_a_model_keeps_stays_and_counts() -> None:
    with _served() as (server, place):
        with LaneWire(place) as wire:
            assert wire.infer("keep", X).status == 200
        time.sleep(0.2)
        assert server.reserved_bytes == 2 * MIB
        assert _KEPT[0].tobytes() == X.tobytes()
        _KEPT.clear()
        assert eventually(lambda: server.reserved_bytes == 0)


def test_a_call_that_is_given_up_goes_on_with_its_memory() -> None:
    with _served(ServerOptions(max_lane_bytes=4 * MIB, model_timeout=0.1)) as (server, place):
        with LaneWire(place) as wire:
            assert wire.infer("wait", X).status == 504
        time.sleep(0.1)
        assert server.reserved_bytes >= 2 * MIB
        _RELEASE.set()
        assert eventually(lambda: server.reserved_bytes == 0)


def test_a_client_that_says_nothing_is_closed() -> None:
    options = ServerOptions(max_lane_bytes=4 * MIB, idle_timeout=0.2)
    with _served(options) as (_, place), Wire(place) as wire:
        assert wire.sock.recv(1) == b""


def test_stopping_while_a_client_says_nothing() -> None:
    with _served() as (_, place):
        wire = Wire(place)
        time.sleep(0.05)
    with wire:
        assert wire.sock.recv(1) == b""


# Where there is none


def test_a_server_without_the_option_refuses() -> None:
    with _served(ServerOptions()) as (_, place), LaneWire(place) as wire:
        assert wire.opened.status == 404
        assert wire.infer("identity", X).status == 400
        assert floats(wire.send(infer_request("identity")).response()) == list(range(4))


def test_there_is_none_on_tcp() -> None:
    with (
        server_here(models(), OPTIONS, listener=open_listener("127.0.0.1", 0)) as (_, address),
        Wire(address) as wire,
    ):
        assert wire.send(OPENING).response().status == 404


def test_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "HAS_MEMORY_FILES", False)
    with pytest.raises(LocalProtocolError, match="no memory files"):
        Server(Service(models()), OPTIONS)


@pytest.mark.parametrize("value", [-1, 1.5, True])
def test_options_that_are_refused(value: Any) -> None:  # noqa: ANN401 - whatever a user gives
    with pytest.raises(LocalProtocolError, match="max_lane_bytes must be an integer from 0 on"):
        ServerOptions(max_lane_bytes=value)
