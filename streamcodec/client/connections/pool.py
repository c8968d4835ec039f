"""Pool: manages a client's connections: how many there are, which one a call gets, and which are kept. It never waits.

Each call first needs a *place*; there are as many places as permitted connections. If all places are taken, a call
waits in a queue, and gets the place of a call that leaves. The queue is first in, first out, so no call starves while
others run in a loop. A call with a place takes the kept connection that was used last, or makes a new one. A call gives
its connection back before it leaves its place. So there are never more connections than places, kept ones included.

Open connections count the bytes that have moved; the pool adds them up on request.

The client decides how to wait for a place: the pool calls `set()` of the client's own kind of event, for threads or for
tasks.

After a fork, both processes would send on the same connections, and read each other's answers. So they stay with the
parent, and the child begins without one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeVar
from weakref import WeakSet

from streamcodec.client.connections.connection import Connection, Traffic
from streamcodec.engine.arguments import whole
from streamcodec.engine.errors import LocalProtocolError


class Waiter(Protocol):
    """An event that somebody waits for."""

    def set(self) -> object:
        """Wake the waiting call."""
        ...


WaiterT = TypeVar("WaiterT", bound=Waiter)
_POOLS: Final[WeakSet[ConnectionPool]] = WeakSet()
"""All that exist, for a fork."""


class ConnectionPool:
    """The connections of one client. Several threads may call its methods."""

    def __init__(self, max_connections: int, keepalive_expiry: float) -> None:
        """Begin without a connection.

        Args:
            max_connections: at one time.
            keepalive_expiry: seconds for which an unused connection is kept.

        Raises:
            LocalProtocolError: `max_connections` is below 1, or no integer.
        """
        if (whole(max_connections) or 0) < 1:
            raise LocalProtocolError(f"max_connections must be at least 1, not {max_connections!r}")
        self.max_connections = max_connections
        self._expiry = keepalive_expiry
        self._is_closed = False
        self._open: set[Connection] = set()
        self._past = Traffic()
        self._begin()
        _POOLS.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._free = self.max_connections
        self._waiters: deque[Waiter] = deque()
        self._kept: deque[tuple[float, Connection]] = deque()

    @property
    def traffic(self) -> Traffic:
        """The bytes that have moved so far, on all present and past connections."""
        with self._lock:
            return sum((connection.traffic for connection in self._open), self._past)

    def add(self, connection: Connection) -> None:
        """Add a new connection. The caller has a place for it, and must give it back in any case."""
        with self._lock:
            self._open.add(connection)

    def enter(self, make_waiter: Callable[[], WaiterT]) -> WaiterT | None:
        """Take a place, or wait in the queue for one. A caller that stops waiting must call `give_up`.

        Returns:
            None if a place was free; else the event that is set when one becomes free.
        """
        with self._lock:
            if self._takes_place():
                return None
            waiter = make_waiter()
            self._waiters.append(waiter)
            return waiter

    def enter_at_once(self) -> bool:
        """Take a place if one is free; return whether it was."""
        with self._lock:
            return self._takes_place()

    def give_up(self, waiter: Waiter) -> None:
        """Stop waiting."""
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                return
        self.leave()  # the place was granted in the meantime

    def leave(self) -> None:
        """Give the place to the call that has waited longest."""
        with self._lock:
            if self._waiters:
                self._waiters.popleft().set()
            elif self._free < self.max_connections:  # else the place was taken before a fork
                self._free += 1

    def take(self, now: float) -> Connection | None:
        """Return the connection that was used last and is still alive, if there is one."""
        while True:
            with self._lock:
                while self._kept and now - self._kept[0][0] > self._expiry:
                    self._drop(self._kept.popleft()[1])
                if not self._kept:
                    return None
                _, connection = self._kept.pop()
            if connection.is_usable:
                return connection
            with self._lock:
                self._drop(connection)

    def give_back(self, connection: Connection, now: float, *, is_good: bool) -> None:
        """Keep a connection for the next call, if it can be used again."""
        with self._lock:
            connection.end()
            if is_good and connection.is_worth_keeping and not self._is_closed:
                connection.is_kept = True
                self._kept.append((now, connection))
            else:
                self._drop(connection)

    def close(self) -> None:
        """Close kept connections. Until the next call begins, also close those that are given back.

        Ctrl-C may come when a call has just got its connection, and is not ready to give it back. While all places are
        free, no call has one, so what is open then was lost like that.
        """
        with self._lock:
            self._is_closed = True
            while self._kept:
                self._drop(self._kept.pop()[1])
            if self._free == self.max_connections:
                for lost in [*self._open]:
                    self._drop(lost)

    def forget(self) -> None:
        """Begin anew in a process that was forked: all places are free.

        The connections are closed here only, also those that a call of the parent uses: nothing is sent, so the parent
        does not notice.
        """
        self._begin()  # another thread of the parent may have held the lock
        for connection in [*self._open]:
            self._drop(connection)

    def _takes_place(self) -> bool:
        self._is_closed = False
        has_place = self._free > 0
        self._free -= has_place
        return has_place

    def _drop(self, connection: Connection) -> None:
        """Close a connection; its traffic stays counted."""
        connection.close()
        if connection in self._open:  # else it was dropped at a fork
            self._open.remove(connection)
            self._past += connection.traffic


def _forget_all() -> None:
    for pool in [*_POOLS]:
        pool.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
