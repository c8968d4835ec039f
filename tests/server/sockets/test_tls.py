"""TLS in the server: what is served, who is refused and how, and that nobody holds others up by a handshake."""

from __future__ import annotations

import datetime as dt
import logging
import os
import select
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress

import numpy as np
import pytest
import trustme

from streamcodec.client import Client, ServerError
from streamcodec.engine.errors import RemoteProtocolError
from streamcodec.server import AccessLog, ServerOptions
from streamcodec.server.connection import waits
from streamcodec.server.sockets.securing import Complaints
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.tlswire import TlsWire
from tests.server.wire import GET_LIVE, Wire, floats, head, infer_request, post
from tests.transports.certificates import AUTHORITY, client_side, server_side
from tests.waiting import SECONDS, until

Address = tuple[str, int]
LONG_AGO = dt.datetime.now(dt.UTC) - dt.timedelta(days=9)
YESTERDAY = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def address(backend: str) -> Iterator[Address]:
    with server_here(models(), backend=backend, ssl_context=server_side()) as (_, address):
        yield address


def _url(address: Address) -> str:
    return f"https://127.0.0.1:{address[1]}"


def _hello() -> bytes:
    """What a client says first."""
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = client_side().wrap_bio(coming, going, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return going.read()


# What is served


@pytest.mark.slow
def test_tensors_of_all_sizes_go_both_ways(address: Address) -> None:
    with Client(_url(address), ssl_context=client_side()) as client:
        for count in (1, 16, 4_095, 4_096, 4_097, 1 << 21):
            values = np.random.default_rng(count).random(count, np.float32)
            assert np.array_equal(client.infer("identity", {"x": values})["x"], values)


def test_a_request_in_records_of_one_byte(address: Address) -> None:
    with TlsWire(address) as wire:
        for byte in infer_request():
            wire.send(bytes([byte]))
        assert floats(wire.response()) == [0, 1, 2, 3]


def test_requests_of_one_record_are_answered_as_if_they_came_alone(address: Address) -> None:
    """OpenSSL has the second one when the first is read; the system tells nothing of it."""
    with TlsWire(address) as wire:
        wire.send(infer_request(count=100) + infer_request(count=3))
        assert [len(floats(wire.response())) for _ in range(2)] == [100, 3]


@pytest.mark.slow
def test_answers_that_are_read_late_are_whole(address: Address) -> None:
    """They wait in the server, since the system does not take them all: it sends some in parts, and reads no more."""
    count = 8_000
    to_send = memoryview(infer_request(count=500) * count)
    received = bytearray()
    with TlsWire(address) as wire:
        wire.tls.setblocking(False)
        nothing_read_until = time.monotonic() + 0.5
        while to_send or received.count(b"HTTP/1.1 200 ") < count or len(received) < count * 2000:
            select.select([wire.sock], [wire.sock] if to_send else [], [], 0.05)
            with suppress(ssl.SSLWantWriteError, ssl.SSLWantReadError):
                to_send = to_send[wire.tls.send(to_send[: 1 << 16]) :]
            if time.monotonic() > nothing_read_until:
                with suppress(ssl.SSLWantReadError):
                    while data := wire.tls.recv(1 << 16):
                        received += data
    values = np.arange(500, dtype=np.float32).tobytes()
    assert received.count(values) == received.count(b"HTTP/1.1 200 ") == count


@pytest.mark.slow
def test_a_large_answer_is_sent_as_fast_as_it_is_read(address: Address) -> None:
    count = 4 << 20
    with TlsWire(address) as wire:
        wire.send(infer_request(count=count))
        time.sleep(0.5)
        answer = wire.response()
    assert floats(answer) == list(range(count))


def test_who_ends_its_direction_is_answered(address: Address) -> None:
    with TlsWire(address) as wire:
        body = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":[0.5]}]}'
        wire.send(post(body, model="sleep"))
        wire.tls.setblocking(False)
        with suppress(ssl.SSLWantReadError):
            wire.tls.unwrap()
        wire.tls.settimeout(60)
        assert wire.response().status == 200


def test_the_server_ends_connections_as_tls_wants_it(address: Address) -> None:
    """Else a client that does not look at the length of an answer could not tell an end from a cut."""
    with TlsWire(address) as wire:
        assert wire.send(head("/v2", "Connection: close", method="GET")).response().is_last
        assert wire.tls.recv(1) == b""


def test_a_refusal_of_a_long_body_is_read_by_its_client(address: Address) -> None:
    with TlsWire(address) as wire:
        wire.send(head("/v2/models/nobody/infer", f"Content-Length: {8 << 20}"))
        for _ in range(8):
            wire.send(bytes(1 << 20))
        assert wire.response().status == 404
        assert wire.tls.recv(1) == b""


def test_a_client_that_is_cut_in_the_middle_costs_nothing_and_nobody(address: Address) -> None:
    for end in (10, 200, 230):
        with TlsWire(address) as wire:
            wire.send(infer_request(count=1000)[:end])
    with TlsWire(address) as wire:
        assert wire.send(GET_LIVE).response().status == 200


def test_records_that_are_forged_end_the_connection(address: Address) -> None:
    with TlsWire(address) as wire, closing(socket.socket(fileno=wire.tls.detach())) as plain:
        plain.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        plain.settimeout(60)
        with suppress(ConnectionResetError):
            while plain.recv(1 << 16):
                pass


@pytest.mark.slow
def test_the_access_log_says_https() -> None:
    lines: list[str] = []
    for form in ("text", "json"):
        with (
            closing(AccessLog(form=form, write=lines.extend, is_encrypted=True)) as log,
            server_here(models(), observer=log, ssl_context=server_side()) as (_, address),
            TlsWire(address) as wire,
        ):
            assert wire.send(GET_LIVE).response().status == 200
    assert [line.endswith(end) for line, end in zip(lines, (" https", '"scheme": "https"}'), strict=True)] == [True] * 2


# Who is refused


def test_plain_http_is_told_to_speak_tls(address: Address, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), Wire(address) as wire:
        answer = wire.send(infer_request()).response()
        assert (answer.status, answer.is_last) == (400, True)
        assert answer.error == "this port speaks TLS: the URL begins with https://"
    (line,) = [record for record in caplog.records if record.name == "streamcodec.server.sockets.securing"]
    assert "speaks no TLS" in line.message
    with Client(f"http://127.0.0.1:{address[1]}") as client, pytest.raises(ServerError, match="https://"):
        client.infer("identity", {"x": np.ones(1 << 20)})


def test_tls_is_told_to_speak_plain_http(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), server_here(models(), backend=backend) as (_, address):
        with Client(_url(address), ssl_context=client_side()) as client, pytest.raises(ssl.SSLError, match="http://"):
            client.is_server_live()
        with Wire(address) as wire:
            assert (
                wire.send(_hello()).response().error == "the first line starts with a control character; is this TLS?"
            )
    lines = [record.message for record in caplog.records if record.name == "streamcodec.server.sockets.securing"]
    assert lines == ["a client speaks TLS; for this port, the URL begins with http://"] * 2


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("none", "it shows no certificate, and one is required"),
        ("expired", "its certificate is refused: certificate has expired"),
        ("foreign", "its certificate is refused: unable to get local issuer certificate"),
    ],
)
def test_certificates_of_clients(reason: str, said: str, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    required = server_side()
    required.verify_mode = ssl.CERT_REQUIRED
    AUTHORITY.configure_trust(required)
    bad, good = client_side(), client_side()
    AUTHORITY.issue_cert("me@example.org").configure_cert(good)
    if reason == "expired":
        AUTHORITY.issue_cert("me@example.org", not_before=LONG_AGO, not_after=YESTERDAY).configure_cert(bad)
    elif reason == "foreign":
        trustme.CA().issue_cert("me@example.org").configure_cert(bad)
    with server_here(models(), backend=backend, ssl_context=required) as (_, address), caplog.at_level(logging.INFO):
        with Client(_url(address), ssl_context=bad) as client, pytest.raises(OSError, match="certificate") as raised:
            client.infer("identity", {"x": np.ones(4)})
        assert "client" in str(raised.value)
        with Client(_url(address), ssl_context=good) as client:
            assert client.is_server_live()
    (line,) = [record.message for record in caplog.records if record.name == "streamcodec.server.sockets.securing"]
    assert line.endswith(said)


def test_a_certificate_that_clients_may_leave_out(backend: str) -> None:
    optional = server_side()
    optional.verify_mode = ssl.CERT_OPTIONAL
    AUTHORITY.configure_trust(optional)
    with (
        server_here(models(), backend=backend, ssl_context=optional) as (_, address),
        Client(_url(address), ssl_context=client_side()) as client,
    ):
        assert client.is_server_live()


@pytest.mark.parametrize("reason", ["foreign", "expired", "other name"])
def test_clients_that_do_not_trust_the_server(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    context = server_side("other.example")
    if reason == "foreign":
        context = server_side(authority=trustme.CA())
    if reason == "expired":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        AUTHORITY.issue_cert("127.0.0.1", not_before=LONG_AGO, not_after=YESTERDAY).configure_cert(context)
    with (
        server_here(models(), ssl_context=context) as (_, address),
        caplog.at_level(logging.INFO),
        Client(_url(address), ssl_context=client_side()) as client,
    ):
        with pytest.raises(ssl.SSLCertVerificationError):
            client.is_server_live()
        until(lambda: any(record.name == "streamcodec.server.sockets.securing" for record in caplog.records))
    (line,) = [record.message for record in caplog.records if record.name == "streamcodec.server.sockets.securing"]
    assert "the server's certificate" in line


@pytest.mark.parametrize("start", [b"", b"\x16", b"\x16\x03\x01\xff\xff", b"\x16" + bytes(64)])
def test_what_is_no_handshake(start: bytes, address: Address) -> None:
    """Nothing, which is how load balancers look whether a port is open; a part of it; and what is damaged."""
    with Wire(address) as wire:
        wire.send(start)
    with TlsWire(address) as wire:
        assert wire.send(GET_LIVE).response().status == 200


def test_complaints_do_not_fill_the_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("streamcodec.server.sockets.securing.monotonic", lambda: now)
    complaints = Complaints()
    with caplog.at_level(logging.INFO):
        for _ in range(1000):
            complaints.add("x")
        now = 2.0
        complaints.add("y")
    assert [record.message for record in caplog.records] == ["x"] * 5 + ["y (995 more such lines were left out)"]


# Who is slow


@pytest.mark.slow
@pytest.mark.parametrize("is_silent", [True, False])
def test_a_handshake_that_does_not_go_on(is_silent: bool, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """Who says nothing, and who says a byte from time to time, has the same time."""
    options = ServerOptions(handshake_timeout=0.6)
    with (
        caplog.at_level(logging.INFO),
        server_here(models(), options, backend=backend, ssl_context=server_side()) as (_, address),
        Wire(address) as wire,
    ):
        began = time.monotonic()
        hello = _hello()
        while not select.select([wire.sock], [], [], 0.1)[0] and time.monotonic() < began + SECONDS:
            if not is_silent:
                wire.send(hello[:1])
                hello = hello[1:]
        assert wire.is_closed()
        assert time.monotonic() - began > 0.5
    assert "has not ended its TLS handshake within 0.6 seconds" in caplog.text


@pytest.mark.slow
def test_who_says_nothing_keeps_nobody_out(backend: str) -> None:
    """200 connections that begin no handshake, where there are 1 + 64 places."""
    options = ServerOptions(max_connections=1)
    with (
        server_here(models(), options, backend=backend, ssl_context=server_side()) as (_, address),
        ExitStack() as stack,
    ):
        silent = [stack.enter_context(Wire(address)) for _ in range(200)]
        with TlsWire(address) as wire:
            assert wire.send(infer_request()).response().status == 200
        socks = [wire.sock for wire in silent]
        until(lambda: len(select.select(socks, [], [], 0)[0]) >= 200 - 65)  # they lose their places, and their sockets


def test_there_is_no_place_for_another_handshake(
    backend: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are within a request: the new connection is closed, and the operator told why."""
    monkeypatch.setattr("streamcodec.server.connection.admission.RESERVED_PLACES", 0)
    options = ServerOptions(max_connections=1)
    with (
        caplog.at_level(logging.INFO),
        server_here(models(), options, backend=backend, ssl_context=server_side()) as (server, address),
        TlsWire(address) as busy,
    ):
        busy.send(infer_request()[:-1])
        until(lambda: server.requests_in_progress == 1)
        with pytest.raises((ConnectionError, ssl.SSLEOFError)):
            TlsWire(address)
        assert busy.send(infer_request()[-1:]).response().status == 200
    assert "the server has no place for another connection" in caplog.text


def test_a_server_that_stops_does_not_wait_for_handshakes(backend: str) -> None:
    with ExitStack() as stack:
        options = ServerOptions(handshake_timeout=600, shutdown_timeout=600)
        with server_here(models(), options, backend=backend, ssl_context=server_side()) as (server, address):
            wires = [stack.enter_context(Wire(address)) for _ in range(3)]
            wires[1].send(_hello()[:50])
            until(lambda: server.load().connections == 3)


def test_a_server_that_stops_does_not_wait_for_who_has_said_nothing(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a handshake that has begun has the time to end."""
    monkeypatch.setattr(waits, "_LAST_HANDSHAKE_SECONDS", 600.0)
    with ExitStack() as stack:
        options = ServerOptions(handshake_timeout=600, shutdown_timeout=600)
        with server_here(models(), options, backend=backend, ssl_context=server_side()) as (server, address):
            for _ in range(3):
                stack.enter_context(Wire(address))
            until(lambda: server.load().connections == 3)


@pytest.mark.quiet
def test_a_burst_of_handshakes_holds_nobody_up(backend: str) -> None:
    """300 clients have connected and send their hello together, to a server with a long key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost", key_type=trustme.KeyType.RSA).configure_cert(context)
    with (
        server_here(models(), backend=backend, ssl_context=context) as (_, address),
        ExitStack() as stack,
        TlsWire(address) as good,
    ):
        good.send(GET_LIVE).response()
        hellos = [_hello() for _ in range(300)]
        others = [stack.enter_context(Wire(address)) for _ in hellos]
        time.sleep(0.5)
        for wire, hello in zip(others, hellos, strict=True):
            wire.sock.sendall(hello)
        longest = 0.0
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            began = time.monotonic()
            assert good.send(GET_LIVE).response().status == 200
            longest = max(longest, time.monotonic() - began)
        assert longest < 0.1


@pytest.mark.slow
def test_nothing_is_left_of_all_that(backend: str) -> None:
    with server_here(models(), backend=backend, ssl_context=server_side()) as (server, address):

        def connect() -> None:
            for number in range(30):
                with suppress(OSError, RemoteProtocolError), (Wire if number % 3 else TlsWire)(address) as wire:
                    wire.send(_hello() if number % 2 else infer_request())

        connect()
        time.sleep(0.5)
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        connect()
        time.sleep(3)
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
        assert server.reserved_bytes == 0
