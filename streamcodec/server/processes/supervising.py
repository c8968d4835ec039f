"""Supervising: several processes that do the same work, until a signal. It knows nothing of servers.

The first process forks the others, and then only waits. A worker says that it is ready, over a socket that it shares
with the first process. The end of that socket tells it to stop: so it also stops if the first process has died. It is
not told by a signal, because a terminal and a service manager send theirs to all processes of a group, and a second
signal means something else.

The first worker starts alone. If it dies before it is ready, so would the others: everything ends with its status, and
its error is printed once. Later, a worker that dies is replaced: at once if it has worked for some time, else after a
pause that doubles. One that dies again and again before it is ready ends everything.

A worker that is ready says again and again that it works (see `heartbeat`). One that has been silent for too long is
killed, because a stopped process hears nothing else, and replaced as if it had died. Before that, and after any death,
another worker serves those who wait for it (see `handover`).
"""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final, NoReturn

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.server.processes.heartbeat import Attention, Heartbeat, beat_seconds
from streamcodec.server.sockets import handover
from streamcodec.server.sockets.accepting import shut_out

logger: Final = logging.getLogger(__name__)

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED: Final = 130
"""The exit status after Ctrl-C, as of a shell."""

_SHORT_SECONDS: Final = 10.0
"""A worker that has worked for less has died soon."""

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0

_MOST_FALSE_STARTS: Final = 4
"""Deaths of a worker, one after the other, before it was ready: by then it is no accident."""

_GRACE_SECONDS: Final = 2.0
"""For a worker to end after its time to stop is over, which it minds itself."""

_END: Final = b"\0"
"""Of what a worker says when it is ready."""

Ready = Callable[[str, socket.socket | None], None]
"""Called by a worker, once, with what the first process shall know, and with the listener at which others may wait for
this worker alone."""

Work = Callable[[socket.socket, Ready], int]
"""What a worker does: it is given the socket whose end tells it to stop, and returns its exit status."""


def _do_nothing() -> None:
    pass


