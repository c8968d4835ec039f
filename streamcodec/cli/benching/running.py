"""Running: runs a plan in this process or in several, and ends it early at Ctrl-C.

Processes are forked, so that they share the memory of the request. Each measures for itself, and sends what it has
measured through a pipe.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from streamcodec.cli.benching.load import Load
from streamcodec.cli.benching.plan import LoadPlan, Measured
from streamcodec.engine.errors import LocalProtocolError


class Stop:
    """Whether Ctrl-C has been pressed.

    Attributes:
        children: processes to be stopped too.
    """

    def __init__(self) -> None:
        """Begin before Ctrl-C."""
        self._is_set = False
        self.children: list[int] = []

    def is_set(self) -> bool:
        """Return whether to stop."""
        return self._is_set

    def set(self) -> None:
        """Stop this process and its children."""
        self._is_set = True
        for child in self.children:
            os.kill(child, signal.SIGINT)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Let the first Ctrl-C end the measurement, and only another one the program."""
    stop = Stop()
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()
        elif callable(before):
            before(number, frame)

    is_minded = threading.current_thread() is threading.main_thread() and callable(before)
    if is_minded:
        signal.signal(signal.SIGINT, press)
    try:
        yield stop
    finally:
        if is_minded:
            signal.signal(signal.SIGINT, before)


def run_plan(plan: LoadPlan, processes: int, stop: Stop) -> Measured:
    """Run a plan.

    Args:
        plan: what to do.
        processes: in how many processes; no more are used than there are connections.
        stop: when to end early.

    Raises:
        LocalProtocolError: there is to be more than one process, on a system without `fork`.
        OSError: there is no connection at the beginning, or a process failed.
    """
    if processes > 1 and not hasattr(os, "fork"):
        raise LocalProtocolError("--processes needs a system with fork, which Windows is not")
    plans = plan.shared(processes)
    if len(plans) == 1:
        return Load(plan, stop.is_set).run()
    pipes = [_fork(each, stop) for each in plans]
    found = [_received(pipe) for pipe in pipes]
    for child in stop.children:
        os.waitpid(child, 0)
    stop.children.clear()
    whole = Measured()
    for each in found:
        if isinstance(each, OSError):
            raise each
        whole.add(each)
    return whole


def _fork(plan: LoadPlan, stop: Stop) -> int:
    """Start a process; return the end of the pipe that it writes to."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(plan, stop, writing)
    os.close(writing)
    stop.children.append(child)
    return reading


def _work(plan: LoadPlan, stop: Stop, writing: int) -> NoReturn:
    """Measure in a process of its own, send the result, and end it. The terminal may send Ctrl-C here, too."""
    stop.children = []
    status = 1
    try:
        signal.signal(signal.SIGINT, lambda *_: stop.set())
        result: Measured | OSError
        try:
            result = Load(plan, stop.is_set).run()
        except OSError as error:
            result = error
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(result, pipe)
        status = 0
    finally:
        os._exit(status)


def _received(pipe: int) -> Measured | OSError:
    with os.fdopen(pipe, "rb") as file:
        data = file.read()
    if not data:
        return ChildProcessError("a process of the client ended before it had a result")
    result: Measured | OSError = pickle.loads(data)  # noqa: S301 - from our own process
    return result
