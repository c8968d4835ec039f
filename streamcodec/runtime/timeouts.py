"""ReadTimeout: how long a server waits for a client, in every phase of a request. Time is an argument: no clock here.

Whoever waits *looks* from time to time, at least four times within the shortest limit. A look needs no timer of its
own. It finds out how far the request has come, and so when its phase began; the code that answers need not report it.
So a limit may be exceeded by one look, a quarter of the shortest limit.

There are two kinds of limits. A client that sends nothing is soon given up (`read_timeout`). This does not stop a
client that sends a byte from time to time. So head, JSON header and whole request have total time limits. Tensors may
have nearly any size, so they must arrive at a minimum rate. Only time spent waiting counts for the rate and for the
whole request: a slow model that takes windows is not the client's fault.

Reading the answers has the same limits, which are checked only if the server has to wait for the client. A client that
reads nothing is soon given up (`write_timeout`). A client that reads a byte from time to time must reach `min_rate`.
Its delay is summed up over all its answers, is reduced by reading faster, and may not exceed `write_timeout`. Read is
what the client's system has acknowledged: the system of the server takes an answer of megabytes at once, and a slow
link needs minutes for it. Answers that are read without a break have `request_timeout` together, because a client may
send a thousand requests at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.runtime.options import ServerOptions

LAST_REQUEST_SECONDS: Final = 0.25
"""For a request that is on its way while the server stops; its answer tells the client that there is no next one."""

_LOOKS: Final = 4
"""Number of looks within the shortest limit."""

Look = Callable[[float], float]
"""Gets the time, and returns the seconds until its next call is due; raises `TimeoutError` to give up."""


class Phase(Enum):
    """The phase of the request for which the server waits."""

    IDLE = auto()
    """Nothing of it has arrived."""
    HEAD = auto()
    """A part of its head has arrived."""
    HEADER = auto()
    """Its head has arrived, and perhaps a part of its JSON header."""
    BODY = auto()
    """Its JSON header has arrived, and the tensors follow. Or it has been answered, and the rest of it follows."""


_PARTS: Final = {Phase.IDLE: "head", Phase.HEAD: "head", Phase.HEADER: "JSON header", Phase.BODY: "body"}


def too_slow(phase: Phase, detail: str = "") -> RemoteProtocolError:
    """Return the error of a client that has had its time for this phase."""
    msg = f"the {_PARTS[phase]} of the request comes too slowly{detail}"
    return RemoteProtocolError(msg, code=ErrorCode.TOO_SLOW, status_hint=408)


class Waited(Protocol):
    """The object that is waited for: a session."""

    @property
    def phase(self) -> Phase:
        """How far the next request has come."""
        ...

    @property
    def request_count(self) -> int:
        """Requests whose head has come."""
        ...

    @property
    def received(self) -> int:
        """Bytes that have come, in all."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether received bytes wait to be worked on. Then the server does not wait for the client."""
        ...

    @property
    def has_lost(self) -> bool:
        """Whether the request was too slow while others wait for its memory."""
        ...


def first_timeout(options: ServerOptions) -> float:
    """Return how many seconds a client has for the first bytes of a body, if nothing else is awaited."""
    return min(options.read_timeout, options.header_timeout, options.request_timeout)


