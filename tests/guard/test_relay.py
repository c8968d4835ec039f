"""The relay: small requests that pass without a task, and every place at which the task goes on."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import anyio
import numpy as np
import pytest

from streamcodec import Tensor, encode_request
from streamcodec.guard import GUARD_LIMITS
from streamcodec.guard.link import Link
from streamcodec.guard.relaying import pump
from streamcodec.guard.relaying import relay as relay_module
from streamcodec.guard.relaying.pump import Pump, Readiness
from streamcodec.guard.relaying.relay import Relay
from streamcodec.guard.relaying.requests import PlainRequest
from streamcodec.guard.upstream import Held, Upstream
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.sockets.accepting import brings_health_check
from streamcodec.service import Ending
from streamcodec.transports.sockets.pipes import Pipes
from streamcodec.transports.sockets.system import send_some
from streamcodec.transports.turns import Turns
from tests.client.scripted import Step, hung_up, response, scripted
from tests.guard.serving import PATIENT, guarding
from tests.guard.test_observing import Records
from tests.server.wire import GET_LIVE, Wire, head, infer_request
from tests.waiting import SECONDS, until

OK = response(b"{}")
ASK = infer_request()


class Counts:
    """How many requests the relay has passed on, and how many answers it has sent completely."""

    def __init__(self) -> None:
        self.begun = self.sent = 0


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    monkeypatch.setattr(relay_module, "_SECONDS", 60.0)  # else it is the machine that decides who answers
    found = Counts()
    begins, ends = Link.begins, Link.ends

    def counted_begins(link: Link, request: PlainRequest) -> None:
        found.begun += 1
        begins(link, request)

    def counted_ends(link: Link, request: PlainRequest) -> None:
        found.sent += 1
        ends(link, request)

    monkeypatch.setattr(Link, "begins", counted_begins)
    monkeypatch.setattr(Link, "ends", counted_ends)
    return found


@contextmanager
def _guarded(
    *connections: list[Step], options: ServerOptions | None = None, backend: str = "asyncio"
) -> Iterator[Wire]:
    """A client of a guard, in front of a server that follows scripts; its first request has been answered."""
    first, *others = connections
    with (
        scripted([OK, *first], *others) as server,
        guarding(server.url, timeout=PATIENT, options=options, backend=backend) as guard,
        Wire(guard) as wire,
    ):
        assert wire.send(ASK).response().body == b"{}"
        yield wire


def _asks(wire: Wire) -> bytes:
    answer = wire.send(ASK).response()
    assert answer.status == 200
    return answer.body


def _after(*steps: bytes | float) -> Callable[[socket.socket], None]:
    """Wait for a request, and then send some parts with pauses."""

    def act(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        for step in steps:
            time.sleep(step) if isinstance(step, float) else sock.sendall(step)

    return act


def test_small_requests_need_no_task(counts: Counts) -> None:
    with _guarded(
        [response(b"0"), response(b"1"), _after(b"HTTP/1.1 200 OK\r\nContent-", 0.02, b"Length: 1\r\n\r\n2")]
    ) as wire:
        assert [_asks(wire) for _ in range(2)] == [b"0", b"1"]
        assert wire.send(GET_LIVE).response().body == b"2"
    assert (counts.begun, counts.sent) == (3, 2)  # of the last answer, only a part of the head came at first


def test_an_answer_in_parts(counts: Counts) -> None:
    answer = response(bytes(1000))
    with _guarded([_after(answer[:-1], 0.02, answer[-1:])]) as wire:
        assert _asks(wire) == bytes(1000)
    assert counts.sent == 1


@pytest.mark.parametrize("backend", ["asyncio", "uvloop"])
@pytest.mark.parametrize("seconds", [0.02, 10.0])
def test_answers_that_are_late(seconds: float, backend: str, counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "_SECONDS", seconds)
    is_left, hand_over = threading.Event(), Relay._hand_over  # noqa: SLF001 - tells when the task goes on

    def noted(relay: Relay) -> None:
        hand_over(relay)
        is_left.set()

    def late(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        is_left.wait(0.1 if seconds > 1 else 60)
        sock.sendall(OK)

    monkeypatch.setattr(Relay, "_hand_over", noted)
    with _guarded([late, OK], backend=backend) as wire:
        assert [_asks(wire) for _ in range(2)] == [b"{}"] * 2
    assert counts.begun == 2
    assert counts.sent == 2 if seconds > 1 else counts.sent < 2


def test_a_connection_behind_is_given_back_soon(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "_SECONDS", 1.5)
    released: list[bool] = []
    release = Upstream.release

    def noted(upstream: Upstream, held: Held) -> None:
        released.append(held.is_good)
        release(upstream, held)

    monkeypatch.setattr(Upstream, "release", noted)
    with _guarded([OK] * 5) as wire:
        for _ in range(3):
            _asks(wire)
        assert released == [True]  # after the first request
        until(lambda: len(released) == 2)
        _asks(wire)
    assert released == [True, True, True]
    assert counts.sent == 4


@pytest.mark.parametrize("backend", ["asyncio", "uvloop"])
def test_requests_that_come_before_the_answer(backend: str, counts: Counts) -> None:
    with _guarded([_after(0.05, OK), OK, OK, OK, OK], backend=backend) as wire:
        wire.send(ASK)
        time.sleep(0.02)
        wire.send(ASK)
        assert [wire.response().status for _ in range(2)] == [200] * 2
        wire.send(3 * ASK)  # they come together, so they are left to the task
        assert [wire.response().status for _ in range(3)] == [200] * 3
    assert counts.sent == 2


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 200),
        (response(b"x", "Connection: close"), 200),
        (b"nonsense\r\n\r\n", 502),
        (response(b"xyz")[:-1], 502),
        (b"", 502),
    ],
)
def test_other_answers_are_left_to_the_task(
    answer: bytes, status: int, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "_SECONDS", 0.05)
    with _guarded([_after(answer)], [OK]) as wire:
        assert wire.send(ASK).response(has_body=False).status == status
        time.sleep(0.1)  # until the clock has nothing to look at, if the machine has time
        with Wire(wire.sock.getpeername()) as other:
            assert _asks(other) == b"{}"
    assert (counts.begun, counts.sent) == (1, 0)


def test_a_server_that_closes_a_connection_that_is_not_used(counts: Counts) -> None:
    closing = threading.Semaphore(0)
    with _guarded([OK, lambda _: closing.acquire(timeout=60)], [OK]) as wire:  # type: ignore[list-item]  # it returns
        _asks(wire)
        closing.release()
        time.sleep(0.5)
        _asks(wire)
    assert counts.begun == 1


def test_a_server_behind_that_takes_nothing_more(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(sock: socket.socket, _buffers: object) -> int:
        sock.shutdown(socket.SHUT_WR)
        raise BrokenPipeError

    with _guarded([hung_up]) as wire:
        monkeypatch.setattr(pump, "send_some", fail)
        assert wire.send(ASK).response().status == 502
    assert (counts.begun, counts.sent) == (1, 0)


@pytest.mark.parametrize("most", [0, 30, 1000])
@pytest.mark.parametrize("is_client", [True, False])
def test_who_takes_bytes_slowly(most: int, is_client: bool, counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "_SECONDS", 60.0 if most else 0.05)

    def little(sock: socket.socket, buffers: list[memoryview]) -> int:
        if (sock.getsockname() == guard) is not is_client:
            return send_some(sock, buffers)
        if not most:
            raise BlockingIOError
        return sock.send(b"".join(buffers)[:most])

    answer = response(bytes(1000))
    ask = infer_request(count=1000)

    with _guarded([answer, answer]) as wire:
        guard = wire.sock.getpeername()
        monkeypatch.setattr(pump, "send_some", little)
        assert [wire.send(ask).response().body for _ in range(2)] == [bytes(1000)] * 2
    assert counts.begun == 2
    assert counts.sent == (2 if most else 0)


def _come(sock: socket.socket) -> bytes:
    if not (come := sock.recv(1 << 20)):
        raise ConnectionError
    return come


def _begun(sock: socket.socket) -> tuple[int, bytes]:
    """Return the length of the body of a request, and its beginning."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _come(sock)
    beginning, _, body = data.partition(b"\r\n\r\n")
    found = re.search(rb"(?i)\r\ncontent-length: ([0-9]+)", beginning)
    return int(found[1]) if found else 0, body


