"""Worker process: one process of several, from its fork to its end, as the first process sees it and as it sees itself.

A worker says that it is ready, over a socket that it shares with the first process. The end of that socket tells it to
stop: so it also stops if the first process has died. It is not told by a signal, because a terminal and a service
manager send theirs to all processes of a group, and a second signal means something else.

This file starts, hears and reaps one process. What follows from that is decided in `supervising`.

While nobody else serves, a new worker starts at once when one has died: each moment is one without answers. While
others serve, one that has died soon after its start makes the next one wait, longer each time, because it may die for
the same reason, such as a request that comes again and again. One that has died before it was ready makes the next one
wait in any case: its models or its certificate cannot be loaded now.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NoReturn

from streamcodec.server.processes.heartbeat import Heartbeat
from streamcodec.server.sockets import handover

_SHORT_SECONDS: Final = 10.0
"""A worker that has lived for less has died soon."""

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0


class Place:
    """A place for a worker, and what has become of those that had it.

    Attributes:
        due: when the next worker starts; infinite if nobody is missing.
        false_starts: deaths before the worker was ready, one after the other.
    """

    def __init__(self, due: float) -> None:
        """Begin without a worker; the first one starts at this time."""
        self.due = due
        self.false_starts = 0
        self._short_lives = 0

    def filled(self) -> None:
        """Note that a worker has been started."""
        self.due = math.inf

    def lost(self, now: float, *, lived: float, was_ready: bool) -> None:
        """Plan for the next worker.

        Args:
            now: seconds, by any clock.
            lived: seconds from the start of the worker to its end.
            was_ready: whether it had been ready.
        """
        if not was_ready:
            self.false_starts += 1
            pauses = self.false_starts
        elif lived < _SHORT_SECONDS:
            self.false_starts = 0
            pauses = self._short_lives
            self._short_lives += 1
        else:
            self.false_starts = pauses = self._short_lives = 0
        self.due = now + (min(_FIRST_PAUSE * 2.0 ** min(pauses - 1, 10), _LONGEST_PAUSE) if pauses else 0.0)

    def hurry(self, now: float) -> None:
        """If a worker is missing, start it at once, because nobody else serves; unless the last one could not start."""
        if self.due < math.inf and not self.false_starts:
            self.due = now


_END: Final = b"\0"
"""Of what a worker says when it is ready."""

LATE_SECONDS: Final = 60.0
"""A worker that takes longer to be ready may hang; most models are loaded in less."""

Ready = Callable[[str, socket.socket | None], None]
"""Called by a worker, once, with what the first process shall know, and with the listener at which others may wait for
this worker alone."""

Work = Callable[[socket.socket, Ready], int]
"""What a worker does: it is given the socket whose end tells it to stop, and returns its exit status."""


class WorkerProcess:
    """A process, from its start to its end.

    Attributes:
        pid: its number.
        channel: to it; it ends when the process has to stop.
        listener: at which others may wait for it alone; None if it has none, or is not ready.
        heartbeat: what it has said since it was ready; None before.
        said: what it has said when it was ready.
        began: when it was started, by the monotonic clock.
        helped: when it has last accepted those who wait for another one, by the clock of the heartbeats.
        kill_at: when it is killed, by the monotonic clock, because it was told to stop; None before.
        late_at: when it is said that it is not ready yet, by the same clock.
    """

    def __init__(self, pid: int, channel: socket.socket, begin_heartbeat: Callable[[], Heartbeat]) -> None:
        """Take over a process that was forked."""
        self.pid = pid
        self.channel = channel
        self.listener: socket.socket | None = None
        self.heartbeat: Heartbeat | None = None
        self.said = ""
        self.began: float = time.monotonic()
        self.helped = 0.0
        self.kill_at: float | None = None
        self.late_at = self.began + LATE_SECONDS
        self.is_given_up = False
        self._said = b""
        self._begin_heartbeat = begin_heartbeat

    @property
    def is_ready(self) -> bool:
        """Whether it has said so."""
        return self.heartbeat is not None

    @property
    def is_doubtful(self) -> bool:
        """Whether it was ready, and has missed beats."""
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
            self._said += before
            if end:
                self.said = self._said.decode()
                self.heartbeat = self._begin_heartbeat()
        if self.heartbeat is not None:
            self.heartbeat.hear(said)

    def stop(self, seconds: float, *, is_replaced: bool = False) -> None:
        """Tell it to stop, and plan its end: so many seconds from now at the latest.

        Args:
            seconds: that it has.
            is_replaced: whether another one has its place, so that it needs no `drain_delay`.
        """
        if self.kill_at is None:
            self.kill_at = time.monotonic() + seconds
            if is_replaced:
                handover.tell(self.channel, handover.Word.REPLACED)
            with suppress(OSError):
                self.channel.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End it now: a stopped process hears no other signal."""
        os.kill(self.pid, signal.SIGKILL)

    def status(self) -> int | None:
        """Return its exit status if it has ended, negative for a signal."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


def start(work: Work, others: Iterable[socket.socket], begin_heartbeat: Callable[[], Heartbeat]) -> WorkerProcess:
    """Fork a worker.

    Args:
        work: what it does.
        others: files of the first process that it shall not have.
        begin_heartbeat: makes what hears it, when it is ready.
    """
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        for other in (ours, *others):
            other.close()
        _be_worker(work, theirs)
    theirs.close()
    ours.setblocking(False)
    return WorkerProcess(pid, ours, begin_heartbeat)


def _be_worker(work: Work, channel: socket.socket) -> NoReturn:
    """Be a worker, and nothing else."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGHUP):  # of a terminal: they are for the first process
            signal.signal(number, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)

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