class ReadTimeout:
    """The time limits for what one client sends."""

    def __init__(self, options: ServerOptions, session: Waited) -> None:
        """Begin before its first request."""
        self._options = options
        self._session = session
        times = (options.idle_timeout, options.head_timeout, options.header_timeout, options.read_timeout)
        self._interval = min(*times, options.request_timeout) / _LOOKS
        self._idle_timeout = options.idle_timeout
        self._phase: Phase | None = None
        self._count = -1
        self._phase_began = self._request_began = self._looked = self._moved = 0.0
        self._received = self._phase_received = 0
        self._waited = 0.0
        self._is_resumed = True

    def hurry(self) -> None:
        """Wait only a moment for another request from now on."""
        self._idle_timeout = min(self._idle_timeout, LAST_REQUEST_SECONDS)

    def resume(self) -> None:
        """Report that nobody has waited for the client since the last look, or since `pause`."""
        self._is_resumed = True

    def has_waited(self, since: float, now: float) -> None:
        """Report that the client has been waited for before the first look, and that some bytes have come."""
        self._observe(since)
        self.pause(now)

    def pause(self, now: float) -> None:
        """Report that the server does not wait for the client any more, and until when it has waited.

        Without this call, the time since the last look would not count. A wait that ends before its second look would
        not count at all, and a client can send a whole request in such waits.
        """
        if not self._is_resumed:
            self._waited += now - self._looked
        self._looked = now

    def look(self, now: float) -> float:
        """Look how far the request has come.

        Args:
            now: seconds, on any clock.

        Returns:
            Seconds until the next look is due.

        Raises:
            TimeoutError: a time limit of the client is over.
        """
        if self._session.has_work:
            self.resume()
        self._observe(now)
        end = self._end(now)
        if end <= now or self._session.has_lost:
            raise TimeoutError
        return min(end - now, self._interval)

    def _observe(self, now: float) -> None:
        session = self._session
        phase, count, received = session.phase, session.request_count, session.received
        if self._is_resumed:
            self._request_began += now - self._looked
        else:
            self._waited += now - self._looked
        if self._is_resumed or received != self._received:
            self._moved = now
        if phase is not self._phase or count != self._count:
            is_same = count == self._count + (self._phase is Phase.HEAD)  # as at the last look, if its head is complete
            if phase in {Phase.IDLE, Phase.HEAD} or not is_same:
                self._request_began = now
            self._phase, self._count = phase, count
            self._phase_began, self._phase_received, self._waited = now, received, 0.0
        self._received, self._looked, self._is_resumed = received, now, False

    def _end(self, now: float) -> float:
        """Return when a time limit of the client will be over, if nothing more arrives."""
        options = self._options
        if self._phase is Phase.IDLE:
            return self._phase_began + self._idle_timeout
        end = min(self._moved + options.read_timeout, self._request_began + options.request_timeout)
        if self._phase is Phase.HEAD:
            return min(end, self._phase_began + options.head_timeout)
        if self._phase is Phase.HEADER:
            return min(end, self._phase_began + options.header_timeout)
        if not options.min_rate:
            return end
        # For so long the received bytes are enough to reach the minimum rate.
        enough = options.read_timeout + (self._received - self._phase_received) / options.min_rate
        return min(end, now + enough - self._waited)


class WriteTimeout:
    """The time limits for how one client reads its answers."""

    def __init__(self, options: ServerOptions) -> None:
        """Begin before the first answer."""
        self._options = options
        self._interval = min(options.write_timeout, options.request_timeout) / _LOOKS
        self._looked = self._moved = 0.0
        self._taken = 0
        self._waited = self._late = 0.0

    def has_all(self) -> None:
        """Report that the client has taken the last of the answers that waited."""
        self._waited = 0.0

    def resume(self, now: float) -> None:
        """Report that the server waits for the client from now on."""
        self._looked = self._moved = now

    def pause(self, now: float) -> None:
        """Report until when the server has waited for the client."""
        waited, self._looked = now - self._looked, now
        self._waited += waited
        self._late += waited

    def look(self, now: float, taken: int) -> float:
        """Look how much the client has taken, while the server waits for it.

        Args:
            now: seconds, on any clock.
            taken: bytes of all answers that the client has taken so far. TLS and Unix sockets may report fewer than
                before, because the system counts its own overhead; these are ignored.

        Returns:
            Seconds until the next look is due.

        Raises:
            TimeoutError: a time limit of the client is over.
        """
        self.pause(now)
        options = self._options
        if taken > self._taken:
            self._moved = now
            made_up = (taken - self._taken) / options.min_rate if options.min_rate else math.inf
            self._late = max(self._late - made_up, 0.0)
            self._taken = taken
        left = min(
            self._moved + options.write_timeout - now,
            options.write_timeout - self._late,
            options.request_timeout - self._waited,
        )
        if left <= 0:
            msg = "the client does not read its answer"
            raise TimeoutError(msg)
        return min(left, self._interval)