def _echo(sock: socket.socket) -> None:
    """Answer a request with its body, while it comes."""
    length, come = _begun(sock)
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
    while True:
        sock.sendall(come)
        length -= len(come)
        if not length:
            return
        come = _come(sock)


def _drop(sock: socket.socket) -> None:
    while True:
        _come(sock)


def _keep(sock: socket.socket) -> None:
    """Answer a request with its body, when all of it has come."""
    length, body = _begun(sock)
    while len(body) < length:
        body += _come(sock)
    sock.sendall(response(body))


def _after_all(*steps: bytes | float) -> Callable[[socket.socket], None]:
    """Wait for a whole request, and then send some parts with pauses."""

    def act(sock: socket.socket) -> None:
        length, body = _begun(sock)
        left = length - len(body)
        while left:
            left -= len(_come(sock))
        for step in steps:
            time.sleep(step) if isinstance(step, float) else sock.sendall(step)

    return act


@pytest.mark.parametrize("backend", ["asyncio", "uvloop"])
@pytest.mark.parametrize("count", [1 << 14, 1 << 15, 1 << 17, 1 << 21])
@pytest.mark.parametrize("has_pipes", [True, False])
def test_what_does_not_come_in_one_read(
    count: int, backend: str, counts: Counts, monkeypatch: pytest.MonkeyPatch, *, has_pipes: bool
) -> None:
    if not has_pipes:
        monkeypatch.setattr(Pipes, "borrow", lambda _: None)
    ask = infer_request(count=count)
    body = ask.partition(b"\r\n\r\n")[2]
    with _guarded([_keep] * 3, backend=backend) as wire:
        for _ in range(3):
            assert wire.send(ask).response().body == body
    assert (counts.begun, counts.sent) == (3, 3)


