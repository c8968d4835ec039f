"""LoadPlan: what a run does, and what it has measured."""

from __future__ import annotations

import ssl
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from streamcodec.cli.benching.latencies import Latencies

SATURATED: Final = 0.9
"""Part of a processor from which on the client itself may be the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What a run sends, and how."""

    host: str
    """Of the server."""
    port: int
    """Of the server."""
    context: ssl.SSLContext | None
    """For TLS; None for plain HTTP."""
    request: bytes
    """The whole request, which is the same each time."""
    concurrency: int
    """Connections, and so the most requests at once."""
    rate: float | None
    """Requests per second in an open loop; None for a closed loop."""
    warmup: float
    """Seconds before the measurement."""
    duration: float
    """Seconds of the measurement."""
    timeout: float
    """Seconds for a connection, and for an answer."""
    socket_path: str | None = None
    """Of a Unix socket, in place of host and port; None for TCP."""

    def shared(self, processes: int) -> list[LoadPlan]:
        """Return the plans of several processes, which together do what this one says."""
        shares = [self.concurrency // processes + (each < self.concurrency % processes) for each in range(processes)]
        return [
            replace(self, concurrency=share, rate=None if self.rate is None else self.rate * share / self.concurrency)
            for share in shares
            if share
        ]


@dataclass(slots=True, kw_only=True)
class Measured:
    """What a run has measured; times in seconds."""

    latencies: Latencies = field(default_factory=Latencies)
    """Of the requests that were answered with status 200."""
    errors: Counter[str] = field(default_factory=Counter)
    """The other requests, by what happened to them."""
    unsent: int = 0
    """Requests of an open loop that were due, and for which no connection was free until the end."""
    sent_bytes: int = 0
    """Requests, with their heads, as far as they were sent."""
    received_bytes: int = 0
    """Answers, with their heads."""
    seconds: float = 0.0
    """From the first request to the last answer."""
    processors: list[float] = field(default_factory=list)
    """For each process of the client, which part of a processor it used."""
    is_stopped: bool = False
    """Whether Ctrl-C ended it."""

    def add(self, other: Measured) -> None:
        """Add what another process measured at the same time."""
        self.latencies.add(other.latencies)
        self.errors += other.errors
        self.unsent += other.unsent
        self.sent_bytes += other.sent_bytes
        self.received_bytes += other.received_bytes
        self.seconds = max(self.seconds, other.seconds)
        self.processors += other.processors
        self.is_stopped |= other.is_stopped

    @property
    def rate(self) -> float:
        """Requests per second that were answered with status 200."""
        return self.latencies.count / self.seconds if self.seconds else 0.0

    @property
    def is_client_saturated(self) -> bool:
        """Whether a process of the client was busy nearly all the time, so that it may have been the limit."""
        return max(self.processors, default=0.0) >= SATURATED
