"""Live shortage: a server with real sockets, of which some allocations of the interpreter fail, wherever they are.

A program: `python -m tests.server.live_shortage LOOP NAME STRIDE [WIDTH]`. The server is a process of its own, which is
used again as long as it serves. A signal tells it from which allocation on so many fail; they are counted from there,
so they are in the event loop, in accepting, in the protocol's callbacks, in tasks and in closing. It prints what each
came to.
"""

from __future__ import annotations

import _testcapi  # type: ignore[import-not-found]  # the interpreter's own tests' module
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio

from streamcodec.server import Server, ServerOptions, open_listener
from streamcodec.server.processes.loops import new_loop
from streamcodec.service import Model, ModelRegistry, Service, demo_models
from tests.server.shortage import REQUESTS
from tests.server.wire import GET_LIVE, infer_request

_ORDER: Final = struct.Struct("ii")
_REPORT: Final = struct.Struct("iid")
_SECONDS: Final = 2.0
"""An answer that has not come by then does not come."""

_CALLS: Final = 10
"""So often a server is told before it counts as lost."""

_QUIET: Final = 300
"""So many allocations at the end that nobody minds."""

BACKENDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "asyncio": ("asyncio", {"loop_factory": partial(new_loop, is_uvloop=False)}),
    "uvloop": ("asyncio", {"loop_factory": partial(new_loop, is_uvloop=True)}),
    "trio": ("trio", {}),
}

OPTIONS: Final = ServerOptions(idle_timeout=0.6, head_timeout=0.6, header_timeout=0.6, read_timeout=0.6)
"""Who is not read from any more is given up soon."""

ALL: Final = {**REQUESTS, "threaded": infer_request("threaded")}


class Victim:
    """The server's process."""

    def __init__(self, loop: str) -> None:
        self._listener = open_listener("127.0.0.1", 0)
        self.address = self._listener.getsockname()
        orders, self._orders = os.pipe()
        self._reports, reports = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            _serve(loop, self._listener, orders, reports)
        os.close(orders)
        os.close(reports)
        self._listener.close()

    def arm(self, start: int, stop: int) -> None:
        """Let these allocations fail; `0, 0` for none."""
        os.write(self._orders, _ORDER.pack(start, stop))
        for _ in range(_CALLS):  # the allocation that fails may be one of those that obeying takes
            os.kill(self.pid, signal.SIGUSR1)
            if select.select([self._reports], [], [], 1)[0]:
                break
        else:
            raise TimeoutError
        self.drivers, self.reserved, self.seconds = _REPORT.unpack(os.read(self._reports, _REPORT.size))

    def end(self) -> int:
        """End it; return how it has ended, -1 if only now."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._orders)
        os.close(self._reports)
        return status if pid else -1


def _serve(loop: str, listener: socket.socket, orders: int, reports: int) -> None:
    """Be the server; never return."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what is logged is no news here
    registry = ModelRegistry.of([*demo_models(), Model(name="threaded", predict=lambda request: dict(request.inputs))])
    server = Server(Service(registry), OPTIONS)

    def obey(*_: object) -> None:
        _testcapi.remove_mem_hooks()
        if not select.select([orders], [], [], 0)[0]:  # told twice, and the first has come, only late
            return
        start, stop = _ORDER.unpack(os.read(orders, _ORDER.size))
        seconds = time.process_time()
        os.write(reports, _REPORT.pack(len(server._listening.peers), server.reserved_bytes, seconds))  # noqa: SLF001 - no other way
        if stop:
            _testcapi.set_nomemory(start, stop)

    async def serve() -> None:
        signal.signal(signal.SIGUSR1, obey)
        await server.serve(listener)

    backend, options = BACKENDS[loop]
    try:
        anyio.run(serve, backend=backend, backend_options=options)
    finally:
        os._exit(1)


def ask(address: tuple[str, int], request: bytes) -> str:
    """Return the status of the answer on a new connection; or what came instead."""
    try:
        with socket.create_connection(address, _SECONDS) as sock:
            sock.settimeout(_SECONDS)
            with suppress(ConnectionError):
                sock.sendall(request)
            head = sock.recv(1 << 16)
            status = head[9:12].decode() if head else "closed"
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 20):
                pass
            return status
    except TimeoutError:
        return "silent"
    except OSError:
        return "closed"


def attempt(victim: Victim, request: bytes, start: int, stop: int) -> str:
    """Return what a request comes to when these allocations fail, and what is wrong afterwards."""
    victim.arm(start, stop)
    outcome = ask(victim.address, request)
    victim.arm(0, 0)
    for _ in range(3):  # others
        if (health := ask(victim.address, GET_LIVE)) != "200":
            return f"{outcome}, then {health}"
    deadline = time.monotonic() + _SECONDS
    while victim.drivers or victim.reserved:
        if time.monotonic() > deadline:
            return f"{outcome}, and something is left"
        time.sleep(0.002)
        victim.arm(0, 0)
    if outcome == "silent" or stop > start + 1:
        before = victim.seconds
        time.sleep(0.1)
        victim.arm(0, 0)
        if victim.seconds - before > 0.05:
            return f"{outcome}, and it spins"
    return outcome


def main(loop: str, name: str, stride: int, width: int = 1) -> None:
    """Try one kind of request, with every so manieth allocation; print outcomes and how often each came."""
    request = ALL[name]
    victim = Victim(loop)
    expected = [ask(victim.address, request) for _ in range(3)][-1]
    found: Counter[str] = Counter()
    where: dict[str, list[int]] = {}
    quiet = start = 0
    while quiet < _QUIET:
        try:
            outcome = attempt(victim, request, start, start + width)
            is_well = "," not in outcome
        except (OSError, TimeoutError, struct.error):
            outcome, is_well = "", False
        if not is_well:
            time.sleep(0.05)
            ended = victim.end()
            if ended != -1:
                outcome = f"ended by {ended}"
            victim = Victim(loop)
            for _ in range(3):
                ask(victim.address, request)
        found[outcome] += 1
        where.setdefault(outcome, []).append(start)
        quiet = quiet + stride if outcome == expected else 0
        start += stride
    victim.end()
    first = {key: at[:12] for key, at in where.items() if key != expected}
    sys.stdout.write(json.dumps({"expected": expected, "points": start, "found": found, "first": first}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
