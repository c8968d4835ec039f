"""Patience: how long a server waits for a client, in every phase of a request. Time is an argument: no clock here.

Whoever waits *looks* now and then, at least four times within the shortest limit. A look costs no timer of its own: it
finds out how far the request has come, and so when its phase began, which is never asked of the path that answers. So
a limit may be overstepped by a look, a quarter of the shortest one.

Two kinds of limits meet here. A client that sends nothing is given up soon (`read_timeout`). One that sends a byte
every so often is not stopped by that; so head, JSON header and whole request have limits in total, and tensors, whose
size is nearly free to choose, must come at a minimum rate. Only time that was spent waiting counts for the rate and for
the whole request: a model that takes windows, and takes its time, is not the client's fault.

How answers are *taken* has the same limits, and is looked at only where the client has to be waited for. One that takes
nothing is given up soon (`write_timeout`). One that takes a byte every so often has to take `min_rate`: what it is late
by is summed up over all its answers, is made up for by taking more, and may not become more than `write_timeout`. And
answers that are taken without a break have `request_timeout` together: a client may ask for a thousand at once.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import Final, Protocol

from streamcodec.server.options import ServerOptions

_LOOKS: Final = 4
"""So often within the shortest limit somebody looks whether one has passed."""


class Phase(Enum):
    """How far the request has come that the server waits for."""

    IDLE = auto()
    """Nothing has come of it."""
    HEAD = auto()
    """A part of its head."""
    HEADER = auto()
    """Its head, and perhaps a part of its JSON header."""
    BODY = auto()
    """All that; its tensors are coming, or what is left of a request that has been answered."""


class Waited(Protocol):
    """What is waited for: a session."""

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
        """Whether what has come waits for its turn to be worked on: then it is not the client who is waited for."""
        ...

    @property
    def has_lost(self) -> bool:
        """Whether it has been too slow while others wait for its memory."""
        ...


class Patience:
    """With one connection."""

    def __init__(self, options: ServerOptions, session: Waited) -> None:
        """Begin before its first request."""
        self._options = options
        self._session = session
        times = (options.idle_timeout, options.head_timeout, options.header_timeout, options.read_timeout)
        self._interval = min(*times, options.request_timeout) / _LOOKS
        self._phase: Phase | None = None
        self._count = -1
        self._phase_began = self._request_began = self._looked = self._moved = 0.0
        self._received = self._phase_received = 0
        self._waited = 0.0
        self._is_resumed = True

    def resume(self) -> None:
        """Tell that nobody has waited for the client since the last look, or since `pause`."""
        self._is_resumed = True

    def pause(self, now: float) -> None:
        """Tell that nobody waits for the client any more, and until when somebody has.

        Without this, what was waited since the last look is forgotten: a wait that ends before its second look would
        never count, and a request can be made of such waits alone.
        """
        if not self._is_resumed:
            self._waited += now - self._looked
        self._looked = now

    def look(self, now: float) -> float:
        """Look how far it has come.

        Args:
            now: seconds, on any clock.

        Returns:
            Seconds until the next look is due.

        Raises:
            TimeoutError: the client has had its time.
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
            if phase in {Phase.IDLE, Phase.HEAD} or not self._goes_on(count):
                self._request_began = now
            self._phase, self._count = phase, count
            self._phase_began, self._phase_received, self._waited = now, received, 0.0
        self._received, self._looked, self._is_resumed = received, now, False

    def _goes_on(self, count: int) -> bool:
        """Whether the last look saw the same request, perhaps before its head was complete."""
        return count == self._count + (self._phase is Phase.HEAD)

    def _end(self, now: float) -> float:
        """Return when the client has had its time, if nothing more comes."""
        options = self._options
        if self._phase is Phase.IDLE:
            return self._phase_began + options.idle_timeout
        end = min(self._moved + options.read_timeout, self._request_began + options.request_timeout)
        if self._phase is Phase.HEAD:
            return min(end, self._phase_began + options.head_timeout)
        if self._phase is Phase.HEADER:
            return min(end, self._phase_began + options.header_timeout)
        if not options.min_rate:
            return end
        # What has come so far is enough for so long.
        enough = options.read_timeout + (self._received - self._phase_received) / options.min_rate
        return min(end, now + enough - self._waited)


class Taking:
    """How one client takes its answers."""

    def __init__(self, options: ServerOptions) -> None:
        """Begin before the first answer."""
        self._options = options
        self._interval = min(options.write_timeout, options.request_timeout) / _LOOKS
        self._looked = self._moved = 0.0
        self._taken = 0
        self._waited = self._late = 0.0

    def has_all(self) -> None:
        """Tell that no other answer waits behind the one that has been taken."""
        self._waited = 0.0

    def resume(self, now: float) -> None:
        """Tell that the client is waited for from now on."""
        self._looked = self._moved = now

    def pause(self, now: float) -> None:
        """Tell until when the client was waited for."""
        waited, self._looked = now - self._looked, now
        self._waited += waited
        self._late += waited

    def look(self, now: float, taken: int) -> float:
        """Look how much it has taken, while it is waited for.

        Args:
            now: seconds, on any clock.
            taken: bytes of all answers so far.

        Returns:
            Seconds until the next look is due.

        Raises:
            TimeoutError: the client has had its time.
        """
        self.pause(now)
        options = self._options
        if taken != self._taken:
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
            msg = "the client does not take its answer"
            raise TimeoutError(msg)
        return min(left, self._interval)