@pytest.mark.parametrize("more", [0, 1, 30_000])
def test_one_read_takes_all_that_has_come(more: int, counts: Counts) -> None:
    """A read that was full is followed by another one, which finds nothing, or something, or all."""
    ask, answer = infer_request(count=25_000), response(bytes(100_000))
    end = SCRATCH_BYTES + more
    with _guarded([_after_all(answer[:end], 0.02, answer[end:]), _keep]) as wire:
        wire.send(ask[:end])
        time.sleep(0.02)
        assert wire.send(ask[end:]).response().body == bytes(100_000)
        assert wire.send(ask).response().body == ask.partition(b"\r\n\r\n")[2]
    assert (counts.begun, counts.sent) == (2, 2)


@pytest.mark.parametrize("seconds", [0.02, 60.0])
def test_an_answer_before_all_of_the_request_has_come(
    seconds: float, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "_SECONDS", seconds)
    ask = infer_request(count=1 << 21)
    body = ask.partition(b"\r\n\r\n")[2]
    with _guarded([_echo]) as wire:
        sending = threading.Thread(target=wire.send, args=(ask,))
        sending.start()
        answer = wire.response()
        sending.join()
        assert answer.body == body
        assert answer.is_last
    assert (counts.begun, counts.sent) == (1, 0)


@pytest.mark.parametrize("end", [100_000, 300_000, 250_000])
def test_the_task_goes_on_at_any_byte(end: int, counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "_SECONDS", 0.03)
    ask = infer_request(count=1 << 17)
    body = ask.partition(b"\r\n\r\n")[2]
    answer = response(bytes(600_000))
    with _guarded([_keep, _after_all(answer[:end], 0.2, answer[end:])]) as wire:
        wire.send(ask[:end])
        time.sleep(0.2)
        assert wire.send(ask[end:]).response().body == body
        assert wire.send(ask).response().body == bytes(600_000)
    assert counts.begun == 2
    assert counts.sent == 0


