"""Options: how a server uses its machine, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server uses its machine, and how long it waits; times in seconds."""

    max_connections: int = 512
    """Connections served at once; each has 64 KiB of scratch memory. Further ones are answered 503."""
    max_workers: int = 8
    """Models called at once in worker threads."""
    idle_timeout: float = 75.0
    """Without a request on an open connection, before it is closed."""
    read_timeout: float = 30.0
    """Without a byte in the middle of a request, before it is answered 408."""
    write_timeout: float = 30.0
    """Without the client taking a byte of the response, before the connection is closed."""
    linger_timeout: float = 2.0
    """After a refusal, for a client that is still sending, before its connection is closed. What it sends is dropped;
    without this time, many clients would see a broken connection and not the answer."""
    shutdown_timeout: float = 30.0
    """For requests under way when the server stops."""
    busy_poll: float = 50e-6
    """After small answers, for more requests, before the event loop sleeps: to wake it takes longer than a client takes
    to ask again that waits for its answer. 0 to sleep at once, which saves power."""
