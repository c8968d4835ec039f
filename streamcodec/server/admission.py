"""Admission: decides which connections are served, and which idle connection makes room for a new one. Sans-IO.

A connection has a *seat* from its first request to its end; there are `max_connections` seats. A few more connections
may be open without a seat: those that have sent no request yet, and those that are being told that there is no seat.
These places are a reserve, in which health checks are always answered.

Nobody shuts others out by doing nothing. If room is needed, the connection is closed that has been without a request
for the longest time: one between two requests, or one that has sent nothing, or only a part of a head. It is closed
without an answer, as after `idle_timeout`; a client must expect this at any time. New connections have no grace period:
they are the last to be chosen. The first are those whose last answer has been sent, and which stay only until their
clients have read it. Only if every connection is within a request, a new one is told to come back later.

Connections are kept in the order of their last use. So the one to close is the first that is idle. Busy ones that are
met on the way are moved to the end, where they will be anyway when their request is over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Hashable
from typing import Final, Protocol

from streamcodec.engine.pool import Pool
from streamcodec.server.options import ServerOptions
from streamcodec.service.budget import Budget, Reservation

RESERVED_PLACES: Final = 64
"""Connections without a seat. Who connects has so many others before it loses its place to one of them, and nothing
else has to be done until its first request is read."""


class Conversation(Hashable, Protocol):
    """What a connection and the server need from each other: a session."""

    request_count: int
    reservation: Reservation


class Guest(Protocol):
    """An object that serves a connection."""

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request and has nothing else to do."""
        ...

    def leave(self) -> None:
        """Close the connection, which is idle, as soon as possible."""
        ...


class Admission:
    """Decides for all connections of a server.

    Attributes:
        budget: the memory of all their requests.
        is_stopping: whether each connection ends with its current request.
    """

    def __init__(self, options: ServerOptions, pool: Pool | None = None) -> None:
        """Serve as many connections as the options say; what is idle of the pool is in the budget, too."""
        self._max_connections = options.max_connections
        self._max_requests = options.max_requests_per_connection
        self._guests: OrderedDict[Conversation, Guest] = OrderedDict()
        self._served: set[Conversation] = set()
        self.budget: Budget = Budget(options.max_memory_bytes, pool, min_rate=options.min_rate)
        self.is_stopping = False

    @property
    def free_places(self) -> int:
        """How many connections may enter before another has to leave."""
        return self._max_connections + RESERVED_PLACES - len(self._guests)

    def enter(self, session: Conversation, guest: Guest) -> bool:
        """Let a new connection in; return whether there was room, or somebody has made it."""
        if self.free_places <= 0 and not self._evict(self._guests):
            return False
        self._guests[session] = guest
        return True

    def admits(self, session: Conversation) -> bool:
        """Whether a connection has a seat, or there is one for it; it keeps it until it ends, whoever comes later."""
        if session in self._served:
            return True
        has_seat = len(self._served) < self._max_connections
        if has_seat:
            self._served.add(session)
        return has_seat

    def makes_room(self, session: Conversation) -> bool:
        """Give a connection the seat of one that is idle; return whether there was one."""
        return self._evict(self._served) and self.admits(session)

    def keeps_another(self, session: Conversation) -> bool:
        """Whether it may bring another request and then still another, without anybody leaving."""
        return session.request_count + 1 < self._max_requests and not self.is_stopping and self.admits(session)

    def keeps(self, session: Conversation) -> bool:
        """Whether the connection may bring another request."""
        return not self.is_stopping and session.request_count < self._max_requests and self.admits(session)

    def used(self, session: Conversation, *, is_last: bool = False) -> None:
        """Tell that its request is over: from now on it is idle. If that was its last one, it is the first to leave."""
        if session in self._guests:
            self._guests.move_to_end(session, last=not is_last)

    def forget(self, session: Conversation) -> None:
        """Give the place of a connection that has ended to others, and its memory."""
        self._guests.pop(session, None)
        self._served.discard(session)
        session.reservation.release()

    def _evict(self, candidates: Container[Conversation]) -> bool:
        """Have the candidate leave that has been idle for the longest time; return whether there was one."""
        for session in [*self._guests]:
            guest = self._guests[session]
            if session not in candidates:
                continue
            if guest.is_idle:
                self.forget(session)
                guest.leave()
                return True
            self._guests.move_to_end(session)
        return False
