"""Acts: what one attacking connection does. Each ends when the server has had enough, and is then begun anew."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

Address = tuple[str, int]
Act = Callable[[socket.socket], Awaitable[None]]

_READ_BYTES = 1 << 20
_PIECE = 256 << 10
_PATIENCE = 20.0


def ask(message: bytes) -> Act:
    """Send one request, and read what comes until the server closes."""

    async def act(sock: socket.socket) -> None:
        await _while_reading(sock, _send(sock, message))

    return act


def flood(messages: bytes) -> Act:
    """Send requests over and over, as fast as the server takes them, and read the answers."""

    async def act(sock: socket.socket) -> None:
        async def forever() -> None:
            while True:
                await _send(sock, messages)

        await _while_reading(sock, forever())

    return act


def ask_in_turn(message: bytes) -> Act:
    """Send a request, and another one as soon as something of the answer has come."""

    async def act(sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await _send(sock, message)
        while await loop.sock_recv(sock, _READ_BYTES):
            await _send(sock, message)

    return act


def send_on(beginning: bytes) -> Act:
    """Send a beginning, then zeros as fast as the server takes them, whatever it answers."""

    async def act(sock: socket.socket) -> None:
        await _send(sock, beginning)
        while True:
            await _send(sock, bytes(_PIECE))

    return act


def be_deaf(message: bytes) -> Act:
    """Send one request and read nothing of its answer, until the server closes."""

    async def act(sock: socket.socket) -> None:
        await _send(sock, message)
        await asyncio.sleep(_PATIENCE)

    return act


def trickle(beginning: bytes, piece: bytes, pause: float) -> Act:
    """Send a beginning at once, then one piece after the other, with pauses."""

    async def act(sock: socket.socket) -> None:
        async def forever() -> None:
            await _send(sock, beginning)
            while True:
                await asyncio.sleep(pause)
                await _send(sock, piece)

        await _while_reading(sock, forever())

    return act


def in_single_bytes(message: bytes) -> Act:
    """Send a request so that the server reads it byte by byte, or nearly so."""

    async def act(sock: socket.socket) -> None:
        async def send() -> None:
            for index in range(len(message)):
                await _send(sock, message[index : index + 1])
                await asyncio.sleep(0)

        await _while_reading(sock, send())

    return act


def sit(message: bytes) -> Act:
    """Ask once, then stay without a word; who is thrown out comes back a second later."""

    async def act(sock: socket.socket) -> None:
        await _while_reading(sock, _send(sock, message))
        await asyncio.sleep(1)

    return act


async def connect_and_go(_: socket.socket) -> None:
    """Be accepted, and go a little later without a word."""
    await asyncio.sleep(0.2)


def send_and_go(message: bytes) -> Act:
    """Send a request, or a part of it, and leave a little later without an answer."""

    async def act(sock: socket.socket) -> None:
        await _send(sock, message)
        await asyncio.sleep(0.2)

    return act


async def perform(address: Address, act: Act) -> None:
    """Do it again and again, each time on a new connection."""
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as sock, suppress(OSError):
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await act(sock)
        await asyncio.sleep(0)


async def _while_reading(sock: socket.socket, sending: Awaitable[None]) -> None:
    """Send, and read until the end of what the server sends."""
    task = asyncio.ensure_future(sending)
    try:
        while await asyncio.get_running_loop().sock_recv(sock, _READ_BYTES):
            pass
    finally:
        task.cancel()
        with suppress(OSError, asyncio.CancelledError):
            await task


async def _send(sock: socket.socket, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    for start in range(0, len(view), _PIECE):
        await loop.sock_sendall(sock, view[start : start + _PIECE])
