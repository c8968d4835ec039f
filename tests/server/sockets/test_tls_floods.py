"""Floods of TLS: what clients can take from the server by TLS's own messages, before and after the handshake."""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from streamcodec.client import Client
from tests.processes import resident
from tests.server.models import models
from tests.server.programs import server_here, serving
from tests.server.wire import Wire
from tests.transports.certificates import AUTHORITY, client_side, server_side
from tests.transports.newkeys import forging

pytestmark = pytest.mark.slow

KIB = 1 << 10
COUNT = 300
RECORD = 16 * KIB
SECONDS = 60


def _hello() -> bytes:
    """What a client says first."""
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = client_side().wrap_bio(coming, going, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return going.read()


def _half() -> bytes:
    hello = _hello()
    return hello[: len(hello) // 2]


def _announced() -> bytes:
    """The beginning of the longest first message that OpenSSL takes: 128 KiB, all of it but the end."""
    message = b"\x01" + (131_000).to_bytes(3, "big") + b"\x03\x03" + bytes(7 * RECORD)
    records = [message[start : start + RECORD] for start in range(0, len(message), RECORD)]
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(record)) + record for record in records)


@pytest.mark.parametrize(("make", "most"), [(_half, 64 * KIB), (_announced, 256 * KIB)])
def test_handshakes_that_do_not_go_on_take_bounded_memory(make: Callable[[], bytes], most: int, tmp_path: Path) -> None:
    """Each takes a constant, all end by the time limit, and the next ones use the memory of those before.

    The server is a new process: memory that an earlier test has left free would hide what these take.
    """
    start = make()
    both = tmp_path / "both"
    AUTHORITY.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(both)
    options = ("tests.server.models:models", "--ssl-certfile", str(both), "--handshake-timeout", "1.5")
    grown = []
    with serving(*options) as program:
        pid = program.process.pid
        with Wire(program.address) as wire:
            wire.send(start)
        files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - names are enough
        before = resident(pid)
        for _ in range(4):
            with ExitStack() as stack:
                began = time.monotonic()
                wires = [stack.enter_context(Wire(program.address)).send(start) for _ in range(COUNT)]
                time.sleep(max(0.0, began + 1.0 - time.monotonic()))
                grown.append(resident(pid) - before)
                end = time.monotonic() + 60
                for wire in wires:
                    assert select.select([wire.sock], [], [], max(0.0, end - time.monotonic()))[0], "it has ended"
            time.sleep(0.5)
        assert len(os.listdir(f"/proc/{pid}/fd")) <= files  # noqa: PTH208
    assert 0 < grown[0] / COUNT < most, grown
    assert grown[3] - grown[2] < grown[0] / 4, grown


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("is_requested", [False, True])
def test_new_keys_without_data(backend: str, is_requested: bool) -> None:
    """A client that sends nothing else, and does not read, loses its connection. Others are answered."""
    with (
        server_here(models(), backend=backend, ssl_context=server_side()) as (_, address),
        socket.create_connection(address, SECONDS) as sock,
    ):
        sock.setblocking(False)
        below, records = forging(sock, lambda: time.sleep(0.001))
        below.settimeout(SECONDS)
        with below:
            flood = b"".join(records.new_keys(is_requested=is_requested) for _ in range(20_000))
            with suppress(ConnectionError):
                below.sendall(flood)
                while below.recv(64 * KIB):
                    pass
            with Client(f"https://127.0.0.1:{address[1]}", ssl_context=client_side()) as client:
                assert client.is_server_live()
