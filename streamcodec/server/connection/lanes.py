"""Lanes: opens the memory lanes of a server: takes the memory that a client passes, and gives it up at the end.

A client that wants a lane opens it with the first bytes of its connection: one `POST /v2/memory-lane`, with two
descriptors. They are looked at before the connection has a channel. So descriptors can only come with these bytes. All
later reads are those of any connection, which have no room for descriptors: the system closes them.

Everything else that a connection begins with stays unread, and goes the ordinary way. There the opening of a lane has
no route. So a client that does not begin as it must gets the same 404 as from a server without lanes.

A connection keeps its memory mapped until it ends. Then a thread unmaps it: that takes 18 ms for 256 MiB. Arrays may
live longer: a model may keep one, and a thread that was given up may still use it. The memory counts until the last
array is gone, which a task looks for.
"""

from __future__ import annotations

import logging
import socket
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio

from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.lane import LANE_FIELD, LANE_PATH, LANE_VERSION
from streamcodec.http.heads.messages import RequestHead
from streamcodec.http.heads.plain import read_plain_head
from streamcodec.http.server import ServerConnection
from streamcodec.runtime.options import ServerOptions
from streamcodec.service import Reply, error_reply, json_reply, unavailable_reply
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.memory.lane import SharedMemory
from streamcodec.service.replies import drop_tracebacks
from streamcodec.transports.inthread import in_thread
from streamcodec.transports.sockets.memfd import (
    HAS_MEMORY_FILES,
    check_memory,
    close_all,
    is_memory_file,
    map_memory,
    receive_descriptors,
)

logger: Final = logging.getLogger(__name__)

_BEGINNING: Final = f"POST {LANE_PATH} ".encode()
_HEAD_END: Final = b"\r\n\r\n"
_MAX_OPENING_BYTES: Final = 4 << 10
_MEMORIES: Final = 2
"""One for requests, one for answers."""

_LOOK_SECONDS: Final = 0.05
"""Between two looks whether memory of lanes that have ended is still in use."""

_MAX_CLOSING: Final = 8
"""Threads that close descriptors, at once. If so many are held up, no more lanes are opened."""

_NO_ROOM: Final = "the server has no room for the memory of another lane now; tensors go through the body"


