"""A server that ends connections anywhere: `python -m tests.soak.clients.server --seed 0`. Prints its port.

It answers each inference request with its own input, if it answers. When it is terminated, it prints as JSON how often
each id was executed, and for which ids a kept connection ended after the execution, without a byte of the answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import socket
import struct
from collections import Counter
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final

_RESET: Final = struct.pack("ii", 1, 0)
_LARGEST: Final = 1 << 22


class Place(Enum):
    """Where a connection ends."""

    NOWHERE = auto()
    AFTER_HEAD = auto()
    WITHIN_BODY = auto()
    BEFORE_EXECUTION = auto()
    AFTER_EXECUTION = auto()
    WITHIN_ANSWER_HEAD = auto()
    WITHIN_ANSWER_BODY = auto()
    AFTER_ANSWER = auto()


_PLACES: Final = [*Place]
_WEIGHTS: Final = [150, *[3] * (len(_PLACES) - 1)]
_AT_ACCEPT: Final = 0.02
_REFUSED: Final = 0.02
_GARBLED: Final = 0.005
_DELAYED: Final = 0.15
_IN_PIECES: Final = 0.05
_TOO_LATE: Final = 0.002
_MOST_DELAY: Final = 0.05
_LATE_SECONDS: Final = 3.0


class _Ended(Exception):  # noqa: N818 - no error: it was meant
    """The connection has been ended."""


class Chaos:
    """The server, and what it has seen."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self.executed: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        connection = _Connection(self, self._random, reader, writer)
        with suppress(_Ended, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            if self._random.random() < _AT_ACCEPT:
                connection.end()
            while True:
                await connection.exchange()
        writer.close()


class _Connection:
    def __init__(
        self, chaos: Chaos, rng: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._chaos = chaos
        self._random = rng
        self._reader = reader
        self._writer = writer

    def end(self) -> None:
        """Close the connection, or reset it."""
        if self._random.random() < 1 / 2:
            sock: socket.socket = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._writer.transport.abort()
        raise _Ended

    async def exchange(self) -> None:
        """Read a request, and answer it as chance has it."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        (place,) = self._random.choices(_PLACES, _WEIGHTS)
        self._end_at(place, Place.AFTER_HEAD)
        length = _number(head, b"content-length")
        if place is Place.WITHIN_BODY:
            await self._reader.readexactly(self._random.randrange(length))
            self.end()
        body = await self._reader.readexactly(length)
        self._end_at(place, Place.BEFORE_EXECUTION)
        if self._random.random() < _REFUSED:
            await self._send(_answer(b'{"error":"not now"}', "503 Service Unavailable"))
            return
        header = json.loads(body[: _number(head, b"inference-header-content-length")])
        self._chaos.executed[header["id"]] += 1
        self._end_at(place, Place.AFTER_EXECUTION)
        await self._answer(place, _echo(header, body, _number(head, b"inference-header-content-length")))

    async def _answer(self, place: Place, answer: bytes) -> None:
        chance = self._random.random()
        if chance < _GARBLED:
            answer = self._random.randbytes(100)
            place = Place.AFTER_ANSWER
        elif chance < _GARBLED + _TOO_LATE:
            await asyncio.sleep(_LATE_SECONDS)
        elif chance < _DELAYED:
            await asyncio.sleep(self._random.uniform(0, _MOST_DELAY))
        head_size = answer.find(b"\r\n\r\n") + 4
        if place is Place.WITHIN_ANSWER_HEAD:
            answer = answer[: self._random.randrange(1, head_size)]
        elif place is Place.WITHIN_ANSWER_BODY:
            answer = answer[: self._random.randrange(head_size, len(answer))]
        await self._send(answer)
        if place is not Place.NOWHERE:
            self.end()

    async def _send(self, answer: bytes) -> None:
        cut = self._random.randrange(len(answer)) if self._random.random() < _IN_PIECES else len(answer)
        self._writer.write(answer[:cut])
        await self._writer.drain()
        if cut < len(answer):
            await asyncio.sleep(self._random.uniform(0, _MOST_DELAY))
            self._writer.write(answer[cut:])
            await self._writer.drain()

    def _end_at(self, place: Place, here: Place) -> None:
        if place is here:
            self.end()


def _number(head: bytes, name: bytes) -> int:
    return int(head.lower().partition(b"\r\n" + name + b":")[2].partition(b"\r\n")[0])


def _echo(header: dict[str, Any], body: bytes, length: int) -> bytes:
    answer = {"model_name": "identity", "id": header["id"], "outputs": header["inputs"]}
    document = json.dumps(answer).encode()
    field = f"\r\nInference-Header-Content-Length: {len(document)}"
    return _answer(document + body[length:], f"200 OK{field}")


def _answer(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def _run(seed: int) -> None:
    chaos, has_ended = Chaos(seed), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, has_ended.set)
    server = await asyncio.start_server(chaos.serve, "127.0.0.1", 0, limit=_LARGEST, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await has_ended.wait()
    print(json.dumps(chaos.executed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.soak.clients.server", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of what happens (default: %(default)s)")
    asyncio.run(_run(parser.parse_args().seed))
