"""Probing: honest clients, who ask one small thing each, on a connection of their own, at fixed times.

They do not wait for each other: one who did would ask little while the server is held up, and so find little. A second
server, which nobody attacks, is asked at the same times: what it takes is what the machine adds.
"""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass, field

from tests.under_attack.acts import Address

_PERIOD = 0.02
_PATIENCE = 8.0
"""Then a client gives up; what it has waited counts."""


@dataclass(slots=True)
class Probes:
    """What honest clients were given."""

    seconds: list[float] = field(default_factory=list)
    """How long each waited, in vain or not."""
    failures: list[str] = field(default_factory=list)
    """What some got instead of an answer."""

    def ms(self, share: float) -> float:
        """Return what so many of them did not have to wait longer than, in milliseconds."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))] * 1e3


async def probe(address: Address, question: bytes, seconds: float) -> Probes:
    """Ask again and again for some time; return when all have their answers."""
    probes = Probes()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(int(seconds / _PERIOD)):
            tasks.create_task(_ask(address, question, probes))
            await asyncio.sleep(_PERIOD)
    return probes


async def _ask(address: Address, question: bytes, probes: Probes) -> None:
    began = time.perf_counter()
    try:
        async with asyncio.timeout(_PATIENCE):
            answer = await _answer(address, question)
        if not answer.startswith(b"HTTP/1.1 200 "):
            probes.failures.append(repr(answer[:60]))
    except (OSError, TimeoutError) as error:
        probes.failures.append(repr(error))
    probes.seconds.append(time.perf_counter() - began)


async def _answer(address: Address, question: bytes) -> bytes:
    loop, answer = asyncio.get_running_loop(), b""
    with socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, address)
        await loop.sock_sendall(sock, question)
        while chunk := await loop.sock_recv(sock, 4096):
            answer += chunk
    return answer
