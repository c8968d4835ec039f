"""Faults: clients of the bundled server that break off, thousands of them, with TLS and with workers that die.

    python -m tests.server.faults [--count 10000] [SERVER ...]

Each client does one of the `FAULTS`, chosen by chance, some clients at a time. In between, some clients ask as they
should, and must be answered correctly. Workers are killed now and then, or told to stop. Each worker tells before and
after them what it has in use, and the system says it of the first process. The last clients are still there when the
server gets SIGTERM: it has to end all the same.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.embedding.faults import IDENTITY, ROWS, SINK, WAITING, WINDOWED, State, leave_abruptly
from tests.processes import announced
from tests.server.programs import ROOT
from tests.server.wire import Wire, floats, infer_request, post
from tests.transports.certificates import AUTHORITY, client_side

SERVERS: Final = {"TLS": (1, True), "2 workers": (2, False), "2 workers, TLS": (2, True)}
"""How many workers each server has, and whether it has TLS."""

AT_ONCE: Final = 16
_SECONDS: Final = 30.0
_BATCH: Final = 1000
"""Clients for each worker that dies. Those that have died soon are replaced later and later, so they are not many."""

_REPLACED_SECONDS: Final = 60.0
"""More than the longest pause before a worker is replaced."""

_KEPT_THREADS: Final = 16
"""Threads that a process keeps for the next requests, at most: `max_workers`, and those of windows for some seconds."""

_OK: Final = 200
_UNAVAILABLE: Final = 503
_NOTHING: Final = b'{"inputs":[]}'
"""The body of the request for the state, for which memory is reserved, too."""

_OPTIONS: Final = ("--shutdown-timeout", "5", "--max-memory", "1G")
_NAMES: Final = ("sockets", "files", "tasks", "threads", "reserved", "blocks")

HEADINGS: Final = (
    "server",
    "clients",
    "answered, sent back, lost their server",
    "workers died",
    *(f"{name} of a worker" for name in _NAMES),
    "files, threads of the first process",
    "all given back",
    "s",
    "SIGTERM: s (status)",
)


@dataclass(frozen=True, slots=True)
class Target:
    """A server, as its clients see it."""

    address: tuple[str, int]
    context: ssl.SSLContext | None
    """For clients; None for plain HTTP."""

    def plain(self) -> socket.socket:
        """Open a connection without TLS."""
        return socket.create_connection(self.address, _SECONDS)

    def open(self) -> socket.socket:
        """Open a connection as the server wants it."""
        sock = self.plain()
        if self.context is None:
            return sock
        try:
            return self.context.wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False)
        except BaseException:
            sock.close()
            raise

    def begun(self, data: bytes) -> socket.socket:
        """Open a connection and send something, as far as the server takes it."""
        sock = self.open()
        with suppress(OSError):
            sock.sendall(data)
        return sock


class _WireOf(Wire):
    """A wire on a connection that is there."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._unread = b""


def _part(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(1, len(data))]


def gone_in_mid_head(target: Target, chance: random.Random) -> None:
    """Leave before the head has come."""
    leave_abruptly(target.begun(SINK[: chance.randrange(0, 100)]))


def gone_in_mid_body(target: Target, chance: random.Random) -> None:
    """Leave while the tensor is being sent."""
    leave_abruptly(target.begun(_part(SINK, chance)))


def closed_in_mid_body(target: Target, chance: random.Random) -> None:
    """The same without a reset; TLS does not end either."""
    target.begun(_part(SINK, chance)).close()


def gone_in_mid_windows(target: Target, chance: random.Random) -> None:
    """Leave while a model waits for a window."""
    leave_abruptly(target.begun(_part(WINDOWED, chance)))


def gone_in_mid_answer(target: Target, chance: random.Random) -> None:
    """Leave while a tensor is being answered, or is being made."""
    sock = target.begun(chance.choice([IDENTITY, ROWS]))
    with suppress(OSError):
        sock.recv(1000)
    leave_abruptly(sock)


def gone_in_mid_call(target: Target, chance: random.Random) -> None:
    """Leave while a model works."""
    sock = target.begun(WAITING)
    time.sleep(chance.choice([0.0, 0.001, 0.005]))
    leave_abruptly(sock)


def half_closed(target: Target, chance: random.Random) -> None:
    """End this direction, as TLS does it or below it, and read what comes."""
    with target.begun(_part(SINK, chance)) as sock, suppress(OSError):
        sock.settimeout(1)
        if isinstance(sock, ssl.SSLSocket) and chance.randrange(2):
            sock.unwrap()
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass


def garbage(target: Target, chance: random.Random) -> None:
    """Send what is neither TLS nor HTTP, and read the answer or leave."""
    with target.plain() as sock, suppress(OSError):
        sock.settimeout(1)
        sock.sendall(chance.randbytes(chance.randrange(1, 3000)))
        if chance.randrange(2):
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1000)


