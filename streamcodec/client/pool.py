"""Pool: how many connections a client has, which one a call gets, and which ones are kept for later. It does not wait.

Each call first needs a *place*, of which there are as many as there may be connections. Who comes when all are taken
queues up, and gets the place of somebody who leaves: in the order of their coming, so that nobody starves while others
call in a loop. Who has a place takes the connection that was used last, if one is kept, or makes a new one. A
connection comes back before its place is left. So there are never more connections than places, kept ones included.

What has moved is counted by the connections themselves, for as long as they are open, and summed up when somebody asks.

How to wait for a place is up to the client: it is told by `set()` of an event of its own kind, of threads or of tasks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from streamcodec.client.connection import Connection, Traffic
from streamcodec.engine.errors import LocalProtocolError


class Waiter(Protocol):
    """An event that somebody waits for."""

    def set(self) -> object:
        """Wake whoever waits."""
        ...


WaiterT = TypeVar("WaiterT", bound=Waiter)


class Pool:
    """The connections of one client; its methods may be called by several threads."""

    def __init__(self, max_connections: int, keepalive_expiry: float) -> None:
        """Begin without a connection.

        Args:
            max_connections: at a time.
            keepalive_expiry: seconds for which a connection is kept that nobody uses.

        Raises:
            LocalProtocolError: not even one connection is allowed.
        """
        if max_connections < 1:
            raise LocalProtocolError(f"max_connections is at least 1, not {max_connections}")
        self.max_connections = max_connections
        self._expiry = keepalive_expiry
        self._lock = threading.Lock()
        self._free = max_connections
        self._waiters: deque[Waiter] = deque()
        self._kept: deque[tuple[float, Connection]] = deque()
        self._is_closed = False
        self._open: set[Connection] = set()
        self._past = Traffic()

    @property
    def traffic(self) -> Traffic:
        """What has moved so far, on all connections that there are and were."""
        with self._lock:
            return sum((connection.traffic for connection in self._open), self._past)

    def add(self, connection: Connection) -> None:
        """Tell of a new connection, which somebody has a place for; it is given back in any case."""
        with self._lock:
            self._open.add(connection)

    def enter(self, make_waiter: Callable[[], WaiterT]) -> WaiterT | None:
        """Take a place, or queue up for one; who then does not wait to the end calls `give_up`.

        Returns:
            None if there was a place; or else what will be set when there is one.
        """
        with self._lock:
            self._is_closed = False
            if self._free:
                self._free -= 1
                return None
            waiter = make_waiter()
            self._waiters.append(waiter)
            return waiter

    def give_up(self, waiter: Waiter) -> None:
        """Wait no longer."""
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                return
        self.leave()  # it has come in the meantime

    def leave(self) -> None:
        """Give a place to whoever has waited for the longest time."""
        with self._lock:
            if self._waiters:
                self._waiters.popleft().set()
            else:
                self._free += 1

    def take(self, now: float) -> Connection | None:
        """Return the connection that was used last and is still alive, if there is one."""
        while True:
            with self._lock:
                self._expire(now)
                if not self._kept:
                    return None
                _, connection = self._kept.pop()
            if connection.is_usable:
                return connection
            with self._lock:
                self._drop(connection)

    def give_back(self, connection: Connection, now: float, *, is_good: bool) -> None:
        """Keep a connection for the next call, if it is good for that."""
        with self._lock:
            connection.end()
            self._expire(now)
            if is_good and not self._is_closed:
                connection.is_kept = True
                self._kept.append((now, connection))
            else:
                self._drop(connection)

    def close(self) -> None:
        """Close what is kept, and until the next call begins, what comes back."""
        with self._lock:
            self._is_closed = True
            while self._kept:
                self._drop(self._kept.pop()[1])

    def _expire(self, now: float) -> None:
        """Close what was kept for too long."""
        while self._kept and now - self._kept[0][0] > self._expiry:
            self._drop(self._kept.popleft()[1])

    def _drop(self, connection: Connection) -> None:
        """Close a connection; what has moved there stays known."""
        connection.close()
        self._open.discard(connection)
        self._past += connection.traffic
