"""Acknowledged: what the peer's system acknowledges is progress, for every way of waiting."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat

import anyio
import pytest

from streamcodec.http import ServerConnection
from streamcodec.transports import aio
from streamcodec.transports.duplex import Duplex
from streamcodec.transports.sockets import acknowledged
from streamcodec.transports.sockets.acknowledged import SLICES, Silence, unacknowledged_bytes

TIMEOUT = 0.04
"""Seconds; a slice has 5 ms."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return two connected sockets of TCP, non-blocking."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        far, _ = listener.accept()
        with far:
            near.setblocking(False)
            far.setblocking(False)
            yield near, far


def _fill(sock: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while sock.send(bytes(1 << 16)):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells it")
def test_the_system_tells_what_the_peer_has_not_acknowledged(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    assert unacknowledged_bytes(near) == 0
    _fill(near)
    before = unacknowledged_bytes(near)
    assert before > 0
    end = time.monotonic() + 60
    while unacknowledged_bytes(near) and time.monotonic() < end:
        with contextlib.suppress(BlockingIOError):
            far.recv(1 << 20)
    assert unacknowledged_bytes(near) == 0


def test_a_closed_socket_has_nothing_on_its_way() -> None:
    sock = socket.socket()
    sock.close()
    assert unacknowledged_bytes(sock) == 0
    assert unacknowledged_bytes(None) == 0


def _tell(monkeypatch: pytest.MonkeyPatch, amounts: Iterator[int]) -> list[int]:
    """Have the system tell these amounts; return the list of those it has told."""
    told: list[int] = []

    def tell(_: object) -> int:
        told.append(next(amounts))
        return told[-1]

    monkeypatch.setattr(acknowledged, "unacknowledged_bytes", tell)
    monkeypatch.setattr(aio, "unacknowledged_bytes", tell)
    return told


@pytest.mark.parametrize(
    ("amounts", "looks"),
    [
        (repeat(0), SLICES),
        (repeat(7), SLICES + 1),
        (chain([9, 8, 7], repeat(7)), 3 + SLICES),
        (chain([9, 9, 9, 9, 8], repeat(8)), 5 + SLICES),
        (chain([5, 5, 0], repeat(0)), 3 + SLICES),
    ],
)
def test_a_limit_is_over_after_as_many_slices_without_an_acknowledged_byte(
    monkeypatch: pytest.MonkeyPatch, amounts: Iterator[int], looks: int
) -> None:
    _tell(monkeypatch, amounts)
    with socket.socket() as sock:
        silence = Silence(sock)
        assert [silence.is_over() for _ in range(looks)] == [False] * (looks - 1) + [True]


def _wait_blocking(sock: socket.socket) -> None:
    Duplex(sock, ServerConnection(), [], read_timeout=TIMEOUT).next_event()


def _wait_to_send_blocking(sock: socket.socket) -> None:
    Duplex(sock, ServerConnection(), [b"x"], write_timeout=TIMEOUT).next_event()


def _wait_async(sock: socket.socket) -> None:
    anyio.run(lambda: aio.next_event(sock, ServerConnection(), timeout=TIMEOUT))


def _wait_to_send_async(sock: socket.socket) -> None:
    anyio.run(lambda: aio.send(sock, [b"x"], timeout=TIMEOUT))


WAITS = [_wait_blocking, _wait_to_send_blocking, _wait_async, _wait_to_send_async]


@pytest.mark.parametrize("wait", WAITS)
def test_every_wait_goes_on_while_the_peer_acknowledges(
    wait: Callable[[socket.socket], None], pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(pair[0])
    moving = 2 * SLICES
    told = _tell(monkeypatch, chain(range(1000, 1000 - moving, -1), repeat(1000 - moving)))
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=f"nothing has moved for {TIMEOUT:g} seconds"):
        wait(pair[0])
    assert moving < len(told) <= moving + SLICES + 2  # fewer looks than slices where the machine is busy
    assert time.monotonic() - began > 1.5 * TIMEOUT


@pytest.mark.parametrize("wait", WAITS)
def test_no_wait_goes_on_while_nothing_is_acknowledged(
    wait: Callable[[socket.socket], None], pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(pair[0])
    told = _tell(monkeypatch, repeat(1000))
    with pytest.raises(TimeoutError, match=f"nothing has moved for {TIMEOUT:g} seconds"):
        wait(pair[0])
    assert len(told) <= SLICES + 2
