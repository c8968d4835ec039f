"""The two programs of the benchmark `robot`: the robot, and its policy.

Each imports only what it uses, at its first use, because its memory is measured.

    python -m tests.benchmarks.robot_program SIDE TRANSPORT CODEC PATH COUNT
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Protocol

from tests.processes import peak_resident

HZ: Final = 50
_WARM_UP: Final = 10
_LENGTH_BYTES: Final = 8
_FRAGMENT_BYTES: Final = 128 << 10

Arrays = Mapping[str, Any]
Data = bytes | bytearray | memoryview


class Link(Protocol):
    """One side of a connection."""

    def send(self, arrays: Arrays) -> None: ...

    def receive(self) -> Arrays: ...


class FramesOverSocket:
    """Frames, whose heads have their lengths."""

    def __init__(self, sock: socket.socket, *, is_robot: bool) -> None:
        from streamcodec.formats.frame import HEAD_BYTES, WholeFrames  # noqa: PLC0415 - memory is measured

        self._sock = sock
        self._encode, make_decoder = frame_codec(is_robot=is_robot)
        self._frames = WholeFrames(make_decoder)
        self._head = bytearray(HEAD_BYTES)

    def send(self, arrays: Arrays) -> None:
        buffers = [*self._encode(arrays).buffers]
        while buffers:
            sent = self._sock.sendmsg(buffers)
            while buffers and sent >= len(buffers[0]):
                sent -= len(buffers.pop(0))
            if sent:
                buffers[0] = memoryview(buffers[0])[sent:]

    def receive(self) -> Arrays:
        head = self._head
        read(self._sock, head)
        data = bytearray(self._frames.length_of(head))
        data[: len(head)] = head
        read(self._sock, data, len(head))
        return self._frames.read(data).arrays


class Framed:
    """Messages that are bytes, over a socket: the length comes first."""

    def __init__(self, sock: socket.socket, dumps: Callable[[Arrays], Data], loads: Callable[[Data], Arrays]) -> None:
        self._sock, self._dumps, self._loads = sock, dumps, loads

    def send(self, arrays: Arrays) -> None:
        data = self._dumps(arrays)
        self._sock.sendall(len(data).to_bytes(_LENGTH_BYTES, "little"))
        self._sock.sendall(data)

    def receive(self) -> Arrays:
        data = bytearray(_LENGTH_BYTES)
        read(self._sock, data)
        data = bytearray(int.from_bytes(data, "little"))
        read(self._sock, data)
        return self._loads(data)


def read(sock: socket.socket, data: bytearray, position: int = 0) -> None:
    """Read until the memory is full."""
    with memoryview(data) as view:
        while position < len(view):
            received = sock.recv_into(view[position:], 0, socket.MSG_WAITALL)
            if not received:
                raise EOFError
            position += received


class OverWebSocket:
    """Messages over a WebSocket, whose library returns `bytes`. With fragments, both sides work at the same time."""

    def __init__(self, sock: Any, dumps: Callable[[Arrays], Data], loads: Callable[[Data], Arrays]) -> None:  # noqa: ANN401 - of either side
        self._sock, self._dumps, self._loads = sock, dumps, loads

    def send(self, arrays: Arrays) -> None:
        data = memoryview(self._dumps(arrays))
        starts = range(0, len(data), _FRAGMENT_BYTES)
        self._sock.send([data[start : start + _FRAGMENT_BYTES] for start in starts] if len(starts) > 1 else data)

    def receive(self) -> Arrays:
        return self._loads(self._sock.recv())


def frame_codec(*, is_robot: bool) -> tuple[Callable[[Arrays], Any], Callable[..., Any]]:
    """Return what encodes the messages of one side, and what makes a decoder for those of the other."""
    from streamcodec import encode_request, encode_response  # noqa: PLC0415 - see `FramesOverSocket`
    from streamcodec.formats import frame  # noqa: PLC0415

    def encode(arrays: Arrays) -> Any:  # noqa: ANN401 - a `Message`, whose import costs memory
        if is_robot:
            return frame.encode_frame(encode_request(arrays), frame.Kind.REQUEST, frame.Checksum.NONE)
        message = encode_response(arrays, model_name="policy")
        return frame.encode_frame(message, frame.Kind.RESPONSE, frame.Checksum.NONE)

    return encode, frame.response_frame_decoder if is_robot else frame.request_frame_decoder


def bytes_codec(codec: str, *, is_robot: bool) -> tuple[Callable[[Arrays], Data], Callable[[Data], Arrays]]:
    """Return the functions that make one piece of bytes of arrays, and arrays of it."""
    if codec == "pickle":
        import pickle  # noqa: PLC0415

        return partial(pickle.dumps, protocol=5), pickle.loads
    if codec == "msgpack-numpy":
        import msgpack_numpy  # noqa: PLC0415

        return msgpack_numpy.packb, msgpack_numpy.unpackb
    encode, make_decoder = frame_codec(is_robot=is_robot)
    from streamcodec.formats.frame import WholeFrames  # noqa: PLC0415

    frames = WholeFrames(make_decoder)
    return lambda arrays: b"".join(encode(arrays).buffers), lambda data: frames.read(data).arrays


def link(transport: str, codec: str, sock: Any, *, is_robot: bool) -> Link:  # noqa: ANN401 - a socket of either kind
    """Return one side of a connection."""
    if transport == "WebSocket":
        return OverWebSocket(sock, *bytes_codec(codec, is_robot=is_robot))
    if codec == "frames":
        return FramesOverSocket(sock, is_robot=is_robot)
    return Framed(sock, *bytes_codec(codec, is_robot=is_robot))


@contextmanager
def connected(transport: str, path: str) -> Iterator[Any]:
    """Connect to the policy."""
    with (
        socket.socket(socket.AF_UNIX)
        if transport != "WebSocket"
        else socket.create_connection(("127.0.0.1", int(path))) as sock
    ):
        if transport != "WebSocket":
            sock.connect(path)
            yield sock
            return
        from websockets.sync.client import connect  # noqa: PLC0415

        with connect("ws://policy", sock=sock, compression=None) as web_socket:
            yield web_socket


def policy(transport: str, codec: str, path: str) -> None:
    """Answer one robot until it leaves; print the address first, and the figures at the end."""
    import numpy as np  # noqa: PLC0415

    cpu = 0.0

    def answer(sock: Any) -> None:  # noqa: ANN401 - a socket of either kind
        nonlocal cpu
        ours = link(transport, codec, sock, is_robot=False)
        while True:
            observation = ours.receive()
            if not cpu:
                cpu = time.process_time()  # without what the first one imports
            mean = sum(float(observation[f"image_{index}"][::64, ::64].mean()) for index in range(3))
            ours.send({"action": np.full((16, 7), mean + float(observation["state"][0]), np.float32)})

    address, serve = listening(transport, path, answer)
    print(address, flush=True)
    serve()
    print(json.dumps({"cpu": time.process_time() - cpu, "peak": peak_resident(os.getpid())}), flush=True)


def listening(transport: str, path: str, answer: Callable[[Any], None]) -> tuple[str, Callable[[], None]]:
    """Listen; return the address, and what serves one connection."""
    if transport == "WebSocket":
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415
        from websockets.sync.server import serve  # noqa: PLC0415

        has_left = threading.Event()

        def answer_until_closed(sock: Any) -> None:  # noqa: ANN401 - a `ServerConnection`
            try:
                answer(sock)
            except ConnectionClosed:
                has_left.set()

        server = serve(answer_until_closed, "127.0.0.1", 0, compression=None)

        def serve_socket() -> None:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            has_left.wait()
            server.shutdown()

        return str(server.socket.getsockname()[1]), serve_socket
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve_one() -> None:
        sock, _ = listener.accept()
        with listener, sock:
            try:
                answer(sock)
            except EOFError:
                return

    return path, serve_one


def robot(transport: str, codec: str, path: str, count: int) -> None:
    """Ask as often as `count`, at the rate of a robot; print the figures."""
    import numpy as np  # noqa: PLC0415

    with connected(transport, path) as sock:
        ours = link(transport, codec, sock, is_robot=True)
        images = [np.empty((224, 224, 3), np.uint8) for _ in range(3)]
        latencies, cpu = [], 0.0
        due = time.perf_counter()
        for number in range(_WARM_UP + count):
            due += 1 / HZ
            time.sleep(max(0.0, due - time.perf_counter()))
            for image in images:
                image[:] = number % 200  # what a camera does
            state = np.full(32, number, np.float32)
            observation = {f"image_{index}": image for index, image in enumerate(images)} | {"state": state}
            if number == _WARM_UP:
                cpu = time.process_time()
            began = time.perf_counter()
            ours.send(observation)
            action = ours.receive()["action"]
            latencies.append(time.perf_counter() - began)
            if action.shape != (16, 7) or action[0, 0] != 3 * (number % 200) + number:
                raise SystemExit("the answer is wrong")
        found = {
            "latencies": latencies[_WARM_UP:],
            "cpu": time.process_time() - cpu,
            "peak": peak_resident(os.getpid()),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    _side, _transport, _codec, _path, _count = sys.argv[1:]
    if _side == "policy":
        policy(_transport, _codec, _path)
    else:
        robot(_transport, _codec, _path, int(_count))
