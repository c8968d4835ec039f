"""Admission: decides which connections are served, and which idle connection makes room for a new one. Sans-IO.

A connection has a *seat* from its first request to its end; there are `max_connections` seats, or fewer if the process
may not open as many descriptors. A few more connections
may be open without a seat: those that have sent no request yet, and those that are being told that there is no seat.
These places are a reserve, in which health checks are always answered.

A client that does nothing cannot shut out others. If room is needed, the server closes the connection that has been
without a request for the longest time. It is between two requests, or has sent nothing, or only a part of a head. It is
closed without an answer, as after `idle_timeout`; a client must expect this at any time. New connections need no grace
period: they are the last to be chosen. The first are those whose last answer has been sent, and which stay only until
their clients have read it. Only if every connection is within a request, a new one is refused and may come back later.

Connections are kept in the order of their last use. So the one to close is the first that is idle. Busy ones that are
met on the way are moved to the end, where they will be anyway when their request is over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Hashable
from typing import Final, Protocol

from streamcodec.engine.memory.pool import Pool
from streamcodec.runtime.descriptors import places_for, spare_of
from streamcodec.runtime.options import ServerOptions
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.uploads.deciding import UploadService

RESERVED_PLACES: Final = 64
"""Most connections without a seat. A new connection loses its place only after this many others have come. Its first
request is read before that."""

MOST_WAITING: Final = 256
"""Most connections that are accepted although all places are taken, so that a health check among them is seen."""


class Admitted(Hashable, Protocol):
    """The part of a session that admission needs."""

    reservation: Reservation

    @property
    def request_count(self) -> int:
        """How many requests have come, at least their heads."""
        ...


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
        max_connections: most of them that are served at once.
        uploads: decides on uploads that can be resumed; None if there are none.
        is_stopping: whether each connection ends with its current request.
    """

    def __init__(self, options: ServerOptions, pool: Pool | None = None, *, descriptors: int | None = None) -> None:
        """Prepare; the options limit the connections. The budget also counts the idle blocks of the pool.

        Args:
            options: of the server.
            pool: of its service.
            descriptors: for connections; None for any number.
        """
        self.max_connections: int
        self.max_connections, self._reserved = places_for(options.max_connections, RESERVED_PLACES, descriptors)
        self._waiting = spare_of(descriptors, self.places, MOST_WAITING)
        self._max_requests = options.max_requests_per_connection
        self._guests: OrderedDict[Admitted, Guest] = OrderedDict()
        self._served: set[Admitted] = set()
        self.budget: Budget = Budget(options.max_memory_bytes, pool, min_rate=options.min_rate)
        self.uploads: UploadService | None = None
        self.is_stopping = False
        self._moving: set[Admitted] = set()

    @property
    def places(self) -> int:
        """Most connections that are open at once, with a seat or without."""
        return self.max_connections + self._reserved

    @property
    def room(self) -> int:
        """How many connections may be accepted: those that may enter, and those that wait until another leaves."""
        return self.places - len(self._guests) + self._waiting

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._guests)

    def enter(self, session: Admitted, guest: Guest) -> bool:
        """Let a new connection in; return whether there was room. An idle connection may be closed for it."""
        if len(self._guests) >= self.places and not self._evict(self._guests):
            return False
        self._guests[session] = guest
        return True

    def admits(self, session: Admitted) -> bool:
        """Whether a connection has a seat, or gets a free one. It keeps the seat until it ends."""
        if session in self._served:
            return True
        has_seat = len(self._served) < self.max_connections
        if has_seat:
            self._served.add(session)
        return has_seat

    def makes_room(self, session: Admitted) -> bool:
        """Give a connection the seat of one that is idle; return whether there was one."""
        return self._evict(self._served) and self.admits(session)

    def keeps(self, session: Admitted, *, ahead: int = 0) -> bool:
        """Whether the connection may send another request; `ahead` is 1 before the one that is counted next."""
        is_last = session.request_count + ahead >= self._max_requests or self.is_stopping or session in self._moving
        return not is_last and self.admits(session)

    def share_out(self) -> None:
        """Let each present connection end with its next request, so that it may go to another server."""
        self._moving.update(self._guests)

    def used(self, session: Admitted, *, is_last: bool = False) -> None:
        """Report that a request is over, so its connection is idle; after the last one it is the first to be closed."""
        if session in self._guests:
            self._guests.move_to_end(session, last=not is_last)

    def forget(self, session: Admitted) -> None:
        """Free the place and the memory of a connection that has ended."""
        self._guests.pop(session, None)
        self._served.discard(session)
        self._moving.discard(session)
        session.reservation.release()

    def _evict(self, candidates: Container[Admitted]) -> bool:
        """Close the candidate that has been idle for the longest time; return whether there was one."""
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