class Lanes:
    """The memory lanes of one server.

    Attributes:
        used_bytes: of memory that is mapped.
    """

    def __init__(self, options: ServerOptions, budget: Budget, limits: Limits) -> None:
        """Prepare.

        Raises:
            LocalProtocolError: this system has no memory files.
        """
        if not HAS_MEMORY_FILES:
            raise LocalProtocolError("max_lane_bytes: this system has no memory files, which a memory lane needs")
        self._max_bytes = options.max_lane_bytes
        self._idle_timeout = options.idle_timeout
        self._budget = budget
        self._limits = limits
        self._mapped: list[_Mapped] = []
        self._turn = anyio.CapacityLimiter(1)
        self._ended: list[SharedMemory] = []
        self._closing: list[threading.Thread] = []
        self.used_bytes: int = 0

    async def open(self, sock: socket.socket) -> SharedMemory | None:
        """Wait for the first bytes of a connection; open its lane if they ask for one, and answer.

        Args:
            sock: a Unix socket, non-blocking.

        Returns:
            The memory; None if there is no lane, which the client has been told if it has asked.

        Raises:
            TimeoutError: nothing has come within `idle_timeout`.
            OSError: the client has left.
        """
        opening = await self._first_bytes(sock)
        self._closing = [closing for closing in self._closing if closing.is_alive()]
        is_held_up = len(self._closing) >= _MAX_CLOSING
        is_whole = opening.find(_HEAD_END) + len(_HEAD_END) == len(opening)
        if is_held_up or not is_whole or not opening.startswith(_BEGINNING):
            return None
        head = read_plain_head(opening, self._limits)
        if head is None or head.target != LANE_PATH or head.content_length:
            return None
        _, descriptors, are_all = receive_descriptors(sock, len(opening), _MEMORIES)
        memory = None
        try:
            memory = await self._shared(head, descriptors if are_all else ())
            reply = json_reply({"memory_lane": int(LANE_VERSION)}, headers=[(LANE_FIELD, LANE_VERSION)])
        except RemoteProtocolError as error:
            reply = error_reply(error)
            drop_tracebacks(error)
        except _NoRoomError:
            reply = unavailable_reply(_NO_ROOM, retry_after=1)
        except OSError as error:
            logger.warning("a memory lane cannot be opened: %s", error)
            reply = unavailable_reply(_NO_ROOM, retry_after=1)
        finally:
            self._close(descriptors)
        self._send(sock, opening, reply)
        return memory

    def end(self, memory: SharedMemory) -> None:
        """Take the memory of a connection that has ended."""
        self._ended.append(memory)

    async def watch(self) -> None:
        """Give memory back when nothing refers to it; this runs as long as the server."""
        try:
            while True:
                await anyio.sleep(_LOOK_SECONDS)
                await self._look()
        finally:
            self._ended.clear()

    async def _look(self) -> None:
        """Unmap the memory of connections that have ended, and give back that to which nothing refers any more."""
        if self._ended:
            await in_thread(self._ended.clear, self._turn)
        for mapped in [each for each in self._mapped if each.is_over]:
            self._mapped.remove(mapped)
            self._give_back(mapped.reservation)

    async def _first_bytes(self, sock: socket.socket) -> bytes:
        """Wait until there are bytes, and return them without taking them."""
        with anyio.fail_after(self._idle_timeout):
            while True:
                try:
                    return sock.recv(_MAX_OPENING_BYTES, socket.MSG_PEEK)
                except BlockingIOError:
                    await anyio.wait_readable(sock)

    async def _shared(self, head: RequestHead, descriptors: Sequence[int]) -> SharedMemory:
        """Map the memory of a client.

        Raises:
            RemoteProtocolError: `invalid-member`: the memory cannot be shared safely, or there is not one of each kind.
            OSError: it cannot be mapped.
        """
        if head.fields.values(LANE_FIELD.lower().encode()) != [LANE_VERSION.encode()]:
            raise _refusal(f"{LANE_FIELD} must be {LANE_VERSION}, the version of the lane that this server knows")
        if not descriptors:
            raise _refusal(f"a lane is opened with {_MEMORIES} descriptors, sent together with the first byte")
        await self._look()
        requests, answers = descriptors
        sizes = [
            check_memory(requests, self._max_bytes, is_written=False),
            check_memory(answers, self._max_bytes, is_written=True),
        ]
        reservation, nbytes = Reservation(self._budget), sum(sizes)
        if nbytes > self._max_bytes - self.used_bytes or not reservation.ask_at_once(nbytes):
            raise _NoRoomError
        self.used_bytes += nbytes
        try:
            memories, shared = await in_thread(partial(_map_both, descriptors, sizes), self._turn)
        except BaseException:
            self._give_back(reservation)
            raise
        self._mapped.append(_Mapped(memories, reservation))
        return shared

    def _give_back(self, reservation: Reservation) -> None:
        self.used_bytes -= reservation.nbytes
        reservation.release()

    def _close(self, descriptors: Sequence[int]) -> None:
        """Close descriptors. Those of other files are closed by a thread, which a hostile file can hold up for ever."""
        others = [descriptor for descriptor in descriptors if not is_memory_file(descriptor)]
        close_all(set(descriptors).difference(others))
        if others:
            closing = threading.Thread(target=close_all, args=(others,), name="streamcodec closing", daemon=True)
            closing.start()
            self._closing.append(closing)

    def _send(self, sock: socket.socket, opening: bytes, reply: Reply) -> None:
        """Answer the opening. Nothing has been sent before, so the system takes these few bytes at once."""
        connection = ServerConnection(self._limits)
        connection.feed(opening)
        connection.next_event()
        answer = b"".join(map(bytes, connection.send_response(reply.status, reply.headers, reply.buffers)))  # type: ignore[arg-type] # no Rows
        if sock.send(answer) < len(answer):
            msg = "the client does not read"
            raise ConnectionAbortedError(msg)


class _NoRoomError(Exception):
    """Other lanes, or other requests, use the memory."""


class _Mapped:
    """The memory of one lane, as long as it is mapped."""

    def __init__(self, memories: Sequence[weakref.ref[object]], reservation: Reservation) -> None:
        self._memories = memories
        self.reservation = reservation

    @property
    def is_over(self) -> bool:
        return all(memory() is None for memory in self._memories)


def _map_both(descriptors: Sequence[int], sizes: Sequence[int]) -> tuple[list[weakref.ref[object]], SharedMemory]:
    """Map both memories; this takes long."""
    requests, requests_octets = map_memory(descriptors[0], sizes[0], is_written=False)
    answers, answers_octets = map_memory(descriptors[1], sizes[1], is_written=True)
    shared = SharedMemory(requests=requests_octets, answers=answers_octets)
    return [weakref.ref(requests), weakref.ref(answers)], shared


def _refusal(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(text, code=ErrorCode.INVALID_MEMBER)
