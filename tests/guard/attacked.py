"""A guard under attack: `python -m tests.guard.attacked [NAMES]`.

The attacks are those of `tests.under_attack`, one after the other, most from sixteen connections or more. Meanwhile,
honest clients ask through the guard every 20 ms whether the server behind is alive, each on a new connection. That
server does nothing but count: it notes each request that is not a GET. It must see nothing of an attack that breaks a
rule or never ends (`KEPT_OUT`). The others are correct requests, only many, long or slow. One of its answers comes in
chunks of one byte.

A second guard, which nobody attacks, is asked at the same times: what it takes, the machine adds. Times are also
allowed for what others had of the processors (crowding). The exit status is 1 if a bound was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamcodec.client.connections.address import Address
from tests.processes import announced, forget_peak, peak_resident, resident, scheduled
from tests.under_attack import acts
from tests.under_attack.attacker import attacker_process
from tests.under_attack.attacks import ATTACKS, HEALTH
from tests.under_attack.matrix import REFUSED, TINY
from tests.under_attack.probing import Probes, probe

MAX_P50_MS: Final = 50.0
MAX_MS: Final = 150.0
BUDGET_MIB: Final = 64
MAX_EXTRA_MIB: Final = 64.0
"""Above idle, besides the budget."""
KEPT_OUT: Final = frozenset(
    name
    for name in ATTACKS
    if name.startswith(("JSON ", "valid JSON of 16 MB", "heads ", "chunked heads", "a checksum", "refused ", *REFUSED))
)
"""Not "50,000 members of gzip": these requests are correct, and sixteen of them are read within 2.8 s."""

_TINY: Final = f"get {TINY} ".encode()
_CHUNKS: Final = 100_000
_ROOT: Final = Path(__file__).parents[2]
_MIB: Final = 1 << 20
_WARM_UP_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What an attack came to."""

    name: str
    seen: int
    """Requests of the attack that the server behind has seen."""
    p50: float
    max: float
    """Milliseconds that honest clients waited."""
    calm_max: float
    """The same, of the guard that nobody attacked."""
    failures: list[str]
    """What honest clients got instead of an answer."""
    extra_mib: float
    """Memory of the guard above idle at most."""
    crowding: float
    """How many times longer the guard took for its work, since others had the processors."""

    def complaints(self) -> list[str]:
        """Say which bounds were broken."""
        found = []
        if self.seen and self.name in KEPT_OUT:
            found.append(f"the server behind has seen {self.seen} requests")
        if self.failures:
            found.append(f"{len(self.failures)} got no answer: {self.failures[0]}")
        if self.p50 > MAX_P50_MS * self.crowding + self.calm_max:
            found.append(f"{self.p50:.0f} ms at the median")
        if self.max > MAX_MS * self.crowding + self.calm_max:
            found.append(f"up to {self.max:.0f} ms")
        if self.extra_mib > MAX_EXTRA_MIB + BUDGET_MIB:
            found.append(f"{self.extra_mib:.0f} MiB above idle")
        return found


def attack(name: str, seconds: float) -> Finding:
    """Attack a fresh guard for some seconds."""
    with (
        _running("-m", "tests.guard.attacked", "--behind") as (_, url),
        _guard(url) as (process, guard_url),
        _guard(url) as (_, calm_url),
    ):
        address, behind, calm = _place(guard_url), _place(url), _place(calm_url)
        with attacker_process(address, name) as attacker:
            asyncio.run(probe(address, HEALTH, _WARM_UP_SECONDS))
            idle, before = resident(process.pid), scheduled(process.pid)
            forget_peak(process.pid)
            attacker.begin()
            probes, others = asyncio.run(_probe_both(address, calm, seconds))
            ran, waited = (now - was for now, was in zip(scheduled(process.pid), before, strict=True))
            peak = peak_resident(process.pid)
        return Finding(
            name=name,
            seen=_seen(behind),
            p50=probes.ms(0.5),
            max=probes.ms(1),
            calm_max=others.ms(1),
            failures=probes.failures,
            extra_mib=(peak - idle) / _MIB,
            crowding=(ran + waited) / ran,
        )


async def _probe_both(address: acts.Address, calm: acts.Address, seconds: float) -> tuple[Probes, Probes]:
    first, second = await asyncio.gather(probe(address, HEALTH, seconds), probe(calm, HEALTH, seconds))
    return first, second


def main() -> None:
    """Attack, or be the server behind."""
    parser = argparse.ArgumentParser(prog="python -m tests.guard.attacked")
    parser.add_argument("names", nargs="*", help="attacks whose names contain one of these (default: all)")
    parser.add_argument("--seconds", type=float, default=3, help="of each (default: %(default)s)")
    parser.add_argument("--behind", action="store_true", help="be the server behind")
    arguments = parser.parse_args()
    if arguments.behind:
        asyncio.run(_be_behind())
    names = [name for name in ATTACKS if any(part in name for part in arguments.names or [""])]
    has_failed = False
    print("| attack | seen behind | health, p50 | health, longest | calm, longest | MiB | crowding | verdict |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for name in names:
        finding = attack(name, arguments.seconds)
        has_failed |= bool(finding.complaints())
        verdict = "; ".join(finding.complaints()) or "kept"
        times = f"{finding.p50:.1f} ms | {finding.max:.1f} ms | {finding.calm_max:.1f} ms"
        others = f"{finding.extra_mib:.0f} | {finding.crowding:.1f}"
        print(f"| {name} | {finding.seen} | {times} | {others} | {verdict} |", flush=True)
    sys.exit(has_failed)


@contextmanager
def _running(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen([sys.executable, *command], cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, announced(process.stdout or ())
        finally:
            process.kill()


@contextmanager
def _guard(url: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    limits = ("--allow", "generate", "--max-memory", f"{BUDGET_MIB}M")
    options = ("--upstream", url, "--port", "0", "--no-access-log", *limits)
    with _running("-m", "streamcodec", "guard", *options) as guard:
        yield guard


def _place(url: str) -> acts.Address:
    address = Address.of(url)
    return address.host, address.port


def _seen(behind: acts.Address) -> int:
    """Ask the server behind, without the guard, how many requests it has noted."""
    with socket.create_connection(behind) as sock:
        sock.sendall(b"GET /seen HTTP/1.1\r\nHost: x\r\n\r\n")
        return int(sock.recv(1 << 10).rpartition(b"\r\n\r\n")[2])


async def _be_behind() -> None:
    seen = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        with closing(writer), suppress(OSError, EOFError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                seen += not head.startswith(b"get ")
                left = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r")[0] or 0)
                while left and (part := await reader.read(min(left, _MIB))):
                    left -= len(part)
                if head.startswith(_TINY):
                    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    for _ in range(_CHUNKS // 1000):
                        writer.write(b"1\r\nx\r\n" * 1000)
                        await writer.drain()
                    writer.write(b"0\r\n\r\n")
                    continue
                body = b"%d" % seen if head.startswith(b"get /seen ") else b""
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"listening on http://{host}:{port}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    main()
