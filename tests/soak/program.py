"""Program: the real server in a process of its own, with a hook by which a test learns what it holds.

The hook is here and not in the product: a socket that this program gets from whoever starts it. Each byte that comes is
answered with one line of JSON, by the server's own event loop, after a full garbage collection, and when the C library
has given back what it only kept for later: how much that is, depends on which large requests once came together.
A byte `!` asks instead for how long the event loop was held up since it was last asked, and by what; see `stalls`.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import logging
import os
import signal
import socket
import threading
from collections import Counter
from contextlib import ExitStack
from typing import Any, Final

import anyio

from streamcodec import Limits, Pool
from streamcodec.server import Server, ServerOptions, open_listener
from streamcodec.server.processes.running import collect_seldom
from streamcodec.service import Service
from tests.processes import resident
from tests.soak.models import models
from tests.stalls import Meter, on_asyncio, trio_instruments

MAX_MESSAGE_BYTES = 128 << 20
"""Of the server under soak, so that nothing of 256 MiB comes in."""

POOL_BYTES = 64 << 20

_ROOMS: Final = ("streamcodec.server", "streamcodec.http.connection", "streamcodec.engine.decoder")
"""Where the classes are of which each connection has its own objects."""


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.program")
    parser.add_argument("--loop", choices=["asyncio", "uvloop", "trio"], required=True)
    parser.add_argument("--control", type=int, required=True, metavar="FD", help="socket of whoever asks")
    parser.add_argument("--options", type=json.loads, default={}, help="of the server, as a JSON object")
    parser.add_argument("--limits", type=json.loads, help="instead of the soak's and its pool, as a JSON object")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(name)s %(levelname)s: %(message)s")
    server = Server(_service(arguments.limits), ServerOptions(**arguments.options))
    collect_seldom()
    meter = Meter()
    with ExitStack() as stack:
        stack.enter_context(meter.watched())
        if arguments.loop == "asyncio":
            stack.enter_context(on_asyncio(meter))
        anyio.run(
            _run,
            server,
            socket.socket(fileno=arguments.control),
            meter,
            backend="trio" if arguments.loop == "trio" else "asyncio",
            backend_options={"instruments": trio_instruments(meter)}
            if arguments.loop == "trio"
            else {"use_uvloop": arguments.loop == "uvloop"},
        )


def _service(limits: dict[str, int] | None) -> Service:
    if limits is not None:
        return Service(models(), limits=Limits(**limits))
    pool = Pool(max_idle_bytes=POOL_BYTES)
    return Service(models(), limits=Limits(max_message_bytes=MAX_MESSAGE_BYTES), place=lambda _: pool)


async def _run(server: Server, control: socket.socket, meter: Meter) -> None:
    with control, anyio.open_signal_receiver(signal.SIGTERM) as signals, open_listener("127.0.0.1", 0) as listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(meter.beat)
            tasks.start_soon(_answer, server, control, meter)
            tasks.start_soon(_serve, server, listener, tasks.cancel_scope)
            print(json.dumps(listener.getsockname()), flush=True)
            async for _ in signals:
                server.stop()


async def _serve(server: Server, listener: socket.socket, everything: anyio.CancelScope) -> None:
    await server.serve(listener)
    everything.cancel()


async def _answer(server: Server, control: socket.socket, meter: Meter) -> None:
    control.setblocking(False)
    while True:
        await anyio.wait_readable(control)
        match control.recv(1):
            case b"":  # whoever has started this has ended
                server.stop()
                return
            case b"!":
                found = meter.report()
            case _:
                found = _held(server)
        meter.excuse()
        control.sendall(json.dumps(found).encode() + b"\n")


def _trim() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc only
    if trim is not None:
        trim(0)


def _held(server: Server) -> dict[str, Any]:
    """Count what the process has, and what of the library is alive, when all that can go has gone."""
    gc.collect()
    _trim()
    alive = Counter(type(item).__name__ for item in gc.get_objects() if _is_ours(type(item)))
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - names are enough
        "tasks": len(anyio.get_running_tasks()),
        "threads": sum(thread.name != "stalls" for thread in threading.enumerate()),
        "connections": len(server._listening.peers),  # noqa: SLF001 - nobody else has a use for these two
        "reserved": server.reserved_bytes,
        "resident": resident(os.getpid()),
        "alive": {name: alive[name] for name in sorted(alive)},
    }


def _is_ours(kind: type) -> bool:
    return str(kind.__module__).startswith(_ROOMS)


if __name__ == "__main__":
    main()
