"""Supervising: several processes that do the same work, until a signal. It knows nothing of servers.

The first process forks the others, and then only waits; see `workerprocess`.

The first worker starts alone. If it dies before it is ready, so would the others: everything ends with its status, and
its error is printed once. Later, a worker that dies is replaced; its `Place` says when. If none is left that serves,
and none can start any more, everything ends: a service manager can do better than a port without anybody.

A worker that is ready says again and again that it works (see `heartbeat`). One that has been silent for too long is
killed, because a stopped process hears nothing else, and replaced as if it had died. Before that, and after any death,
another worker serves those who wait for it (see `handover`). When a new worker is there, the others end their present
connections with their next answers, so that clients which keep theirs come to it, too.

At SIGHUP the workers are renewed, one after the other. A new worker starts beside the one whose place it takes, and
that one is told to stop when the new one is ready. If a new worker cannot start, the renewal ends there: those that
serve go on. A new one that never becomes ready is waited for, because models may take any time to load; the log says
so, and the next SIGHUP starts another one instead.
"""

from __future__ import annotations

import logging
import math
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.server.processes import workerprocess
from streamcodec.server.processes.heartbeat import Attention, Heartbeat, beat_seconds
from streamcodec.server.processes.loops import INTERRUPTED, RENEWS, STOPS
from streamcodec.server.processes.servicemanager import ServiceManager
from streamcodec.server.processes.workerprocess import Place, Work, WorkerProcess
from streamcodec.server.sockets import handover
from streamcodec.server.sockets.accepting import shut_out

logger: Final = logging.getLogger(__name__)


_MOST_FALSE_STARTS: Final = 4
"""Deaths of a worker, one after the other, before it was ready: by then it is no accident."""

_GRACE_SECONDS: Final = 2.0
"""For a worker to end after its time to stop is over, which it minds itself."""


OnEnd = Callable[[int, bool], None]
"""Called when a worker that was ready has ended, and another one takes its place, with its number, and whether it has
died: nobody had told it to stop."""


class _Seat:
    """A place with who has it.

    Attributes:
        place: plans its next worker.
        worker: who has it now.
        is_anew: whether that one follows one that has died, and has no connections yet.
        successor: who will have it when it is ready; only during a renewal.
    """

    def __init__(self, due: float) -> None:
        self.place = Place(due)
        self.worker: WorkerProcess | None = None
        self.is_anew = False
        self.successor: WorkerProcess | None = None