@pytest.mark.slow
@pytest.mark.parametrize("has_pipes", [True, False])
@pytest.mark.parametrize("is_request", [True, False])
def test_the_task_sends_what_has_been_read(
    counts: Counts, monkeypatch: pytest.MonkeyPatch, *, is_request: bool, has_pipes: bool
) -> None:
    """Neither side takes a byte until the relay has given up, and what it has read is in a pipe."""
    monkeypatch.setattr(relay_module, "_SECONDS", 0.03)
    monkeypatch.setattr(Pump, "unsent", unsent := _Noted(Pump.unsent))
    if not has_pipes:
        monkeypatch.setattr(Pipes, "borrow", lambda _: None)
    body = np.random.default_rng(1).bytes(32 << 20)
    message = encode_request([Tensor(name="x", array=np.frombuffer(body, np.uint8))])
    fields = [f"{name}: {value}" for name, value in message.headers]
    ask = b"".join((head("/v2/models/identity/infer", *fields), *message.buffers))

    def late(sock: socket.socket) -> None:
        until(lambda: bool(unsent.nbytes))
        length, come = _begun(sock)
        while len(come) < length:
            come += _come(sock)
        sock.sendall(response(b"%d" % (come.endswith(body))))

    with _guarded([late if is_request else _after(response(body))]) as wire:
        if is_request:
            sending = threading.Thread(target=wire.send, args=(ask,))
            sending.start()
            assert wire.response().body == b"1"
            sending.join()
        else:
            wire.send(ASK)
            until(lambda: bool(unsent.nbytes))
            assert wire.response().body == body
    assert (counts.begun, counts.sent) == (1, 0)


class _Noted:
    """Counts the bytes that a pump gives away."""

    def __init__(self, call: Callable[[Pump], list[memoryview]]) -> None:
        self._call = call
        self.nbytes = 0

    def __get__(self, pump: Pump, _: object) -> Callable[[], list[memoryview]]:
        return lambda: self._note(pump)

    def _note(self, pump: Pump) -> list[memoryview]:
        buffers = self._call(pump)
        self.nbytes += sum(map(len, buffers))
        return buffers


def test_a_client_that_leaves_within_its_request(counts: Counts) -> None:
    records = Records()
    with (
        scripted([OK, hung_up]) as server,
        guarding(server.url, timeout=PATIENT, observer=records) as guard,
        Wire(guard) as wire,
    ):
        _asks(wire)
        wire.send(infer_request(count=1 << 17)[:100_000])
        until(lambda: counts.begun == 1)
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.sock.close()  # is a reset
        until(lambda: len(records.ended) == 2)
        assert [record.ending for record in records.ended] == [Ending.COMPLETE, Ending.CLIENT_LEFT]


async def _read_until_reset(data: bytes, is_urgent: Callable[[socket.socket], bool]) -> list[object]:
    """Return what is read, three bytes at a time, if so much comes together with a reset."""
    found: list[object] = []
    ended = anyio.Event()
    near, far = socket.socketpair()

    def once() -> None:
        try:
            found.append(near.recv(3))
        except OSError as error:
            found.append(type(error))
        if found[-1] in {b"", ConnectionResetError}:
            reading.stop()
            ended.set()

    with near:
        near.setblocking(False)
        near.sendall(b"unread")
        reading = Readiness(once, lambda: is_urgent(near))
        reading.start(near)
        far.sendall(data)
        far.close()  # with an unread byte, it is a reset
        with anyio.fail_after(SECONDS):
            await ended.wait()
        reading.close()
    return found


@pytest.mark.parametrize("has_uvloop", [False, True])
def test_a_reset_that_comes_with_bytes_before_it(has_uvloop: bool) -> None:
    options = {"use_uvloop": has_uvloop}
    found = anyio.run(_read_until_reset, b"12345", lambda _: False, backend_options=options)
    assert found == [b"123", b"45", ConnectionResetError]


def test_a_reset_is_found_by_who_reads_and_not_by_who_looks_for_a_health_check(monkeypatch: pytest.MonkeyPatch) -> None:
    turns_are_over = iter([True])
    monkeypatch.setattr(Turns, "is_over", lambda *_: next(turns_are_over, False))
    assert anyio.run(_read_until_reset, b"", brings_health_check) == [ConnectionResetError]


def test_a_request_that_ends_too_early(counts: Counts) -> None:
    with _guarded([hung_up]) as wire:
        wire.send(infer_request(count=1 << 17)[:100_000])
        wire.sock.shutdown(socket.SHUT_WR)
        assert wire.response().status == 400
    assert (counts.begun, counts.sent) == (1, 0)