def wrong_protocol(target: Target, chance: random.Random) -> None:
    """Speak plain HTTP to a port of TLS, and the reverse."""
    with target.plain() as sock, suppress(OSError):
        sock.settimeout(1)
        sock.sendall(_part(SINK, chance) if target.context else _hello())
        sock.recv(1000)


def broken_handshake(target: Target, chance: random.Random) -> None:
    """Send a part of the first message of TLS, or all of it, perhaps damaged, and leave."""
    hello = bytearray(_hello())
    if chance.randrange(2):
        hello[chance.randrange(len(hello))] ^= 1 << chance.randrange(8)
    with target.plain() as sock, suppress(OSError):
        sock.sendall(hello[: chance.randrange(1, len(hello) + 1)])
        if chance.randrange(2):
            sock.settimeout(0.05)
            sock.recv(1000)
        leave_abruptly(sock)


def forged(target: Target, chance: random.Random) -> None:
    """Send what is no record in the middle of a connection with TLS."""
    sock = target.begun(_part(SINK, chance))
    with closing(socket.socket(fileno=sock.detach())) as plain, suppress(OSError):
        plain.settimeout(1)
        plain.sendall(b"\x17\x03\x03\x00\x20" + chance.randbytes(32))
        plain.recv(1000)


def silent(target: Target, _: random.Random) -> None:
    """Connect and leave, as load balancers do."""
    target.plain().close()


FAULTS: Final[list[Callable[[Target, random.Random], None]]] = [
    gone_in_mid_head,
    gone_in_mid_body,
    closed_in_mid_body,
    gone_in_mid_windows,
    gone_in_mid_answer,
    gone_in_mid_call,
    half_closed,
    garbage,
    wrong_protocol,
    broken_handshake,
    forged,
    silent,
]


