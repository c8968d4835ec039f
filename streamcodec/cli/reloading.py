"""Reloading: a server that is started anew when the user's code has changed.

There are two processes, since modules cannot be replaced in one that has used them. The first starts the second, with
the same arguments, and starts it anew when that says that a file has changed. The second serves, and watches the files
itself: it alone knows what it has imported, also when a model imports more later. If the user's code cannot be loaded,
it waits for a change all the same.

A socket joins the two. The second process knows by it that it is the second, and each, when it ends, that the other is
gone.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from streamcodec.cli.output import say

_CHANNEL: Final = "STREAMCODEC_RELOAD_CHANNEL"
"""Environment variable with the number of the socket, for the second process alone."""

_INTERVAL: Final = 0.3
"""Seconds between two looks at the files, each of which takes a millisecond."""

_ORDERLY_SECONDS: Final = 1.0
"""For the second process to end by itself after Ctrl-C, which a terminal sends to both."""

_RESTART_SECONDS: Final = 3.0
"""For requests under way when a file has changed."""

_OTHERS: Final = (
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).parents[1]) + os.sep,
)
"""Folders whose files are not the user's."""

Stamp = tuple[int, int] | None
"""Time of the last change and size of a file; None if there is none."""


def supervise() -> int:
    """Run the program of this process in another one, anew after each change; return the exit status of the last."""
    signal.signal(signal.SIGTERM, _interrupt)
    while (status := _status_of_run()) is None:
        pass
    return status


def joined() -> socket.socket | None:
    """Return the socket that joins this process to the first one; None if this is the first."""
    number = os.environ.pop(_CHANNEL, None)
    if number is None:
        return None
    channel = socket.socket(fileno=int(number))
    channel.set_inheritable(False)
    return channel


class Watcher:
    """Watches the files of the user's modules in a thread of its own, from before they are imported."""

    def __init__(self, channel: socket.socket) -> None:
        """Begin; changes are told to the first process, which ends this one then."""
        self._channel = channel
        self._stamps: dict[str, Stamp] = {}
        self._others: Iterable[str] = ()
        self._thread = threading.Thread(target=self._watch, name="streamcodec reload", daemon=True)
        # Of two changes within a second, Python's caches on disk would not notice the second.
        sys.dont_write_bytecode = True
        self._thread.start()

    def look(self, others: Iterable[str] = ()) -> None:
        """Have every change from now on noticed, also of files that are in no module."""
        self._others = tuple(others)
        self._changed()

    def _watch(self) -> None:
        while (changed := self._changed()) is None:
            if select.select([self._channel], [], [], _INTERVAL)[0]:  # the first process is gone
                os.kill(os.getpid(), signal.SIGTERM)
                return
        with suppress(OSError):  # nobody reads that
            say(f"{changed} has changed")
        self._channel.sendall(b"changed")

    def _changed(self) -> str | None:
        """Return a file that is not as it was when it was first seen; one that is gone may be about to be replaced."""
        for path in (*_files_of_modules(), *self._others):
            stamp = _stamp(path)
            if stamp is not None and self._stamps.get(path, stamp) != stamp:
                return path
            self._stamps.setdefault(path, stamp)
        return None


def wait() -> NoReturn:
    """Do nothing until the first process ends this one."""
    while True:
        signal.pause()


def _files_of_modules() -> Iterator[str]:
    """Return the files of the modules that are imported now and neither Python's, a package's nor ours."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__dict__", {}).get("__file__")  # to ask it for an attribute may load it
        if isinstance(path, str) and not path.startswith(_OTHERS):
            yield path


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116 - many of them
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _status_of_run() -> int | None:
    """Run the second process until it ends; return its exit status, or None if it shall be started anew."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            environment = {**os.environ, _CHANNEL: str(theirs.fileno())}
            command = [sys.executable, *sys.orig_argv[1:]]
            process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])  # noqa: S603 - ourselves
        with process:
            try:
                if ours.recv(1):
                    _end(process, _RESTART_SECONDS)
                    return None
            except KeyboardInterrupt:
                _end_orderly(process)
            status = process.wait()
    return status if status >= 0 else 128 - status  # as a shell says it


def _end_orderly(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_ORDERLY_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of a handler
    raise KeyboardInterrupt