class _WorkerProcess:
    """A process, from its start to its end."""

    def __init__(self, pid: int, channel: socket.socket, begin_heartbeat: Callable[[], Heartbeat]) -> None:
        self.pid = pid
        self.channel = channel
        self.listener: socket.socket | None = None
        self.heartbeat: Heartbeat | None = None
        self.is_given_up = False
        self.helped = 0.0
        self.began = time.monotonic()
        self.said = b""
        self._begin_heartbeat = begin_heartbeat

    @property
    def is_ready(self) -> bool:
        return self.heartbeat is not None

    @property
    def is_doubtful(self) -> bool:
        return self.heartbeat is not None and self.heartbeat.is_doubtful

    @property
    def can_help(self) -> bool:
        """Whether it serves those who wait for another worker."""
        heartbeat = self.heartbeat
        return heartbeat is not None and heartbeat.takes_connections and not heartbeat.is_doubtful

    @property
    def files(self) -> list[socket.socket]:
        """What the first process has of it."""
        return [self.channel, *([] if self.listener is None else [self.listener])]

    def listen(self) -> None:
        """Take what it says: first what shall be known of it, and then that it works."""
        try:
            said, listeners = handover.receive(self.channel, 1 << 16)
        except OSError:
            return
        self.listener = next(iter(listeners), self.listener)
        if self.heartbeat is None:
            before, end, said = said.partition(_END)
            self.said += before
            if end:
                self.heartbeat = self._begin_heartbeat()
        if self.heartbeat is not None:
            self.heartbeat.hear(said)

    def status(self) -> int | None:
        """Return its exit status if it has ended, negative for a signal."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


class _Place:
    """A place for a worker, and what has become of those that had it.

    Attributes:
        worker: who has it now.
        due: when the next one starts, if nobody has it.
    """

    def __init__(self) -> None:
        self.worker: _WorkerProcess | None = None
        self.due = math.inf
        self._short_lives = 0
        self._false_starts = 0

    def lost(self, worker: _WorkerProcess) -> bool:
        """Plan for the next worker; return whether there is any sense in it."""
        self.worker = None
        now = time.monotonic()
        self._false_starts = 0 if worker.is_ready else self._false_starts + 1
        if worker.is_ready and now - worker.began >= _SHORT_SECONDS:
            self._short_lives = 0
        pause = 0.0 if not self._short_lives else _FIRST_PAUSE * 2.0 ** min(self._short_lives - 1, 10)
        self._short_lives += 1
        self.due = now + min(pause, _LONGEST_PAUSE)
        return self._false_starts < _MOST_FALSE_STARTS


def supervise(
    work: Work,
    count: int,
    *,
    shutdown_timeout: float,
    worker_timeout: float,
    on_ready: Callable[[str], None],
    on_stop: Callable[[], None] = _do_nothing,
) -> int:
    """Run workers until SIGINT or SIGTERM, or until one cannot start.

    Args:
        work: what each does, in a process of its own.
        count: how many.
        shutdown_timeout: seconds that a worker takes to stop, at most. Who takes longer is killed; all are at a second
            signal.
        worker_timeout: seconds that a worker may be silent, see `heartbeat`. Who says nothing for longer is killed and
            replaced. 0 for any time.
        on_ready: called once, when all are ready, with what the first has said.
        on_stop: called before the workers are told to stop.

    Returns:
        An exit status: 0 after SIGTERM, 130 after SIGINT, 1 if a worker had to be killed; else that of the worker that
        could not start.

    Raises:
        LocalProtocolError: this process has other threads, which its children would not have.
    """
    if threading.active_count() > 1:
        msg = "worker processes have to be started before other threads: they would have none of them, but their locks"
        raise LocalProtocolError(msg)
    return _Supervisor(
        work,
        count,
        shutdown_timeout=shutdown_timeout,
        worker_timeout=worker_timeout,
        on_ready=on_ready,
        on_stop=on_stop,
    ).run()


class _Supervisor:
    def __init__(
        self,
        work: Work,
        count: int,
        *,
        shutdown_timeout: float,
        worker_timeout: float,
        on_ready: Callable[[str], None],
        on_stop: Callable[[], None],
    ) -> None:
        self._work = work
        self._count = count
        self._shutdown_timeout = shutdown_timeout
        self._worker_timeout = worker_timeout or math.inf
        self._beat_seconds = beat_seconds(worker_timeout)
        self._attention = Attention(self._beat_seconds)
        self._left_behind: list[socket.socket] = []
        self._on_ready: Callable[[str], None] | None = on_ready
        self._on_stop = on_stop
        self._places = [_Place()]
        self._signals: list[int] = []
        self._is_stopping = False
        self._status = 0
        self._kill_at = math.inf

    @property
    def _workers(self) -> list[_WorkerProcess]:
        return [place.worker for place in self._places if place.worker is not None]

    def run(self) -> int:
        with _signals_to(self._signals) as woken:
            self._woken = woken
            try:
                self._start(self._places[0])
                while not self._is_stopping or self._workers:
                    self._wait()
                    self._heed_signals()
                    self._reap()
                    self._watch()
                    self._go_on()
            finally:
                self._kill()
        return self._status

    # One turn

    def _wait(self) -> None:
        """Wait for a signal, a worker that becomes ready, the next look at the others, or what else is due."""
        channels = [worker.channel for worker in self._workers if not worker.is_ready]
        due = min([self._kill_at, *(place.due for place in self._places)]) - time.monotonic()
        if any(worker.is_ready for worker in self._workers):
            due = min(due, self._beat_seconds)
        found, _, _ = select.select([self._woken, *channels], [], [], None if due == math.inf else max(0.0, due))
        if self._woken in found:
            with suppress(BlockingIOError):
                self._woken.recv(1 << 10)
        self._attention.look()
        for worker in self._workers:
            worker.listen()

    def _heed_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if self._is_stopping:
                self._kill_at = 0.0
            else:
                self._status = _INTERRUPTED if number == signal.SIGINT else 0
                self._stop()

    def _reap(self) -> None:
        for place in self._places:
            worker = place.worker
            if worker is None or (status := worker.status()) is None:
                continue
            worker.listen()  # it may have been ready before it died
            worker.channel.close()
            if worker.listener is not None:
                self._left_behind.append(worker.listener)
            if self._is_stopping:
                place.worker = None
                self._status = self._status or int(status != 0)
            else:
                self._replace(place, worker, status)

    def _watch(self) -> None:
        """Have others serve those who wait for a silent worker or a dead one, and end who is silent for too long."""
        if self._is_stopping:
            self._close_left_behind()
            return
        for worker in self._workers:
            if worker.is_doubtful and worker.listener is not None:
                self._hand_over(worker.listener)
            if worker.heartbeat is not None and worker.heartbeat.silence > self._worker_timeout:
                self._give_up(worker)
        if any(worker.can_help for worker in self._workers):
            for listener in self._left_behind:
                shut_out(listener)
                self._hand_over(listener)
            self._close_left_behind()

    def _go_on(self) -> None:
        now = time.monotonic()
        if now >= self._kill_at:
            self._status = self._status or 1
            self._kill()
        if self._is_stopping:
            return
        for place in self._places:
            if now >= place.due:
                self._start(place)
        ready = [worker for worker in self._workers if worker.is_ready]
        if ready and len(self._places) < self._count:
            self._places += [_Place() for _ in range(self._count - 1)]
            for place in self._places[1:]:
                self._start(place)
        elif len(ready) == self._count and self._on_ready is not None:
            on_ready, self._on_ready = self._on_ready, None
            on_ready(ready[0].said.decode())

    # Who waits for a worker that does not come

    def _hand_over(self, listener: socket.socket) -> None:
        """Have another worker accept those who wait there: the one that has not done so for the longest time."""
        if not handover.is_listening(listener):
            return
        helpers = [worker for worker in self._workers if worker.can_help]
        for worker in sorted(helpers, key=lambda worker: worker.helped):
            if handover.send(worker.channel, listener):
                worker.helped = self._attention.now
                return

    def _close_left_behind(self) -> None:
        for listener in self._left_behind:
            listener.close()
        self._left_behind.clear()

    def _give_up(self, worker: _WorkerProcess) -> None:
        if worker.is_given_up:
            return
        worker.is_given_up = True
        logger.error(
            "worker %d has given no sign of life for %g s: it was stopped, or a model blocks its event loop; it is "
            "killed and replaced (--worker-timeout)",
            worker.pid,
            self._worker_timeout,
        )
        os.kill(worker.pid, signal.SIGKILL)  # a stopped process hears nothing else

    # Starting and ending

    def _replace(self, place: _Place, worker: _WorkerProcess, status: int) -> None:
        makes_sense = place.lost(worker)
        is_first = len(self._places) == 1 and not worker.is_ready
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        if makes_sense and not is_first:
            pause = max(0.0, place.due - time.monotonic())
            level = logging.DEBUG if worker.is_given_up else logging.ERROR  # of one given up it has been said
            logger.log(level, "worker %d %s; another one starts in %.1f s", worker.pid, how, pause)
            return
        logger.error("worker %d %s before it was ready; the server ends", worker.pid, how)
        self._status = 128 - status if status < 0 else status or 1
        self._stop()

    def _stop(self) -> None:
        """Tell all workers to stop."""
        self._is_stopping = True
        for worker in self._workers:
            if worker.is_doubtful and worker.listener is not None:
                self._hand_over(worker.listener)
        self._on_stop()
        self._kill_at = time.monotonic() + self._shutdown_timeout + _GRACE_SECONDS
        for place in self._places:
            place.due = math.inf
        for worker in self._workers:
            with suppress(OSError):
                worker.channel.shutdown(socket.SHUT_WR)

    def _kill(self) -> None:
        self._kill_at = math.inf
        for worker in self._workers:
            os.kill(worker.pid, signal.SIGKILL)

    def _start(self, place: _Place) -> None:
        place.due = math.inf
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            for other in (ours, *self._left_behind, *(file for worker in self._workers for file in worker.files)):
                other.close()
            _work(self._work, theirs)
        theirs.close()
        ours.setblocking(False)
        place.worker = _WorkerProcess(pid, ours, lambda: Heartbeat(self._attention, self._beat_seconds))


def _work(work: Work, channel: socket.socket) -> NoReturn:
    """Be a worker, and nothing else."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

        def ready(text: str, listener: socket.socket | None) -> None:
            channel.sendall(text.encode())
            if listener is None or not handover.send(channel, listener, _END):
                channel.sendall(_END)

        status = work(channel, ready)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - nothing may reach what the first process would do next
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(status)


@contextmanager
def _signals_to(found: list[int]) -> Iterator[socket.socket]:
    """Collect signals; yield a socket that is readable when there is one, or when a child has ended."""
    reading, writing = socket.socketpair()
    with reading, writing:
        reading.setblocking(False)
        writing.setblocking(False)

        def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
            found.append(number)

        usual = {number: signal.signal(number, note) for number in _SIGNALS}
        usual[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _ignore)
        before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        try:
            yield reading
        finally:
            signal.set_wakeup_fd(before)
            for number, handler in usual.items():
                signal.signal(number, handler)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wake-up is enough."""
