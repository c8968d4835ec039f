"""Faults: clients of the service within other people's servers that break off, thousands of them, and what is left.

    python -m tests.embedding.faults [--count 10000] [SERVER ...]

Each client does one of the `FAULTS`, chosen by chance, some clients at a time. The server tells before and after them
what it has in use. The last clients are still there when the server gets SIGTERM: it has to end all the same.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from tests.benchmarks.embedding import request
from tests.embedding.conformance import ask
from tests.embedding.servers import SERVERS, Embedding, embedded
from tests.processes import cpu_clock

Address = tuple[str, int]
State = dict[str, int]

_SECONDS: Final = 30.0
_AT_ONCE: Final = 16
_KIB: Final = 1 << 10
_KEPT: Final = 4
"""Sockets and tasks that a server may have more than before: connections that it is about to close."""

KEPT_THREADS: Final = 40
"""Threads that a server and the models keep for the next requests, at most; clients at once need no more."""

HEADINGS: Final = (
    "server",
    "clients",
    "sockets",
    "tasks",
    "threads",
    "reserved bytes",
    "pool blocks",
    "all given back",
    "s (CPU)",
    "SIGTERM: s (status)",
)

STATE: Final = b"GET /~/state HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def message(model: str, nbytes: int) -> bytes:
    """Return a request."""
    return b"".join(request(f"/v2/models/{model}/infer", np.zeros(nbytes // 4, np.float32)))


SINK: Final = message("sink", 512 * _KIB)
IDENTITY: Final = message("identity", 4096 * _KIB)
ROWS: Final = message("few_rows", 64)
WINDOWED: Final = message("windowed", 512 * _KIB)
WAITING: Final = message("waiting", 64)


def leave_abruptly(sock: socket.socket) -> None:
    """Close with a reset, as a program that has crashed."""
    with suppress(OSError):  # the server has closed
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def _begun(address: Address, data: bytes) -> socket.socket:
    """Return a connection on which something has been sent, as far as the server takes it."""
    sock = socket.create_connection(address, _SECONDS)
    with suppress(OSError):
        sock.sendall(data)
    return sock


def _part(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(1, len(data))]


def gone_in_mid_head(address: Address, chance: random.Random) -> None:
    """Leave before the head has come."""
    leave_abruptly(_begun(address, SINK[: chance.randrange(1, 100)]))


def gone_in_mid_body(address: Address, chance: random.Random) -> None:
    """Leave while the tensor is being sent."""
    leave_abruptly(_begun(address, _part(SINK, chance)))


def closed_in_mid_body(address: Address, chance: random.Random) -> None:
    """The same in the usual way, without a reset."""
    _begun(address, _part(SINK, chance)).close()


def gone_in_mid_answer(address: Address, _: random.Random) -> None:
    """Leave while a tensor is being answered."""
    _leave_in_answer(address, IDENTITY)


def gone_in_mid_rows(address: Address, _: random.Random) -> None:
    """Leave while the answer is being made."""
    _leave_in_answer(address, ROWS)


def gone_in_mid_windows(address: Address, chance: random.Random) -> None:
    """Leave while a model waits for a window."""
    leave_abruptly(_begun(address, _part(WINDOWED, chance)))


def gone_in_mid_call(address: Address, chance: random.Random) -> None:
    """Leave while a model works: its task is cancelled if it is asynchronous."""
    sock = _begun(address, WAITING)
    time.sleep(chance.choice([0.0, 0.001, 0.005]))
    leave_abruptly(sock)


def half_closed(address: Address, chance: random.Random) -> None:
    """Send no more, and read the answer to it, if there is one."""
    with _begun(address, _part(SINK, chance)) as sock, suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(1)
        while sock.recv(1 << 16):
            pass


FAULTS: Final[list[Callable[[Address, random.Random], None]]] = [
    gone_in_mid_head,
    gone_in_mid_body,
    closed_in_mid_body,
    gone_in_mid_answer,
    gone_in_mid_rows,
    gone_in_mid_windows,
    gone_in_mid_call,
    half_closed,
]


def _leave_in_answer(address: Address, data: bytes) -> None:
    sock = _begun(address, data)
    with suppress(OSError):
        sock.recv(1000)
    leave_abruptly(sock)


def do(address: Address, count: int) -> None:
    """Have so many clients break off."""
    chance = random.Random(count)  # noqa: S311 - no secret
    chosen = [(chance.choice(FAULTS), random.Random(number)) for number in range(count)]  # noqa: S311 - no secret
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in threads.map(lambda one: one[0](address, one[1]), chosen):
            pass


def state_of(embedding: Embedding, query: bytes = b"") -> State:
    """Return what the server has in use."""
    answer = ask(embedding.address, STATE.replace(b"state", b"state" + query), half_closes=False)
    assert answer is not None
    assert answer[0] == 200
    state: State = json.loads(answer[1])
    return state


def settled(embedding: Embedding, before: State | None = None) -> State:
    """Wait until nothing is in use that was taken for requests; return the last state.

    Servers close connections of clients that have left when they find out.
    """
    end = time.monotonic() + _SECONDS
    state = state_of(embedding)
    while not is_settled(state, before) and time.monotonic() < end:
        time.sleep(0.2)
        state = state_of(embedding)
    return state


def is_settled(state: State, before: State | None) -> bool:
    """Whether a server has as little in use as before."""
    if state["reserved"] or state["blocks"]:
        return False
    if before is None:
        return True
    is_kept = all(state[name] <= before[name] + _KEPT for name in ("sockets", "files", "tasks"))
    return is_kept and state["threads"] <= before["threads"] + KEPT_THREADS


def stop_with_requests(embedding: Embedding) -> tuple[float, int]:
    """Send SIGTERM while requests run; return after how many seconds the server has ended, and with what status."""
    running = [
        _begun(embedding.address, data)
        for data in (SINK[: len(SINK) // 2], WINDOWED[: len(WINDOWED) // 2], ROWS, WAITING)
        for _ in range(4)
    ]
    began = time.perf_counter()
    embedding.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    for sock in running:
        leave_abruptly(sock)
    status = embedding.process.wait(_SECONDS)
    return time.perf_counter() - began, status


def line(server: str, count: int) -> str:
    """Return a line of the table."""
    command, kind = SERVERS[server]
    with (
        tempfile.TemporaryDirectory() as folder,
        embedded(command, f"tests.embedding.apps:watched_{kind}", Path(folder, "log")) as embedding,
    ):
        do(embedding.address, _AT_ONCE)  # all is imported by then
        before = settled(embedding)
        clock, began = cpu_clock(embedding.pids[-1]), time.perf_counter()
        cpu_began = clock()
        do(embedding.address, count)
        seconds, cpu_seconds = time.perf_counter() - began, clock() - cpu_began
        after = settled(embedding, before)
        ended, status = stop_with_requests(embedding)
    names = ("sockets", "tasks", "threads", "reserved", "blocks")
    cells = [server, str(count), *(f"{before[name]} / {after[name]}" for name in names)]
    cells += [
        "yes" if is_settled(after, before) else "NO",
        f"{seconds:.0f} ({cpu_seconds:.0f})",
        f"{ended:.1f} ({status})",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.embedding.faults")
    parser.add_argument("--count", type=int, default=10_000, help="clients that break off (default: %(default)s)")
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=f"of {', '.join(SERVERS)}")
    arguments = parser.parse_args()
    print(f"| {' | '.join(HEADINGS)} |")  # noqa: T201 - it is a command
    print(f"|{' --- |' * len(HEADINGS)}")  # noqa: T201
    for server in arguments.servers or SERVERS:
        print(line(server, arguments.count), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
