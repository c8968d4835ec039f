"""Receivers: the ways in which a request on a socket comes into an array, each beside its yardstick.

A yardstick does nothing but receive into the same kind of memory, by the same means: a bare `recv_into` loop; the same
with a wait before each read, under anyio; a bare `BufferedProtocol` of asyncio. It knows beforehand where the tensor
starts and how long it is.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
import numpy as np
import numpy.typing as npt

from streamcodec import EndOfMessage, Into, TensorSpec, new_array, request_decoder
from streamcodec.engine.memory.placement import Placement
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import RequestHead, ServerConnection
from streamcodec.transports import aio, sync
from streamcodec.transports.protocol import EventProtocol
from tests.benchmarks.measure import Sample

Array = npt.NDArray[np.uint8]

Bare = Callable[[socket.socket, int, Array], Any]
"""Receives so many bytes of anything, then the array."""

Ours = Callable[[socket.socket, Array | None], Any]
"""Receives a request whose tensor goes into the array, or into a new one."""

Timed = Callable[[tuple[str, int], Callable[[socket.socket], Any]], Sample]
"""Opens a connection, asks for the request, and times the receiving of it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A way to receive, and its yardstick."""

    timed: Timed
    bare: Bare
    ours: Ours


def begin(head: object, connection: ServerConnection, array: Array | None) -> None:
    """Let the body of the request that has come into the array, or into a new one."""
    assert isinstance(head, RequestHead)

    def place(spec: TensorSpec) -> Placement:
        return new_array(spec) if array is None else Into(array)

    decoder = request_decoder(header_length=header_length_of(head.fields), body_length=head.body_length, place=place)
    connection.receive_body(decoder)


# Blocking


def _bare_blocking(sock: socket.socket, start: int, array: Array) -> None:
    for view in (memoryview(bytearray(start)), array.data):
        position = 0
        while position < len(view):
            position += sock.recv_into(view[position:])


def _blocking(sock: socket.socket, array: Array | None) -> None:
    connection = ServerConnection()
    begin(sync.next_event(sock, connection), connection, array)
    while not isinstance(sync.next_event(sock, connection), EndOfMessage):
        pass


# Under anyio, with a time limit on every wait, as in the server


async def _bare_anyio(sock: socket.socket, start: int, array: Array) -> None:
    for view in (memoryview(bytearray(start)), array.data):
        position = 0
        while position < len(view):
            await anyio.wait_readable(sock)
            position += sock.recv_into(view[position:])


async def _anyio(sock: socket.socket, array: Array | None) -> None:
    connection = ServerConnection()
    begin(await aio.next_event(sock, connection, timeout=30), connection, array)
    while not isinstance(await aio.next_event(sock, connection, timeout=30), EndOfMessage):
        pass


# As a protocol of asyncio


class _BareProtocol(asyncio.BufferedProtocol):
    def __init__(self, start: int, array: Array) -> None:
        self._views = [memoryview(bytearray(start)), array.data]
        self.is_full = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio gives it
        return self._views[0]

    def buffer_updated(self, nbytes: int) -> None:
        self._views[0] = self._views[0][nbytes:]
        if not self._views[0]:
            del self._views[0]
            if not self._views:
                self._views.append(memoryview(bytearray(1)))
                self.is_full.set_result(None)


async def _bare_protocol(sock: socket.socket, start: int, array: Array) -> None:
    transport, protocol = await asyncio.get_running_loop().connect_accepted_socket(
        lambda: _BareProtocol(start, array), sock.dup()
    )
    await protocol.is_full
    transport.abort()


async def _protocol(sock: socket.socket, array: Array | None) -> None:
    connection = ServerConnection()
    transport, protocol = await asyncio.get_running_loop().connect_accepted_socket(
        lambda: EventProtocol(connection), sock.dup()
    )
    begin(await protocol.next_event(), connection, array)
    while not isinstance(await protocol.next_event(), EndOfMessage):
        pass
    transport.abort()


def _timed(address: tuple[str, int], work: Callable[[socket.socket], None]) -> Sample:
    """Time the receiving alone: not the connection, and not the sender's start."""
    with socket.create_connection(address) as sock:
        sock.sendall(b"?")
        cpu, wall = time.thread_time(), time.perf_counter()
        work(sock)
        return Sample(wall=time.perf_counter() - wall, cpu=time.thread_time() - cpu)


def _timed_async(address: tuple[str, int], work: Callable[[socket.socket], Awaitable[None]]) -> Sample:
    """Do the same under anyio; the event loop's start and end are not counted."""

    async def run(sock: socket.socket) -> Sample:
        sock.setblocking(False)
        cpu, wall = time.thread_time(), time.perf_counter()
        await work(sock)
        return Sample(wall=time.perf_counter() - wall, cpu=time.thread_time() - cpu)

    with socket.create_connection(address) as sock:
        sock.sendall(b"?")
        return anyio.run(run, sock)


PAIRS: Final[Mapping[str, Pair]] = {
    "blocking": Pair(_timed, _bare_blocking, _blocking),
    "anyio": Pair(_timed_async, _bare_anyio, _anyio),
    "asyncio protocol": Pair(_timed_async, _bare_protocol, _protocol),
}
"""All ways."""
