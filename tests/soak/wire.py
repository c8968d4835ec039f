"""Wire: one connection of a client under asyncio, byte for byte as the soak wants it. Nothing here is streamcodec's."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Address = tuple[str, int]
Buffer = bytes | memoryview

_READ_BYTES = 256 << 10
_CONTINUE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of an answer."""

    status: int
    fields: dict[str, str]
    """Names in lower case."""

    @property
    def body_length(self) -> int:
        return int(self.fields.get("content-length", "0"))

    @property
    def header_length(self) -> int:
        return int(self.fields.get("inference-header-content-length", self.body_length))

    @property
    def is_last(self) -> bool:
        return self.fields.get("connection") == "close"


class Line:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()

    @classmethod
    async def open(cls, address: Address, *, receive_bytes: int | None = None) -> Line:
        """Connect; the system keeps about `receive_bytes` of what has come and nobody has read."""
        sock = socket.socket()
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock)

    async def send(self, parts: Iterable[Buffer]) -> None:
        for part in parts:
            await self._loop.sock_sendall(self.sock, part)

    async def head(self) -> Head:
        """Read the head of the next answer, not an interim one."""
        while (end := self._unread.find(b"\r\n\r\n")) < 0:
            self._unread += await self._receive(_READ_BYTES)
        first, *lines = self._unread[:end].decode("ascii").split("\r\n")
        del self._unread[: end + 4]
        pairs = (line.split(": ", 1) for line in lines)
        head = Head(status=int(first.split()[1]), fields={name.lower(): value for name, value in pairs})
        return await self.head() if head.status == _CONTINUE else head

    async def some(self, most: int) -> bytes:
        """Read some bytes of a body, at least one."""
        if not self._unread:
            return await self._receive(min(most, _READ_BYTES))
        taken = bytes(self._unread[:most])
        del self._unread[:most]
        return taken

    async def prefetch(self, most: int) -> None:
        """Read so much at most, and keep it for later."""
        self._unread += await self._receive(most)

    async def exactly(self, nbytes: int) -> bytes:
        pieces: list[bytes] = []
        while nbytes:
            pieces.append(await self.some(nbytes))
            nbytes -= len(pieces[-1])
        return b"".join(pieces)

    async def document(self, head: Head) -> Any:  # noqa: ANN401 - any JSON value
        """Read an answer that is JSON."""
        return json.loads(await self.exactly(head.body_length))

    def end(self) -> None:
        """Close one direction."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close so that the peer finds a broken connection."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        self.sock.close()

    async def _receive(self, most: int) -> bytes:
        chunk = await self._loop.sock_recv(self.sock, most)
        if not chunk:
            msg = "the server has closed the connection"
            raise ConnectionResetError(msg)
        return chunk
