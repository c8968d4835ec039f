"""Options: how a server uses its machine, and how long it waits.

All limits are finite. Each has its reason beside it, and the answer to a client that exceeds it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.server.memory import default_budget

_MAY_BE_ZERO: Final = frozenset({"min_rate", "budget_timeout", "linger_timeout", "shutdown_timeout", "busy_poll"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server uses its machine, and how long it waits; times in seconds.

    Raises:
        LocalProtocolError: a value is not a number, or is out of range.
    """

    max_connections: int = 512
    """Connections served at once; each has 64 KiB of scratch memory. A further one takes the place of the one that has
    been without a request for the longest time, which is closed. Only if there is none it is answered 503 with
    `Retry-After`; health checks never are, for which 64 connections more may be open."""
    max_requests_per_connection: int = 1 << 20
    """After so many, the connection is closed with the answer: one that never ended would never be balanced anew by
    what stands before several servers. At full speed that is a minute or more."""
    max_pipelined_bytes: int = 256 << 10
    """Bytes of small answers that wait for one client. Who sends requests without reading the answers is not read
    from any more, and then has `write_timeout`; so much memory it costs, and one answer more."""
    max_workers: int = 8
    """Models called at once in worker threads; a thread that was given up counts until it ends. One that waits for a
    window of its request does not count."""
    max_windowed_requests: int = 256
    """Requests at once whose models take windows in worker threads: each may have a thread that waits, besides
    `max_workers`, and a waiting thread costs some 30 KiB, until it has had nothing to do for 10 to 20 s. Their clients
    decide how long that is, within `min_rate` and `request_timeout`. Further requests to such models are answered 503
    with `Retry-After`; others do not mind."""
    max_memory_bytes: int = field(default_factory=default_budget)
    """Bytes of all request bodies in flight together, or of the windows for models that take windows, of the arrays
    made of JSON tensors, and of the idle blocks of the service's pool, which are given back first. By default half of
    what the process' control group has, or the machine if that is less: models need memory, too. A request that does
    not fit waits before its tensors are read, for `budget_timeout`; one that never fits is answered 413. Small
    requests, answered at once, are not counted: they are bounded by `max_connections` times their scratch memory."""
    budget_timeout: float = 10.0
    """For memory that other requests have, before 503 with `Retry-After`: less than clients usually wait."""
    idle_timeout: float = 75.0
    """Without a request on an open connection, before it is closed without a word: browsers and proxies keep theirs for
    a minute."""
    head_timeout: float = 20.0
    """For the whole head of a request, before 408: it fits into one packet or a few."""
    header_timeout: float = 60.0
    """For the whole JSON header, before 408: 64 MiB at 10 Mbit/s."""
    read_timeout: float = 30.0
    """Without a byte in the middle of a request, before 408: networks recover within that time or not at all."""
    min_rate: float = 1024.0
    """Bytes per second that tensors must come with on average, after a first `read_timeout`, else 408: a tenth of the
    slowest mobile network. Who sends a byte now and then could keep a large tensor's memory otherwise. And bytes per
    second that answers must be taken with: who is late by `write_timeout` in all is closed. 0 for none."""
    request_timeout: float = 3600.0
    """For a whole request to come, before 408, not counting what a model that takes windows works between them; and
    again for a whole answer to be taken, or all answers to requests that came together, before the connection is
    closed: `max_memory_bytes` at 2.4 MB/s. This and `min_rate` are what ends those that are slow on purpose."""
    model_timeout: float = 300.0
    """For a model to answer, without what it waits for windows, before 504; and again for each window of an answer that
    is made while it is sent, before the connection is closed. Longer than most models take, and less than forever. Its
    thread cannot be ended: it is given up and counted, and keeps its place in `max_workers` and its memory until it
    returns. A request that has got no thread by then is answered 503 with `Retry-After`."""
    write_timeout: float = 30.0
    """Without the client taking a byte of the response, before the connection is closed: as `read_timeout`."""
    linger_timeout: float = 2.0
    """After a refusal, for a client that is still sending, before its connection is closed. What it sends is dropped,
    up to 256 MiB; without this time, many clients would see a broken connection and not the answer."""
    shutdown_timeout: float = 30.0
    """For requests under way when the server stops; then their connections are closed. Most supervisors send SIGKILL
    about then."""
    busy_poll: float = 50e-6
    """After small answers, for more requests, before the event loop sleeps: to wake it takes longer than a client takes
    to ask again that waits for its answer. 0 to sleep at once, which saves power."""

    def __post_init__(self) -> None:
        """Refuse what could never be meant."""
        for name in (option.name for option in fields(self)):
            value = getattr(self, name)
            if name.startswith("max_"):
                fits, wanted = type(value) is int and value > 0, "an integer above 0"
            elif name in _MAY_BE_ZERO:
                fits, wanted = _is_number(value) and value >= 0, "a number from 0 on"
            else:
                fits, wanted = _is_number(value) and value > 0, "a number above 0"
            if not fits:
                msg = f"{name} must be {wanted}, not {value!r}"
                raise LocalProtocolError(msg)


def _is_number(value: object) -> bool:
    return type(value) in {int, float} and not math.isnan(value)  # type: ignore[arg-type]  # a number by then