def _hello() -> bytes:
    """Return what a client of TLS says first."""
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = client_side().wrap_bio(coming, going, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return going.read()


def _ask(target: Target) -> str:
    """Ask; a worker that has been told to stop may say that the client shall come back."""
    with _WireOf(target.open()) as wire:
        answer = wire.send(infer_request(count=1000)).response()
    if answer.status == _UNAVAILABLE and "retry-after" in answer.fields:
        return "sent back"
    if floats(answer) != list(range(1000)):
        msg = "a correct request was answered with other values"
        raise RuntimeError(msg)
    return "answered"


@dataclass(frozen=True, slots=True)
class Watched:
    """A server that tells what it has in use."""

    process: subprocess.Popen[str]
    target: Target
    count: int
    """Of workers; with 1, the first process serves."""

    @property
    def pids(self) -> set[int]:
        """The processes that serve."""
        pid = self.process.pid
        if self.count == 1:
            return {pid}
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    @property
    def first(self) -> tuple[int, int]:
        """Files and threads of the first process."""
        place = Path(f"/proc/{self.process.pid}")
        return len(list((place / "fd").iterdir())), len(list((place / "task").iterdir()))

    def states(self) -> dict[int, State]:
        """Return what each process that serves has in use. The system chooses who is asked."""
        found: dict[int, State] = {}
        end = time.monotonic() + _REPLACED_SECONDS
        while len(pids := self.pids) < self.count or not pids <= found.keys():
            if time.monotonic() > end:
                msg = f"of the processes {pids}, only {list(found)} answer"
                raise TimeoutError(msg)
            with suppress(OSError), _WireOf(self.target.open()) as wire:
                answer = wire.send(post(_NOTHING, "Connection: close", model="state")).response()
                if answer.status == _UNAVAILABLE:  # a worker that has been told to stop
                    continue
                if answer.status != _OK:
                    raise RuntimeError(answer.error)
                state = {one["name"]: int(one["data"][0]) for one in answer.document["outputs"]}
                state["reserved"] -= len(_NOTHING)
                found[state.pop("pid")] = state
        return {pid: found[pid] for pid in pids}

    def settled(self, before: State | None = None, first: tuple[int, int] | None = None) -> dict[int, State]:
        """Wait until nothing is in use that was taken for clients; return the last states.

        Args:
            before: the most that a process may have in use.
            first: files and threads that the first process may have, if it does not serve itself.
        """
        end = time.monotonic() + _SECONDS
        states = self.states()
        while not (are_settled(states, before) and first in {None, self.first}) and time.monotonic() < end:
            time.sleep(0.2)
            states = self.states()
        return states

    def do(self, count: int, seed: int = 0) -> Counter[str]:
        """Have so many clients break off, or ask; return how many were answered, and how many lost their server."""
        chance = random.Random(seed)  # noqa: S311 - no secret
        faults = [fault for fault in FAULTS if self.target.context or fault is not forged]
        chosen = [(chance.choice([*faults, None]), random.Random(chance.random())) for _ in range(count)]  # noqa: S311
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return Counter(threads.map(lambda one: self._do(*one), chosen))

    def _do(self, fault: Callable[[Target, random.Random], None] | None, chance: random.Random) -> str:
        try:
            if fault is None:
                return _ask(self.target)
            fault(self.target, chance)
        except OSError:
            return "lost"
        return "done"

    @contextmanager
    def dying(self, number: int) -> Iterator[None]:
        """Have a worker die in the block, by SIGKILL or SIGTERM in turn; then wait until all are there again."""
        signum = (signal.SIGKILL, signal.SIGTERM)[number % 2]
        timer = threading.Timer(0.3, lambda: os.kill(min(self.pids), signum))
        timer.start()
        yield
        timer.join()
        self.states()

    def stop_with_requests(self) -> tuple[float, int]:
        """Send SIGTERM while requests run; return after how many seconds all has ended, and with what status."""
        running = [
            self.target.begun(data)
            for data in (SINK[: len(SINK) // 2], WINDOWED[: len(WINDOWED) // 2], ROWS, WAITING)
            for _ in range(4)
        ]
        began = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        for sock in running:
            leave_abruptly(sock)
        status = self.process.wait(_SECONDS)
        return time.perf_counter() - began, status


def are_settled(states: dict[int, State], before: State | None) -> bool:
    """Whether all processes have as little in use as one had before."""
    return all(_is_settled(state, before) for state in states.values())


def _is_settled(state: State, before: State | None) -> bool:
    if state["reserved"] or state["blocks"]:
        return False
    if before is None:
        return True
    keeps_less = all(state[name] <= before[name] for name in ("sockets", "files", "tasks"))
    return keeps_less and state["threads"] <= before["threads"] + _KEPT_THREADS


def most(states: dict[int, State]) -> State:
    """Return the most of each number."""
    return {name: max(state[name] for state in states.values()) for name in _NAMES}


@contextmanager
def watched(server: str, folder: Path) -> Iterator[Watched]:
    """Run a server until the block ends; its processes are a session of their own."""
    count, has_tls = SERVERS[server]
    command = [sys.executable, "-m", "streamcodec", "serve", "tests.server.watched:service", "--port", "0"]
    command += ["--no-access-log", "--workers", str(count), *_OPTIONS]
    if has_tls:
        both = AUTHORITY.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.bytes()
        (folder / "both").write_bytes(both)
        command += ["--ssl-certfile", str(folder / "both")]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        ) as process,
    ):
        try:
            url = announced(process.stdout or ())
            if not url:
                raise RuntimeError((folder / "log").read_text())
            port = urlsplit(url).port or 0
            yield Watched(process, Target(("127.0.0.1", port), client_side() if has_tls else None), count)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a run has found."""

    answered: int
    sent_back: int
    """Clients that were answered 503 with `Retry-After`."""
    lost: int
    """Clients that lost their server, or found none."""
    deaths: int
    before: State
    after: State
    first_before: tuple[int, int]
    first_after: tuple[int, int]
    has_all_back: bool
    seconds: float
    stopping: float
    status: int


def trial(server: str, count: int, batch: int = _BATCH) -> Found:
    """Have so many clients break off, in batches; in each, a worker dies if there are several."""
    results: Counter[str] = Counter()
    deaths = 0
    with tempfile.TemporaryDirectory() as folder, watched(server, Path(folder)) as here:
        here.do(AT_ONCE * here.count)  # all is imported by then
        before, first_before = most(here.settled()), here.first
        began = time.perf_counter()
        for number in range(0, count, batch):
            with here.dying(deaths) if here.count > 1 else nullcontext():
                results += here.do(min(batch, count - number), number + 1)
            deaths += here.count > 1
        seconds = time.perf_counter() - began
        states = here.settled(before, first_before if here.count > 1 else None)
        first_after = here.first
        stopping, status = here.stop_with_requests()
    return Found(
        answered=results["answered"],
        sent_back=results["sent back"],
        lost=results["lost"],
        deaths=deaths,
        before=before,
        after=most(states),
        first_before=first_before,
        first_after=first_after,
        has_all_back=are_settled(states, before) and (here.count == 1 or first_after == first_before),
        seconds=seconds,
        stopping=stopping,
        status=status,
    )


def line(server: str, count: int) -> str:
    """Return a line of the table."""
    found = trial(server, count)
    cells = [server, str(count), f"{found.answered}, {found.sent_back}, {found.lost}", str(found.deaths)]
    cells += [f"{found.before[name]} / {found.after[name]}" for name in _NAMES]
    cells += [f"{'{}, {}'.format(*found.first_before)} / {'{}, {}'.format(*found.first_after)}"]
    cells += ["yes" if found.has_all_back else "NO", f"{found.seconds:.0f}", f"{found.stopping:.1f} ({found.status})"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.server.faults")
    parser.add_argument("--count", type=int, default=10_000, help="clients that break off (default: %(default)s)")
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=f"of {', '.join(SERVERS)}")
    arguments = parser.parse_args()
    print(f"| {' | '.join(HEADINGS)} |")  # noqa: T201 - it is a command
    print(f"|{' --- |' * len(HEADINGS)}")  # noqa: T201
    for server in arguments.servers or SERVERS:
        print(line(server, arguments.count), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
