"""The guard between real sockets: what passes, what is refused, and what servers behind it may do."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from streamcodec import Tensor, encode_request
from streamcodec.client import Client
from streamcodec.client.connections.timeouts import Timeout
from streamcodec.engine.record import replaced
from streamcodec.guard import GUARD_LIMITS
from tests.client.scripted import Step, hung_up, scripted
from tests.guard.serving import PATIENT, guarding, nobody
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, chunked, floats, head, infer_request, post

PATH = "/v2/models/identity/infer"
LIMITED = replaced(GUARD_LIMITS, max_tensor_bytes=100_000)


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def address(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A guard in front of our own server."""
    with (
        server_here(models()) as (_, (host, port)),
        guarding(f"http://{host}:{port}", backend=request.param) as guard,
    ):
        yield guard


def _read_some(sock: socket.socket) -> None:
    sock.recv(1 << 16)


def _read(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        pass


def test_an_inference_passes(address: tuple[str, int]) -> None:
    with Wire(address) as wire:
        for _ in range(2):
            assert floats(wire.send(infer_request()).response()) == [0.0, 1.0, 2.0, 3.0]
        whole = infer_request()
        body = whole.partition(b"\r\n\r\n")[2]
        fields = [line for line in whole.decode("latin-1").split("\r\n") if line.startswith("Inference")]
        wire.send(head(PATH, *fields, "Transfer-Encoding: chunked"), chunked(body, [5, 70]))
        assert floats(wire.response()) == [0.0, 1.0, 2.0, 3.0]
        assert wire.send(GET_LIVE).response().document == {"live": True}


def test_large_and_many_tensors_pass(address: tuple[str, int]) -> None:
    rng = np.random.default_rng(1)
    with Client(f"http://{address[0]}:{address[1]}") as client:
        x = rng.random(700_001, np.float32)
        texts = np.array([b"a" * n for n in range(1000)], object)
        bools = rng.random(100_003) < 0.5
        result = client.infer("identity", {"x": x, "t": texts, "b": bools})
        assert np.array_equal(result["x"], x)
        assert np.array_equal(result["t"], texts)
        assert np.array_equal(result["b"], bools)
        assert client.infer("identity", {"j": x[:9]}, is_binary=False)["j"].tolist() == x[:9].tolist()
        assert client.model_metadata("identity")


def test_100_continue(address: tuple[str, int]) -> None:
    whole = infer_request()
    beginning, _, body = whole.partition(b"\r\n\r\n")
    with Wire(address) as wire:
        wire.send(beginning + b"\r\nExpect: 100-continue\r\n\r\n")
        assert wire.response(has_body=False).status == 100
        assert floats(wire.send(body).response()) == [0.0, 1.0, 2.0, 3.0]


REFUSED = {
    "no JSON": (post(b"nonsense"), 400),
    "no body": (post(b""), 400),
    "two lengths": (head(PATH, "Content-Length: 2", "Content-Length: 3") + b"{}", 400),
    "length and chunks": (head(PATH, "Content-Length: 2", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
    "a number with a sign": (head(PATH, "Content-Length: 2", "Inference-Header-Content-Length: +2") + b"{}", 400),
    "a header longer than the body": (
        head(PATH, "Content-Length: 2", "Inference-Header-Content-Length: 3") + b"{}",
        400,
    ),
    "a large header": (head(PATH, "Content-Length: 9000000", "Inference-Header-Content-Length: 8000000"), 413),
    "raw without a length": (
        head(PATH, "Transfer-Encoding: chunked", "Inference-Header-Content-Length: 0") + b"0\r\n\r\n",
        411,
    ),
    "another spelling": (head("/v2//models/identity/infer", "Content-Length: 2") + b"{}", 400),
    "a line end behind it": (head(f"{PATH}%0A", "Content-Length: 2") + b"{}", 400),
    "another scheme": (head(f"x:{PATH}", "Content-Length: 2") + b"{}", 400),
    "no slash": (head(f"0{PATH}", "Content-Length: 2") + b"{}", 400),
    "dots": (head(f"/../x{PATH}", "Content-Length: 2") + b"{}", 400),
    "other letters": (head("/v2/models/identity/Infer", "Content-Length: 2") + b"{}", 404),
    "an extension": (head("/v2/logging", "Content-Length: 2") + b"{}", 403),
    "another method": (head("/v2/health/live", "Content-Length: 0"), 405),
    "a large document": (head("/v2/repository/index", "Content-Length: 9000000"), 413),
    "a large document in chunks": (
        head("/v2/repository/index", "Transfer-Encoding: chunked") + chunked(bytes((1 << 20) + 1), []),
        413,
    ),
    "PUT": (head(PATH, "Content-Length: 2", method="PUT") + b"{}", 405),
    "an unknown coding": (head(PATH, "Content-Length: 2", "Content-Encoding: br") + b"{}", 415),
}


@pytest.fixture(scope="module")
def alone() -> Iterator[tuple[str, int]]:
    """A guard with nobody behind it."""
    with guarding(nobody(), allowed=["repository"]) as guard:
        yield guard


@pytest.mark.parametrize(("request_", "status"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_does_not_reach_the_server_behind(request_: bytes, status: int, alone: tuple[str, int]) -> None:
    with Wire(alone) as wire:
        answer = wire.send(request_).response()
        assert answer.status == status
        assert answer.error
    with Wire(alone) as wire:
        assert wire.send(infer_request()).response().status == 502


def test_a_wrong_byte_ends_the_request_to_the_server_behind() -> None:
    came: list[bytes] = []

    def collect(sock: socket.socket) -> None:
        while chunk := sock.recv(1 << 16):
            came.append(chunk)

    message = encode_request([Tensor(name="b", array=np.zeros(1 << 20, np.bool_))])
    body = bytearray(b"".join(message.buffers))
    body[-1] = 2
    fields = [f"{name}: {value}" for name, value in message.headers]
    with scripted([collect]) as server, guarding(server.url) as guard, Wire(guard) as wire:
        answer = wire.send(head(PATH, *fields), bytes(body)).response()
        assert answer.status == 400
        assert "BOOL" in answer.error
        assert server.has_closed()
    passed = b"".join(came)
    assert passed.startswith(b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: 127.0.0.1:")
    assert len(passed.partition(b"\r\n\r\n")[2]) < len(body)


def test_a_wrong_element_behind_the_first_piece() -> None:
    texts = np.array([b"x" * 1000] * 1000, object)
    message = encode_request([Tensor(name="t", array=texts)])
    body = bytearray(b"".join(message.buffers))
    place = (message.header_length or 0) + 1004 * 800
    body[place : place + 4] = struct.pack("<I", 1 << 31)
    fields = [f"{name}: {value}" for name, value in message.headers]
    with (
        scripted([_read]) as server,
        guarding(server.url) as guard,
        Wire(guard) as wire,
    ):
        answer = wire.send(head(PATH, *fields), bytes(body)).response()
        assert answer.status == 400
        assert "element 800 of 1000 declares" in answer.error
        assert server.has_closed()


ANSWER = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (b"", 502),
        (b"nonsense\r\n\r\n", 502),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", 502),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 502),
        (hung_up, 504),
    ],
)
def test_servers_that_do_not_answer(step: Step, status: int) -> None:
    timeout = Timeout(connect=60, read=0.3, write=60, pool=60) if status == 504 else PATIENT
    with (
        scripted([step] if step != b"" else [_read_some]) as server,
        guarding(server.url, timeout=timeout) as guard,
    ):
        with Wire(guard) as wire:
            answer = wire.send(GET_LIVE).response()
        assert answer.status == status
        assert "server behind" in answer.error


def test_a_short_answer_that_breaks_off_is_not_passed_on() -> None:
    with (
        scripted([ANSWER + b"Content-Length: 9\r\n\r\nabc"]) as server,
        guarding(server.url) as guard,
        Wire(guard) as wire,
    ):
        assert wire.send(GET_LIVE).response().status == 502


@pytest.mark.parametrize(
    "answer",
    [
        ANSWER + b"Content-Length: 300000\r\n\r\nabc",
        ANSWER + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ],
)
def test_an_answer_that_breaks_off_does_not_look_complete(answer: bytes) -> None:
    with scripted([answer]) as server, guarding(server.url) as guard, Wire(guard) as wire:
        wire.send(GET_LIVE)
        came = b""
        while chunk := wire.sock.recv(1 << 16):
            came += chunk
        assert b"abc" in came
        assert not came.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (ANSWER + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n"),
        (ANSWER + b"\r\nabc", b"3\r\nabc\r\n0\r\n\r\n"),
        (ANSWER + b"Content-Encoding: br\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
    ],
)
def test_answers_of_every_framing_pass(answer: bytes, body: bytes) -> None:
    with scripted([answer]) as server, guarding(server.url) as guard, Wire(guard) as wire:
        wire.send(GET_LIVE.replace(b"Host", b"Connection: close\r\nHost"))
        came = b""
        while chunk := wire.sock.recv(1 << 16):
            came += chunk
        assert came.partition(b"\r\n\r\n")[2] == body


def test_an_answer_before_the_end_of_the_request() -> None:
    refusal = b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 2\r\n\r\n{}"
    message = encode_request([Tensor(name="x", array=np.zeros(1 << 20, np.uint8))])
    fields = [f"{name}: {value}" for name, value in message.headers]

    def refuse(sock: socket.socket) -> None:
        sock.recv(10)
        sock.sendall(refusal)
        while sock.recv(1 << 16):
            pass

    with scripted([refuse]) as server, guarding(server.url) as guard, Wire(guard) as wire:
        wire.send(head(PATH, *fields), b"".join(message.buffers)[:100_000])
        answer = wire.response()
        assert (answer.status, answer.body, answer.is_last) == (413, b"{}", True)
        assert server.has_closed()


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


@pytest.mark.parametrize("is_chunked", [False, True], ids=["until the end", "chunks"])
def test_a_stream_of_events_passes_without_delay(is_chunked: bool) -> None:
    gone = threading.Semaphore(0)

    def stream(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(EVENTS + (b"Transfer-Encoding: chunked\r\n\r\n" if is_chunked else b"\r\n"))
        for _ in range(3):
            sock.sendall(b"8\r\ndata: 1\n\r\n" if is_chunked else b"data: 1\n")
            assert gone.acquire(timeout=60)

    with scripted([stream]) as server, guarding(server.url) as guard, Wire(guard) as wire:
        wire.send(GET_LIVE)
        came = b""
        for number in range(3):
            while came.count(b"data: 1\n") <= number:
                came += wire.sock.recv(1 << 16)
            gone.release()


def test_raw_requests_pass_and_are_limited() -> None:
    came: list[bytes] = []

    def answer(sock: socket.socket) -> None:
        while not b"".join(came).endswith(bytes(100_000)):
            came.append(sock.recv(1 << 16))
        sock.sendall(ANSWER + b"Content-Length: 0\r\n\r\n")

    with scripted([answer]) as server, guarding(server.url, limits=LIMITED) as guard, Wire(guard) as wire:
        fields = ("Content-Length: 100000", "Inference-Header-Content-Length: 0")
        assert wire.send(head(PATH, *fields), bytes(100_000)).response().status == 200
        assert b"\r\nInference-Header-Content-Length: 0\r\nContent-Length: 100000\r\n" in b"".join(came)
        fields = ("Content-Length: 100001", "Inference-Header-Content-Length: 0")
        assert wire.send(head(PATH, *fields)).response().status == 413


def test_a_body_that_ends_too_early() -> None:
    whole = infer_request(count=200_000)
    with scripted([_read]) as server, guarding(server.url) as guard, Wire(guard) as wire:
        wire.send(whole[:700_000])
        wire.sock.shutdown(socket.SHUT_WR)
        assert wire.response().status == 400
        assert server.has_closed()


def test_a_body_without_tensors_is_awaited_to_its_end(alone: tuple[str, int]) -> None:
    body = b'{"inputs":[]}'
    for end, status in ((b"0\r\n\r\n", 502), (b"x\r\n", 400)):
        with Wire(alone) as wire:
            length = f"Inference-Header-Content-Length: {len(body)}"
            wire.send(head(PATH, "Transfer-Encoding: chunked", length), b"%x\r\n%b\r\n" % (len(body), body), end)
            assert wire.response().status == status


def _poured(sock: socket.socket, most: int) -> int:
    """Send until nobody takes any more, and return how much was sent."""
    sent, zeros = 0, bytes(1 << 16)
    try:
        while sent < most:
            sent += sock.send(zeros)
    except TimeoutError:
        pass
    return sent


@pytest.mark.slow
def test_a_server_that_does_not_read_holds_up_the_client() -> None:
    message = encode_request([Tensor(name="x", array=np.zeros(256 << 20, np.uint8))])
    fields = [f"{name}: {value}" for name, value in message.headers]
    with socket.create_server(("127.0.0.1", 0)) as never:
        url = f"http://127.0.0.1:{never.getsockname()[1]}"
        with guarding(url, timeout=Timeout(connect=60, read=1, write=1, pool=60)) as guard, Wire(guard) as wire:
            wire.send(head(PATH, *fields), bytes(next(iter(message.buffers))))
            wire.sock.settimeout(0.3)
            assert _poured(wire.sock, 256 << 20) < 32 << 20  # what the sockets between them hold
            wire.sock.settimeout(60)
            assert wire.response().status == 504


@pytest.mark.slow
def test_answers_are_not_read_faster_than_the_client_reads() -> None:
    sent: list[int] = []

    def answer(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(ANSWER + b"Content-Length: %d\r\n\r\n" % (256 << 20))
        sock.settimeout(0.3)
        sent.append(_poured(sock, 256 << 20))

    with scripted([answer]) as server, guarding(server.url) as guard, Wire(guard) as wire:
        wire.send(GET_LIVE)
        assert server.has_closed()
        assert sent[0] < 32 << 20
