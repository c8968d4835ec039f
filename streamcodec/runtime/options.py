"""Options: how a server uses its machine, and how long it waits.

All limits are finite. Each has its reason beside it, and the answer to a client that exceeds it.
"""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import InitVar, dataclass, field, fields
from types import NoneType
from typing import Any, Final, TypeGuard

from streamcodec.engine.arguments import whole
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.runtime.memory.available import default_budget, memory_left
from streamcodec.runtime.memory.small import small_options

_MAY_BE_ZERO: Final = frozenset(
    {"min_rate", "budget_timeout", "linger_timeout", "shutdown_timeout", "drain_delay", "worker_timeout"}
)

SLOW_LINKS: Final = {
    "idle_timeout": 300.0,
    "handshake_timeout": 120.0,
    "head_timeout": 120.0,
    "header_timeout": 900.0,
    "read_timeout": 120.0,
    "min_rate": 64.0,
    "request_timeout": 86400.0,
    "write_timeout": 120.0,
}
"""Options for links of a few kB/s that pause for up to a minute. A head, or a step of a handshake, may be hit by two
pauses; a JSON header of 1 MB takes 500 s at 2 kB/s; a model's input of 100 MB takes 14 hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server uses its machine, and how long it waits; times in seconds.

    Raises:
        LocalProtocolError: a value is not a number, or is out of range.
    """

    max_connections: int = 512
    """Connections served at once; fewer if the process may not open as many descriptors (`RLIMIT_NOFILE`), because it
    could then accept nobody, not even to say so. Each has 72 KiB of scratch memory while a part of a request has
    arrived; an idle one costs about 10 KB. A further connection takes the place of the one that has been without a
    request for the longest time, which is closed. Only if there is none, the new one is answered 503 with `Retry-
    After`. Health checks are always answered; 64 more connections may be open for them."""
    max_requests_per_connection: int = 1 << 20
    """After this many requests, the connection is closed with the answer. A connection that never ended could not be
    moved to another server by a load balancer. At full speed this is a minute or more."""
    max_pipelined_bytes: int = 256 << 10
    """Bytes of small answers that wait for one client. A client that sends requests without reading the answers is not
    read any more, and then has `write_timeout`. It costs this much memory, and one answer more."""
    max_workers: int = 8
    """Models called at once in worker threads. A thread that was given up counts until it ends. A thread that waits for
    a window of its request does not count."""
    max_windowed_requests: int = 256
    """Requests at once to models that take windows in worker threads. Each may have a waiting thread, besides
    `max_workers`. A waiting thread costs about 30 KiB, until it has had nothing to do for 10 to 20 s. The clients
    decide how long that is, within `min_rate` and `request_timeout`. Further requests to such models are answered 503
    with `Retry-After`; requests to other models are not affected."""
    max_memory_bytes: int = field(default_factory=default_budget)
    """Bytes of all request bodies in flight together, or of the windows for models that take windows, of the arrays
    made from JSON tensors, and of the idle blocks of the service's pool, which are given back first. By default half of
    what the process leaves of its control group, of `RLIMIT_AS` or of the machine, when these options are made,
    whichever is least: models need memory too. A request that does not fit waits for `budget_timeout` before its
    tensors are read; one that never fits is answered 413. Small requests that are answered at once are not counted:
    they are limited by `max_connections` times their scratch memory."""
    max_lane_bytes: int = 0
    """Bytes of all memory that clients of a Unix socket may share with the server at once, by its memory lane. It is a
    part of `max_memory_bytes`, from the opening of a lane until nothing refers to its memory. A client that gets none
    sends its tensors over the socket. 0 for no memory lane. Linux only."""
    budget_timeout: float = 10.0
    """Waiting for memory that other requests have, before 503 with `Retry-After`: less than clients usually wait."""
    idle_timeout: float = 75.0
    """Without a request on an open connection, before it is closed without an answer: browsers and proxies keep theirs
    for a minute."""
    handshake_timeout: float = 10.0
    """For the whole handshake of TLS, before the connection is closed: it takes two round trips. A client that has not
    ended it loses its place to another, as one that has sent no request."""
    head_timeout: float = 20.0
    """For the whole head of a request, before 408: it fits into one packet or a few."""
    header_timeout: float = 60.0
    """For the whole JSON header, before 408: 64 MiB at 10 Mbit/s."""
    read_timeout: float = 30.0
    """Without a byte in the middle of a request, before 408: a network recovers within that time or not at all."""
    min_rate: float = 1024.0
    """Average bytes per second of tensors, after a first `read_timeout`, else 408. The default is a tenth of the
    slowest mobile network. Without it, a client that sends a byte from time to time could keep a large tensor's memory.
    Also the bytes per second at which answers must be read: a client whose delays add up to `write_timeout` is closed.
    0 for no minimum."""
    request_timeout: float = 3600.0
    """For a whole request to arrive, before 408, without the time in which a model works on its windows. Also for a
    whole answer to be read, or all answers to requests that came together, before the connection is closed. The default
    is `max_memory_bytes` at 2.4 MB/s. This and `min_rate` end clients that are slow on purpose."""
    model_timeout: float = 300.0
    """For a model to answer, without its waiting for windows, before 504. Also for each window of an answer that is
    made while it is sent, before the connection is closed. Longer than most models take, and less than forever. The
    model's thread cannot be stopped: it is given up and counted, and keeps its place in `max_workers` and its memory
    until it returns. A request that has no thread by then is answered 503 with `Retry-After`."""
    write_timeout: float = 30.0
    """Without the client reading a byte of the response, before the connection is closed: as `read_timeout`."""
    linger_timeout: float = 2.0
    """After a refusal, for a client that is still sending, before its connection is closed. What it sends is dropped,
    up to 256 MiB. Without this time, many clients would see a broken connection instead of the answer."""
    shutdown_timeout: float = 30.0
    """For requests in progress when the server stops; then their connections are closed. Most supervisors send SIGKILL
    at about that time."""
    drain_delay: float = 0.0
    """A first part of `shutdown_timeout`, in which everything is still served: readiness checks are answered 503, and
    kept connections are told `Connection: close`. So a load balancer that looks at readiness sends its requests
    elsewhere before this server takes no more. After it nobody listens. 0 to take no more connections at once."""
    worker_timeout: float = 30.0
    """Without a sign of life of a process of `run_workers`, before it is killed and replaced: it was stopped, or a
    model blocks its event loop, which none should do for a second. Its connections break. Those that wait to be
    accepted are served by other processes, after a second or two. Threads in which models run do not count, and neither
    does the time in which the first process did not run itself. 0 for never, for example while a debugger holds a
    process. A server in one process is watched by nobody, and does not use this."""
    resumable_uploads: int = 0
    """Most uploads at once that can be resumed after their connection broke; 0 for none. Each may hold as much memory
    as one request, within `max_memory_bytes`. An interrupted one gives it up when another request would have to wait,
    or when a further client wants to begin one. If there is none, that client is served without, or answered 503."""
    upload_timeout: float = 300.0
    """For the client of an interrupted upload to come back, before what has arrived is dropped: links that break are up
    again by then, and a client that was restarted has begun again. In all, an upload has `request_timeout` to begin its
    last message."""
    upload_dir: str | os.PathLike[str] | None = None
    """A directory of the server's own user for the bytes of uploads; None to keep them in memory. Then they outlive a
    restart of the server, and take no memory while they are interrupted. Several processes always use files: without
    this, those of a temporary directory. After a stop of the machine, what had come until the server's last stop is
    there for certain."""
    max_upload_dir_bytes: int = 0
    """Of all files in `upload_dir` together; 0 for half of what is free there when the server begins."""
    # Has no effect, and goes in 0.4.0. After small answers, the event loop stayed awake for so many seconds: on two
    # cores, that took 19 to 35% more CPU for each request, and four times as much for a client that makes pauses.
    busy_poll: InitVar[float | None] = None

    @classmethod
    def for_slow_links(cls, **others: Any) -> ServerOptions:  # noqa: ANN401 - as the fields are
        """Return options for clients on links of a few kB/s with pauses of up to a minute.

        A client that is slow on purpose keeps its connection for as long, so use them where all clients are known.

        Args:
            others: further options, which take precedence.
        """
        return cls(**{**SLOW_LINKS, **others})

    @classmethod
    def for_little_memory(cls, **others: Any) -> ServerOptions:  # noqa: ANN401 - as the fields are
        """Return options for the memory that this process leaves of its control group, `RLIMIT_AS` or machine.

        Make them when models have been loaded. Connections and threads then have a part of what is left, too.

        Args:
            others: further options, which take precedence.
        """
        return cls(**{**small_options(memory_left()), **others})

    def __post_init__(self, busy_poll: float | None) -> None:
        """Refuse invalid values."""
        if busy_poll is not None:
            warnings.warn("busy_poll has no effect, and goes in 0.4.0: leave it out", DeprecationWarning, stacklevel=3)
        for name in (option.name for option in fields(self)):
            value = getattr(self, name)
            if type(value) is not int and (integer := whole(value)) is not None:  # of numpy, which may overflow
                value = integer
                object.__setattr__(self, name, value)
            fits, wanted = _check(name, value)
            if not fits:
                msg = f"{name} must be {wanted}, not {value!r}"
                raise LocalProtocolError(msg)
        if self.upload_dir is not None and not self.resumable_uploads:
            msg = "upload_dir keeps uploads, and there are none: say how many with resumable_uploads"
            raise LocalProtocolError(msg)
        if self.drain_delay > self.shutdown_timeout:
            msg = f"drain_delay must be at most shutdown_timeout, {self.shutdown_timeout:g}, not {self.drain_delay:g}"
            raise LocalProtocolError(msg)


def _check(name: str, value: object) -> tuple[bool, str]:
    """Return whether an option may have a value, and what it may have."""
    if name == "upload_dir":
        return isinstance(value, (str, os.PathLike, NoneType)), "the path of a directory"
    if name in {"max_lane_bytes", "resumable_uploads", "max_upload_dir_bytes"}:
        return type(value) is int and value >= 0, "an integer from 0 on"
    if name.startswith("max_"):
        return type(value) is int and value > 0, "an integer above 0"
    if name in _MAY_BE_ZERO:
        return _is_number(value) and value >= 0, "a number from 0 on"
    return _is_number(value) and value > 0, "a number above 0"


def _is_number(value: object) -> TypeGuard[float]:
    return type(value) in {int, float} and not math.isnan(value)  # type: ignore[arg-type]  # a number by then