class Supervisor:
    """Runs workers until SIGINT or SIGTERM, or until none can start. SIGHUP renews them."""

    def __init__(
        self,
        work: Work,
        count: int,
        *,
        shutdown_timeout: float,
        worker_timeout: float,
        on_ready: Callable[[str], None],
        on_stop: Callable[[], None],
        on_end: OnEnd | None,
    ) -> None:
        """Prepare.

        Args:
            work: what each does, in a process of its own.
            count: how many.
            shutdown_timeout: seconds that a worker takes to stop, at most. Who takes longer is killed; all are at a
                second signal.
            worker_timeout: seconds that a worker may be silent, see `heartbeat`. Who says nothing for longer is killed
                and replaced. 0 for any time.
            on_ready: called once, when all are ready, with what the first has said.
            on_stop: called before the workers are told to stop.
            on_end: called when one has ended before that.

        Raises:
            LocalProtocolError: this process has other threads, which its children would not have.
        """
        if threading.active_count() > 1:
            msg = "worker processes have to be started before other threads: they would have none of them, but "
            msg += "their locks"
            raise LocalProtocolError(msg)
        self._work = work
        self._count = count
        self._stop_seconds = shutdown_timeout + _GRACE_SECONDS
        self._worker_timeout = worker_timeout or math.inf
        self._beat_seconds = beat_seconds(worker_timeout)
        self._attention = Attention(self._beat_seconds)
        self._left_behind: list[socket.socket] = []
        self._on_ready: Callable[[str], None] | None = on_ready
        self._on_stop = on_stop
        self._on_end = on_end
        self._processes: list[WorkerProcess] = []
        self._seats = [_Seat(time.monotonic())]
        self._to_renew: list[_Seat] = []
        self._is_renewing = False
        self._manager = ServiceManager()
        self._told = -math.inf
        self._signals: list[int] = []
        self._is_stopping = False
        self._status = 0

    @property
    def _serving(self) -> list[WorkerProcess]:
        """Those who are ready and were not told to stop."""
        return [process for process in self._processes if process.is_ready and process.kill_at is None]

    def run(self) -> int:
        """Run, and return an exit status.

        Returns:
            0 after SIGTERM, 130 after SIGINT, 1 if a worker had to be killed; else that of the worker that could not
            start.
        """
        with _signals_to(self._signals) as woken:
            self._woken = woken
            try:
                self._go_on()
                while not self._is_stopping or self._processes:
                    self._wait()
                    self._heed_signals()
                    self._reap()
                    self._watch()
                    self._go_on()
            finally:
                for process in self._processes:
                    process.kill()
        return self._status

    # One turn

    def _wait(self) -> None:
        """Wait for a signal, a worker that becomes ready, the next look at the others, or what else is due."""
        channels = [process.channel for process in self._processes if not process.is_ready]
        ends = [process.kill_at for process in self._processes if process.kill_at is not None]
        late = [process.late_at for process in self._processes if not process.is_ready]
        due = min([*ends, *late, *(seat.place.due for seat in self._seats), math.inf]) - time.monotonic()
        if self._serving:
            due = min(due, self._beat_seconds, self._manager.beat_seconds)
        found, _, _ = select.select([self._woken, *channels], [], [], None if due == math.inf else max(0.0, due))
        if self._woken in found:
            with suppress(BlockingIOError):
                self._woken.recv(1 << 10)
        self._attention.look()
        for process in self._processes:
            process.listen()

    def _heed_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if self._is_stopping:
                for process in self._processes * (number != RENEWS):
                    process.kill_at = 0.0
            elif number == RENEWS:
                logger.info("the workers are renewed, one after the other (SIGHUP)")
                self._manager.is_reloading()
                for seat in self._seats:
                    if seat.successor is not None:  # it may have read what was there before this signal, or hang
                        seat.successor.stop(self._stop_seconds, is_replaced=True)
                        seat.successor = None
                self._to_renew, self._is_renewing = [*self._seats], True
            else:
                self._status = INTERRUPTED if number == signal.SIGINT else 0
                self._stop()

    def _reap(self) -> None:
        for process in [*self._processes]:
            if (status := process.status()) is None:
                continue
            process.listen()  # it may have been ready before it died
            self._processes.remove(process)
            process.channel.close()
            if process.listener is not None:
                self._left_behind.append(process.listener)
            seat = next((seat for seat in self._seats if process in {seat.worker, seat.successor}), None)
            if self._on_end is not None and process.is_ready and not self._is_stopping:
                self._on_end(process.pid, process.kill_at is None)
            if self._is_stopping:
                self._status = self._status or int(status != 0)
            elif seat is not None and process is seat.successor:
                self._not_renewed(seat, process, _how(status))
            elif seat is not None:
                self._replace(seat, process, status)

    def _watch(self) -> None:
        """Have others serve those who wait for a silent worker or a dead one, and end who is silent for too long."""
        for process in self._processes:
            if process.is_doubtful and process.listener is not None and not self._is_stopping:
                self._hand_over(process.listener)
            if process.kill_at is None:
                if process.heartbeat is not None and process.heartbeat.silence > self._worker_timeout:
                    self._give_up(process)
            elif time.monotonic() >= process.kill_at:
                self._status = self._status or int(self._is_stopping)
                process.kill_at = math.inf
                process.kill()
            if not process.is_ready and (now := time.monotonic()) >= process.late_at:
                process.late_at = math.inf
                logger.warning(
                    "worker %d is not ready after %.0f s, and is waited for: does something hang while its models are "
                    "loaded? SIGHUP starts another one beside those that serve",
                    process.pid,
                    now - process.began,
                )
        someone_serves = any(process.can_help for process in self._processes)
        if someone_serves or self._is_stopping:
            self._tell_manager()
            for listener in self._left_behind:
                if not self._is_stopping:
                    shut_out(listener)
                    self._hand_over(listener)
                listener.close()
            self._left_behind.clear()

    def _tell_manager(self) -> None:
        if (now := time.monotonic()) >= self._told + self._manager.beat_seconds:
            self._told = now
            self._manager.works()

    def _go_on(self) -> None:
        """Start who is due, and let who is ready take its place."""
        if self._is_stopping:
            return
        now = time.monotonic()
        for seat in self._seats:
            if not self._serving:
                seat.place.hurry(now)
            if now >= seat.place.due:
                seat.worker = self._start()
                seat.place.filled()
            if seat.is_anew and seat.worker is not None and seat.worker.is_ready:
                seat.is_anew = False
                # The others' connections end with their next answers: clients that keep theirs would never come to it.
                for other in [process for process in self._serving if process is not seat.worker]:
                    handover.tell(other.channel, handover.Word.SHARE)
        self._renew()
        if self._serving and len(self._seats) < self._count:
            self._seats += [_Seat(now) for _ in range(self._count - 1)]
            self._go_on()
        elif len(self._serving) == self._count and self._on_ready is not None:
            on_ready, self._on_ready = self._on_ready, None
            on_ready(self._serving[0].said)
            self._manager.is_ready()

    def _renew(self) -> None:
        """Go on with a renewal: one place after the other, when all who were asked for are there."""
        for seat in self._seats:
            if seat.successor is not None and seat.successor.is_ready:
                if seat.worker is not None:
                    seat.worker.stop(self._stop_seconds, is_replaced=True)
                seat.worker, seat.successor, seat.is_anew = seat.successor, None, False
                seat.place.filled()
        if self._on_ready is not None or any(seat.successor for seat in self._seats):
            return
        if self._to_renew:
            self._to_renew.pop(0).successor = self._start()
        elif self._is_renewing:
            self._is_renewing = False
            self._manager.is_ready()
            logger.info("the workers that serve now have read their models and certificates after SIGHUP")

    # Who waits for a worker that does not come

    def _hand_over(self, listener: socket.socket) -> None:
        """Have another worker accept those who wait there: the one that has not done so for the longest time."""
        if not handover.is_listening(listener):
            return
        helpers = [process for process in self._processes if process.can_help]
        for helper in sorted(helpers, key=lambda process: process.helped):
            if handover.send(helper.channel, listener):
                helper.helped = self._attention.now
                return

    def _give_up(self, process: WorkerProcess) -> None:
        if process.is_given_up:
            return
        process.is_given_up = True
        logger.error(
            "worker %d has given no sign of life for %g s: it was stopped, or a model blocks its event loop; it is "
            "killed and replaced (--worker-timeout)",
            process.pid,
            self._worker_timeout,
        )
        process.kill()

    # Starting and ending

    def _replace(self, seat: _Seat, process: WorkerProcess, status: int) -> None:
        seat.worker, seat.is_anew = None, True
        now = time.monotonic()
        if seat.successor is not None:  # it is on its way
            return
        seat.place.lost(now, lived=now - process.began, was_ready=process.is_ready)
        fewest = min(seat.place.false_starts for seat in self._seats)
        is_first = len(self._seats) == 1 and not process.is_ready
        if not self._serving and (is_first or fewest >= _MOST_FALSE_STARTS):
            logger.error("worker %d %s before it was ready; the server ends", process.pid, _how(status))
            self._status = 128 - status if status < 0 else status or 1
            self._stop()
            return
        if not self._serving:
            seat.place.hurry(now)
        level = logging.DEBUG if process.is_given_up else logging.ERROR  # of one given up it has been said
        pause = max(0.0, seat.place.due - now)
        logger.log(level, "worker %d %s; another one starts in %.1f s", process.pid, _how(status), pause)

    def _not_renewed(self, seat: _Seat, process: WorkerProcess, how: str) -> None:
        seat.successor = None
        self._to_renew, self._is_renewing = [], False
        self._manager.is_ready()
        logger.error("worker %d %s before it was ready; nothing is renewed, and the others go on", process.pid, how)
        if seat.worker is None:
            seat.place.lost(time.monotonic(), lived=0.0, was_ready=False)

    def _stop(self) -> None:
        """Tell all workers to stop."""
        self._is_stopping = True
        for process in self._processes:
            if process.is_doubtful and process.listener is not None:
                self._hand_over(process.listener)
        self._manager.is_stopping()
        self._on_stop()
        for process in self._processes:
            process.stop(self._stop_seconds)

    def _start(self) -> WorkerProcess:
        files = [*self._left_behind, *(file for process in self._processes for file in process.files)]
        process = workerprocess.start(self._work, files, lambda: Heartbeat(self._attention, self._beat_seconds))
        self._processes.append(process)
        return process


def _how(status: int) -> str:
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


@contextmanager
def _signals_to(found: list[int]) -> Iterator[socket.socket]:
    """Collect signals; yield a socket that is readable when there is one, or when a child has ended."""
    reading, writing = socket.socketpair()
    with reading, writing:
        reading.setblocking(False)
        writing.setblocking(False)

        heeded = [number for number in (*STOPS, RENEWS) if number]
        usual = {number: signal.signal(number, lambda number, _: found.append(number)) for number in heeded}
        usual[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)  # the wake-up is enough
        before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        try:
            yield reading
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in usual.items():
                signal.signal(number, handler)