def test_a_wrong_byte_within_a_stream(counts: Counts) -> None:
    message = encode_request([Tensor(name="x", array=np.ones(300_000, bool))])
    fields = [f"{name}: {value}" for name, value in message.headers]
    ask = bytearray(b"".join((head("/v2/models/identity/infer", *fields), *message.buffers)))
    ask[250_000] = 2
    with _guarded([_drop]) as wire:
        answer = wire.send(bytes(ask)).response()
        assert (answer.status, b"BOOL" in answer.body) == (400, True)
        assert b"%d" % (250_000 - ask.index(b"\r\n\r\n") - 4) in answer.body
    assert (counts.begun, counts.sent) == (1, 0)


def test_a_stream_that_breaks_off(counts: Counts) -> None:
    answer = response(bytes(300_000))
    with _guarded([_after(answer[:200_000])]) as wire:
        wire.send(ASK)
        came = b""
        with suppress(ConnectionError):
            while chunk := wire.sock.recv(1 << 16):
                came += chunk
    assert 70_000 < len(came) < 300_000
    assert (counts.begun, counts.sent) == (1, 0)


def test_no_memory_for_a_stream(counts: Counts) -> None:
    ask = infer_request(count=1 << 17)
    with _guarded([_keep, _keep], options=ServerOptions(max_memory_bytes=1 << 18)) as wire:
        assert wire.send(ask).response().status == 503
    assert counts.begun == 0


def test_a_client_that_leaves_before_its_answer() -> None:
    records = Records()
    with (
        scripted([OK, _after(0.05, OK)]) as server,
        guarding(server.url, timeout=PATIENT, observer=records) as guard,
        Wire(guard) as wire,
    ):
        _asks(wire)
        wire.send(ASK)
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.sock.close()  # is a reset
        until(lambda: len(records.ended) == 2)
        assert [(record.status, record.ending) for record in records.ended] == [
            (200, Ending.COMPLETE),
            (200, Ending.CUT),
        ]


def test_the_last_answer_of_a_connection(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    with _guarded([OK]) as wire:
        monkeypatch.setattr(Admission, "keeps", lambda *_, ahead=0: bool(ahead))  # the guard is stopped meanwhile
        assert wire.send(ASK).response().is_last
        assert wire.is_closed()
    assert (counts.begun, counts.sent) == (1, 0)


def test_a_refused_request_after_others() -> None:
    with _guarded([OK]) as wire:
        _asks(wire)
        assert wire.send(b"x\r\n\r\n").response().status == 400
        assert wire.is_closed()


@pytest.mark.parametrize("name", ["begins", "answers"])
def test_a_failure_of_ours_in_a_callback_ends_one_connection(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        msg = "a bug"
        raise RuntimeError(msg)

    with _guarded([_after(OK)]) as wire:
        monkeypatch.setattr(Link, name, fail)
        wire.send(ASK)
        assert wire.is_closed()
    assert "connection failed" in caplog.text


def test_a_stop_gives_up_a_request_whose_answer_does_not_come(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "_SECONDS", 10.0)
    with _guarded([hung_up], options=ServerOptions(shutdown_timeout=0.1)) as wire:
        wire.send(ASK)
        until(lambda: counts.begun == 1)
    assert (counts.begun, counts.sent) == (1, 0)


def test_false_alarms(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system may say that there are bytes where there are none."""
    add = asyncio.SelectorEventLoop.add_reader

    def alarm(
        loop: asyncio.SelectorEventLoop, sock: socket.socket, call: Callable[..., None], *arguments: object
    ) -> None:
        add(loop, sock, call, *arguments)
        if getattr(call, "__self__", None).__class__ is Readiness:
            loop.call_soon(call)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_reader", alarm)
    with _guarded([_after(0.02, OK)]) as wire:
        time.sleep(0.02)
        assert _asks(wire) == b"{}"
    assert counts.sent == 1


def test_no_connection_is_held_without_a_place() -> None:
    async def main() -> None:
        upstream = Upstream(server.url, timeout=PATIENT, max_connections=1, limits=GUARD_LIMITS)
        assert upstream.hold_at_once() is None
        async with upstream.holding() as held:
            assert upstream.hold_at_once() is None
            held.is_good = True
        again = upstream.hold_at_once()
        assert again is not None
        assert again.connection is held.connection
        upstream.release(again)
        upstream.close()

    with scripted([hung_up]) as server:
        anyio.run(main)
