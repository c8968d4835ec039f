"""Load: sends requests on several connections from one thread, and measures.

A Python client can easily be slower than the server. So this loop does nothing but sending prepared bytes, and finding
the ends of answers. It does not use asyncio, whose callbacks would cost as much again.

A connection that breaks is an error of its request, and is made again. A connection that the server closes between two
requests is made again without an error.
"""

from __future__ import annotations

import gc
import math
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from streamcodec.cli.benching.answers import InvalidAnswerError
from streamcodec.cli.benching.connections import LoadConnection
from streamcodec.cli.benching.plan import LoadPlan, Measured
from streamcodec.cli.benching.schedule import ClosedLoop, OpenLoop, Schedule
from streamcodec.transports.sockets.system import new_poll
from streamcodec.transports.tls.sockets import POLLIN, POLLOUT

_OK: Final = 200
_TICK: Final = 0.1
"""Seconds between two looks at time-outs, broken connections and Ctrl-C."""


class Load:
    """The connections of one process."""

    def __init__(self, plan: LoadPlan, is_stopped: Callable[[], bool]) -> None:
        """Prepare; `run` connects.

        Args:
            plan: what to do.
            is_stopped: whether to stop now.
        """
        self._plan = plan
        self._is_stopped = is_stopped
        self._poller = _Poller(is_exact=plan.rate is not None)
        self._connections = [LoadConnection(plan) for _ in range(plan.concurrency)]
        self._by_number: dict[int, LoadConnection] = {}
        self._idle: list[LoadConnection] = []
        self._broken: list[LoadConnection] = []
        self._measured = Measured()

    def run(self) -> Measured:
        """Connect, warm up and measure.

        Raises:
            OSError: there is no connection at the beginning.
        """
        with _without_collector():
            try:
                for connection in self._connections:
                    self._open(connection)
                if self._plan.warmup:
                    self._run(self._plan.warmup)
                return self._run(self._plan.duration)
            finally:
                for connection in self._connections:
                    connection.close()
                self._poller.close()

    def _run(self, seconds: float) -> Measured:
        """Send for so many seconds, and wait for the answers."""
        self._measured = measured = Measured()
        for connection in self._connections:
            connection.sent_bytes = connection.received_bytes = 0
        cpu, start = time.process_time(), time.perf_counter()
        rate = self._plan.rate
        schedule = ClosedLoop(start, seconds) if rate is None else OpenLoop(start, seconds, rate)
        self._send_all(schedule)
        end = time.perf_counter()
        measured.seconds = end - start
        measured.processors = [(time.process_time() - cpu) / (end - start)]
        measured.unsent = schedule.left(end)
        measured.latencies.settle()
        measured.sent_bytes = sum(connection.sent_bytes for connection in self._connections)
        measured.received_bytes = sum(connection.received_bytes for connection in self._connections)
        measured.is_stopped = self._is_stopped()
        return measured

    def _send_all(self, schedule: Schedule) -> None:
        now = time.perf_counter()
        look = now + _TICK
        while now < schedule.end or len(self._idle) + len(self._broken) < len(self._connections):
            while self._idle and (due := schedule.due(now)) is not None:
                self._begin(self._idle.pop(), due, now)
            until = min(look, schedule.end) if now < schedule.end else look
            if self._idle:
                until = min(until, schedule.next_time(now))
            for number in self._poller.wait(max(0.0, until - now)):
                self._go_on(self._by_number[number], schedule)
            now = time.perf_counter()
            if now >= look:
                look = now + _TICK
                self._measured.latencies.settle()
                if self._is_stopped():
                    return
                self._look_after(now)

    def _begin(self, connection: LoadConnection, due: float, now: float) -> None:
        try:
            if not connection.begin(due, now):
                self._poller.watch_sending(connection.number, is_sending=True)
        except OSError as error:
            self._fail(connection, _cause(error))

    def _go_on(self, connection: LoadConnection, schedule: Schedule) -> None:
        """Do what can be done on a connection that is ready; if its answer is complete, begin the next request."""
        if not connection.is_busy:
            self._idle.remove(connection)
            self._drop(connection)
            self._reopen(connection)
            return
        was_sending = connection.is_sending
        try:
            is_complete = connection.go_on()
        except InvalidAnswerError:
            self._fail(connection, "invalid answer")
            return
        except OSError as error:
            self._fail(connection, _cause(error))
            return
        if was_sending and not connection.is_sending:
            self._poller.watch_sending(connection.number, is_sending=False)
        if is_complete:
            self._complete(connection, schedule)

    def _complete(self, connection: LoadConnection, schedule: Schedule) -> None:
        now = time.perf_counter()
        measured, head = self._measured, connection.answers.head
        connection.is_busy = False
        if head.status == _OK:
            measured.latencies.pending.append(now - connection.due)
        else:
            measured.errors[f"http {head.status}"] += 1
        if head.closes or connection.is_sending:  # an early refusal leaves a part of the request unsent
            self._drop(connection)
            self._reopen(connection)
        elif (due := schedule.due(now)) is not None:
            self._begin(connection, due, now)
        else:
            self._idle.append(connection)

    def _look_after(self, now: float) -> None:
        """End requests that take too long, and repair broken connections."""
        for connection in self._connections:
            if connection.is_busy and now - connection.begun > self._plan.timeout:
                self._fail(connection, "timeout")
        broken, self._broken = self._broken, []
        for connection in broken:
            self._reopen(connection)

    def _fail(self, connection: LoadConnection, cause: str) -> None:
        self._measured.errors[cause] += 1
        self._drop(connection)
        self._broken.append(connection)

    def _reopen(self, connection: LoadConnection) -> None:
        try:
            self._open(connection)
        except OSError as error:
            self._measured.errors[_cause(error)] += 1
            self._broken.append(connection)

    def _open(self, connection: LoadConnection) -> None:
        connection.open()
        self._by_number[connection.number] = connection
        self._poller.watch(connection.number)
        self._idle.append(connection)

    def _drop(self, connection: LoadConnection) -> None:
        del self._by_number[connection.number]
        self._poller.forget(connection.number)
        connection.close()


class _Poller:
    """Waits until connections are ready.

    The calls of the system count in milliseconds. An open loop needs less, which Linux can do: `select` waits for its
    `epoll` object. Elsewhere an open loop begins its requests up to a millisecond late, which is in their latencies.
    """

    def __init__(self, *, is_exact: bool) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._poll = self._epoll or new_poll()
        self._is_exact = is_exact

    def watch(self, number: int) -> None:
        self._poll.register(number, POLLIN)

    def watch_sending(self, number: int, *, is_sending: bool) -> None:
        self._poll.modify(number, POLLIN | (POLLOUT if is_sending else 0))

    def forget(self, number: int) -> None:
        self._poll.unregister(number)

    def close(self) -> None:
        if self._epoll is not None:
            self._epoll.close()

    def wait(self, seconds: float) -> list[int]:
        """Wait for so many seconds; return the file descriptors that are ready."""
        if self._epoll is None:
            seconds = math.ceil(seconds * 1000)
        elif self._is_exact:
            select.select([self._epoll], [], [], seconds)
            seconds = 0
        return [number for number, _ in self._poll.poll(seconds)]


@contextmanager
def _without_collector() -> Iterator[None]:
    """Switch off the garbage collector, whose pauses would be in the latencies; there are no cycles here."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _cause(error: OSError) -> str:
    """Return a short text for the table of errors."""
    if isinstance(error, TimeoutError):
        return "timeout"
    return (error.strerror or str(error) or type(error).__name__).lower()
