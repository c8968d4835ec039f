"""Slow links: honest clients behind a link that throttles and stalls, and clients that are slow on purpose.

`python -m tests.server.slow_links` runs them with real figures (2 kB/s, stalls of 20 s, the default limits and those of
`--slow-links`), all at once, for about seven minutes, and prints a table. The tests run the same, with shorter times.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import anyio
import numpy as np

from streamcodec.client import AsyncClient, Client, ServerError
from streamcodec.engine.errors import ProtocolError
from streamcodec.server import ServerOptions
from streamcodec.service import Model, ModelRegistry
from tests.server.programs import server_here
from tests.server.wire import head, infer_request, post

logger: Final = logging.getLogger(__name__)

Address = tuple[str, int]

_BUFFER_BYTES: Final = 8 << 10
"""Of the link's sockets: what they hold seems to have arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How a link moves bytes, in each direction."""

    rate: float
    """Bytes per second while it moves."""
    moving: float
    """Seconds in which it moves, before each stall."""
    stall: float
    """Seconds in which nothing moves."""

    @contextmanager
    def to(self, server: Address) -> Iterator[Address]:
        """Open the link to a server; yield its other end."""
        with _listener() as listener:
            threading.Thread(target=self._accept, args=(listener, server), daemon=True).start()
            yield listener.getsockname()
            listener.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket, server: Address) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.socket()
                _shrink(far)
                far.connect(server)
                threading.Thread(target=self._connect, args=(near, far), daemon=True).start()

    def _connect(self, near: socket.socket, far: socket.socket) -> None:
        began = time.monotonic()
        with near, far:
            back = threading.Thread(target=self._move, args=(far, near, began), daemon=True)
            back.start()
            self._move(near, far, began)
            back.join()

    def _move(self, source: socket.socket, target: socket.socket, began: float) -> None:
        due = began
        with suppress(OSError):
            while data := source.recv(1 << 10):
                due = max(due, time.monotonic() - 0.05) + len(data) / self.rate
                phase = (due - began) % (self.moving + self.stall)
                if phase > self.moving:
                    due += self.moving + self.stall - phase
                time.sleep(max(0.0, due - time.monotonic()))
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def _listener() -> socket.socket:
    listener = socket.socket()
    _shrink(listener)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def _shrink(sock: socket.socket) -> None:
    """Give a socket short buffers, and packets as of a real network."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)


def registry() -> ModelRegistry:
    """Return a model that takes much, and one that answers much."""
    return ModelRegistry.of(
        [
            Model(name="sink", predict=lambda request: {"y": np.array([request.inputs["x"].nbytes])}),
            Model(name="source", predict=lambda request: {"y": np.zeros(int(request.inputs["x"][0]), np.uint8)}),
        ]
    )


def exchange(url: str, name: str, nbytes: int, timeout: float, *, is_async: bool) -> bool:
    """Send many bytes to the model `sink`, or receive many of `source`; return whether that went well."""
    x = np.zeros(nbytes, np.uint8) if name == "sink" else np.array([nbytes])

    async def call() -> int:
        async with AsyncClient(url, timeout=timeout) as client:
            return _size(name, (await client.infer(name, {"x": x}))["y"])

    try:
        if is_async:
            return anyio.run(call) == nbytes
        with Client(url, timeout=timeout) as client:
            return _size(name, client.infer(name, {"x": x})["y"]) == nbytes
    except (OSError, ProtocolError, ServerError) as error:
        logger.info("%s: %r", name, error)
        return False


def _size(name: str, y: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> int:
    return int(y[0]) if name == "sink" else y.nbytes


def honest(options: ServerOptions, link: Link, nbytes: int, timeout: float, *, backend: str) -> dict[str, bool]:
    """Run uploads and downloads of both clients over one link, all at once; return which went well."""
    names = {f"{kind}, {name}": (name, kind == "AsyncClient") for kind in ("Client", "AsyncClient") for name in _NAMES}
    with (
        server_here(registry(), options, backend=backend) as (_, server),
        link.to(server) as (host, port),
        ThreadPoolExecutor(len(names)) as threads,
    ):
        running = {
            text: threads.submit(exchange, f"http://{host}:{port}", name, nbytes, timeout, is_async=is_async)
            for text, (name, is_async) in names.items()
        }
        return {text: future.result() for text, future in running.items()}


_NAMES: Final = ("sink", "source")


def _drip(sock: socket.socket, begin: bytes, interval: float) -> None:
    sock.sendall(begin)
    while True:
        time.sleep(interval)
        sock.sendall(b"a")


def _sip(sock: socket.socket, begin: bytes, interval: float) -> None:
    sock.sendall(begin)
    while sock.recv(1):
        time.sleep(interval)


_MUCH: Final = 64 << 20
"""More than the system takes at once."""

_INPUT: Final = (
    b'{"inputs":[{"name":"x","datatype":"INT64","shape":[1],"data":[%d]}],"parameters":{"binary_data_output":true}}'
)

ATTACKS: Final[dict[str, tuple[Callable[[socket.socket, bytes, float], None], bytes]]] = {
    "head": (_drip, head("/v2")[:-2]),
    "body": (_drip, infer_request("sink", count=1 << 20)[:1000]),
    "reading": (_sip, post(_INPUT % _MUCH, model="source")),
}
"""How a client is slow on purpose, and what it sends first."""


def seconds_of_attack(attack: str, options: ServerOptions, interval: float, most: float) -> float:
    """Attack a server, with a byte for each interval; return after how many seconds it ends the connection."""
    act, begin = ATTACKS[attack]
    with server_here(registry(), options) as (server, address), socket.socket() as sock:
        _shrink(sock)
        sock.connect(address)
        began = time.monotonic()
        thread = threading.Thread(target=_quietly, args=(partial(act, sock, begin, interval),), daemon=True)
        thread.start()
        while not server.load().connections:
            time.sleep(0.01)
        while server.load().connections and time.monotonic() < began + most:
            time.sleep(0.02)
        seconds = time.monotonic() - began
        sock.close()
        thread.join()
        return seconds


def _quietly(act: Callable[[], None]) -> None:
    with suppress(OSError):
        act()


def main() -> None:
    """Print the table."""
    limits = {"default": ServerOptions(), "--slow-links": ServerOptions.for_slow_links()}
    with ThreadPoolExecutor(16) as threads:
        for line in list(chain.from_iterable(_started(threads, *named) for named in limits.items())):
            print(line())  # noqa: T201 - the table


def _started(threads: ThreadPoolExecutor, text: str, options: ServerOptions) -> Iterator[Callable[[], str]]:
    """Start everything with one set of limits; yield what waits for a line of the table."""
    for link, nbytes in (
        (Link(rate=2000, moving=40, stall=20), 240_000),
        (Link(rate=2000, moving=10, stall=20), 80_000),
    ):
        served = threads.submit(honest, options, link, nbytes, 60.0, backend="asyncio")
        yield partial(
            _line, f"{text}, {nbytes} bytes, {link.moving:g} s at 2 kB/s, {link.stall:g} s of nothing", served
        )
    for attack in ATTACKS:
        seconds = threads.submit(seconds_of_attack, attack, options, 1.0, 600.0)
        yield partial(_line, f"{text}, slow on purpose: {attack}, ended after seconds", seconds)


def _line(text: str, found: Future[Any]) -> str:
    return f"{text}: {found.result()}"


if __name__ == "__main__":
    main()
