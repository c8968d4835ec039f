"""Reloading: restarts the server when the user's code has changed.

There are two processes, because a process cannot replace the modules that it uses. The first process starts the second
one with the same arguments, and restarts it when it reports a changed file. The second process serves, and watches the
files itself, because only it knows its imported modules, including those that a model imports later. If the user's code
cannot be loaded, the second process still waits for a change.

A socket connects the two processes. It tells the second process that it is the second one. It tells each of them when
the other has ended.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn

from streamcodec.cli.interruption import handled
from streamcodec.cli.output import say
from streamcodec.cli.serving.loading import users_modules
from streamcodec.cli.statuses import INTERRUPTED

_CHANNEL: Final = "STREAMCODEC_RELOAD_CHANNEL"
"""Environment variable with the number of the socket, only for the second process."""

_INTERVAL: Final = 0.3
"""Seconds between two checks of the files; a check takes a millisecond."""

_ORDERLY_SECONDS: Final = 1.0
"""Time for the second process to end by itself after Ctrl-C, which a terminal sends to both."""

_RESTART_SECONDS: Final = 3.0
"""Time for requests in progress when a file has changed."""

Stamp = tuple[int, int] | None
"""Time of the last change, and size of a file; None if it does not exist."""


def supervise() -> int:
    """Run this program in a second process, again after each change; return the exit status of the last run."""
    signal.signal(signal.SIGTERM, _terminate)
    while (status := _status_of_run()) is None:
        pass
    return status


def joined() -> socket.socket | None:
    """Return the socket that connects this process to the first one; None if this is the first."""
    number = os.environ.pop(_CHANNEL, None)
    if number is None:
        return None
    channel = socket.socket(fileno=int(number))
    channel.set_inheritable(False)
    return channel


class Watcher:
    """Watches the files of the user's modules in a separate thread, from before their import."""

    def __init__(self, channel: socket.socket) -> None:
        """Begin. Changes are reported to the first process, which then ends this one."""
        self._channel = channel
        self._stamps: dict[str, Stamp] = {}
        self._others: Iterable[str] = ()
        self._thread = threading.Thread(target=self._watch, name="streamcodec reload", daemon=True)
        # With two changes within one second, Python's bytecode cache would not notice the second one.
        sys.dont_write_bytecode = True
        self._thread.start()

    def look(self, others: Iterable[str] = ()) -> None:
        """Notice every change from now on, also in files that belong to no module."""
        self._others = tuple(others)
        self._changed()

    def _watch(self) -> None:
        while (changed := self._changed()) is None:
            if select.select([self._channel], [], [], _INTERVAL)[0]:  # the first process has ended
                os.kill(os.getpid(), signal.SIGTERM)
                return
        with suppress(OSError):  # nobody reads the output
            say(f"{changed} has changed")
        self._channel.sendall(b"changed")

    def _changed(self) -> str | None:
        """Return a changed file, or None. A missing file does not count, because it may be about to be replaced."""
        for path in (*(path for _, path in users_modules()), *self._others):
            stamp = _stamp(path)
            if stamp is not None and self._stamps.get(path, stamp) != stamp:
                return path
            self._stamps.setdefault(path, stamp)
        return None


def wait() -> NoReturn:
    """Do nothing until the first process ends this one."""
    while True:
        signal.pause()


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116 - many of them
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _status_of_run() -> int | None:
    """Run the second process until it ends; return its exit status, or None if it must be restarted."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            environment = {**os.environ, _CHANNEL: str(theirs.fileno())}
            command = [sys.executable, *sys.orig_argv[1:]]
            process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])  # noqa: S603 - ourselves
        stopped_with = 0
        with process:
            try:
                if ours.recv(1):
                    _end(process, _RESTART_SECONDS)
                    return None
            except KeyboardInterrupt as stop:
                handled()
                stopped_with = 0 if isinstance(stop, _Terminated) else INTERRUPTED
                try:
                    process.wait(_ORDERLY_SECONDS)
                except subprocess.TimeoutExpired:
                    process.terminate()
            status = process.wait() or stopped_with
    return status if status >= 0 else 128 - status  # the convention of shells


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends both processes in the same way as Ctrl-C."""


def _terminate(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of a handler
    raise _Terminated
