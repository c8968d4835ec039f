"""Running: a server as a program, until a signal.

The first signal stops the server; a second one ends everything. Both have time limits that hold even if a model blocks
the event loop, or goes on after it is cancelled. So a separate thread watches, and ends the process if the loop has not
ended in time.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import ssl
import threading
from _thread import start_new_thread
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskGroup

from streamcodec.runtime.options import ServerOptions
from streamcodec.server.processes.heartbeat import beat, beat_seconds
from streamcodec.server.processes.loops import new_loop
from streamcodec.server.serving import Server
from streamcodec.server.sockets.handover import received
from streamcodec.server.sockets.unixsocket import PERMISSIONS, UnixListener, UnixPath, open_unix_listener, refuse_tls
from streamcodec.service import Service
from streamcodec.service.observing import Observer

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_STOPS_WORKER: Final = (signal.SIGTERM,)
"""Ctrl-C is for the first process, which tells the others."""

_LOOK_SECONDS: Final = 0.1
"""Time between two looks for a signal, where the event loop cannot tell."""

_GRACE_SECONDS: Final = 1.0
"""Time for the event loop to end after it was told to. Usually it takes some milliseconds."""


_COLLECTED: Final = (5_000, 20, 100)
"""Thresholds of the garbage collector. A collection looks at all objects there are: 80 ms where requests of 12,000
tensors are under way, and with Python's own thresholds, p99 of health checks was 101 ms then; with these it was 20."""


def run(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    options: ServerOptions | None = None,
    observer: Observer | Iterable[Observer] = (),
    on_listening: Callable[[str, int], None] | None = None,
    ssl_context: ssl.SSLContext | None = None,
    uds: UnixPath | None = None,
    uds_permissions: int = PERMISSIONS,
) -> int:
    """Serve until SIGINT or SIGTERM.

    This is for a program that only serves: it handles signals, and makes garbage collections less frequent.

    After the first signal, this takes `shutdown_timeout` at most. A second signal ends it at once. If the event loop
    has not ended a second later, the process ends here, with status 1.

    Args:
        service: what is served.
        host: address to listen at.
        port: port to listen at; 0 picks a free one.
        options: settings of the server.
        observer: called for each request; or several observers, called in turn.
        on_listening: called with address and port once connections are accepted and signals are handled; for a Unix
            socket with its absolute path and 0.
        ssl_context: of a server, to serve https; see `server_context`. None to serve plain HTTP.
        uds: path of a Unix socket to listen at, instead of `host` and `port`; see `open_unix_listener`.
        uds_permissions: of its file.

    Returns:
        How many model calls still run, in threads that keep the interpreter from ending: those that had not returned
        after `shutdown_timeout`, or at a second signal.

    Raises:
        LocalProtocolError: the path is too long, or there is TLS on a Unix socket.
        OSError: the server cannot listen at the address.
    """
    refuse_tls(uds, ssl_context)
    collect_seldom()
    options = options or ServerOptions()
    server = Server(service, options, observer=observer, ssl_context=ssl_context)
    with open_listener(host, port) if uds is None else open_unix_listener(uds, permissions=uds_permissions) as listener:

        def announce() -> None:
            if on_listening is not None:
                on_listening(*place_of(listener, host))

        serve_until_signal(server, listener, announce, options.shutdown_timeout)
    return server.unfinished_calls


class Stoppable(Protocol):
    """A server that is told by a signal to stop."""

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` has been called."""
        ...

    async def serve(self, listener: socket.socket) -> None:
        """Serve until `stop` is called."""
        ...

    def stop(self) -> None:
        """Take no more requests."""
        ...


def serve_until_signal(
    server: Stoppable, listener: socket.socket, announce: Callable[[], None], seconds: float
) -> None:
    """Serve on a listening socket until SIGINT or SIGTERM; a second signal ends everything.

    Args:
        server: serves.
        listener: listening.
        announce: called once signals are handled.
        seconds: time for the server to stop.
    """
    watchdog = _Watchdog(seconds, 0.0)
    try:
        settings = {"loop_factory": new_loop}
        anyio.run(
            _run_until_signal, server, listener, lambda _: announce(), watchdog, _SIGNALS, backend_options=settings
        )
    finally:
        watchdog.has_ended.set()


def run_worker(server: Server, listener: socket.socket, channel: socket.socket, options: ServerOptions) -> None:
    """Serve in a process among others, until the channel ends or SIGTERM; a second signal changes nothing.

    Args:
        server: serves.
        listener: listening.
        channel: to the first process, which is told that this one works (see `heartbeat`), and may send the listeners
            of others (see `handover`).
        options: settings of the server, for the times.
    """
    watchdog = _Watchdog(options.shutdown_timeout)
    seconds = beat_seconds(options.worker_timeout)

    def watch(loop: asyncio.AbstractEventLoop) -> None:
        for other in received(channel):
            try:
                loop.call_soon_threadsafe(server.accept_waiting, other)
            except RuntimeError:  # the loop has ended
                other.close()
        if isinstance(listener, UnixListener):
            listener.owns_file = True  # all workers stop, and not only this one
        watchdog.terminate()

    def announce(tasks: TaskGroup) -> None:
        tasks.start_soon(beat, channel, seconds, lambda: not server.is_stopping)
        loop = asyncio.get_running_loop()
        threading.Thread(target=watch, args=(loop,), name="streamcodec worker", daemon=True).start()

    collect_seldom()
    try:
        settings = {"loop_factory": new_loop}
        anyio.run(_run_until_signal, server, listener, announce, watchdog, _STOPS_WORKER, backend_options=settings)
    finally:
        watchdog.has_ended.set()


def open_listener(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Open a listening TCP socket.

    Args:
        host: an address or a name; one with a colon is IPv6.
        port: 0 picks a free one.
        reuse_port: whether other sockets may listen there, too: then the system gives each a share of the connections.

    Raises:
        OSError: the server cannot listen at the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024, reuse_port=reuse_port)


def place_of(listener: socket.socket, host: str) -> tuple[str, int]:
    """Return where a listener listens, as `on_listening` is told: host and port, or a path and 0."""
    return (listener.path, 0) if isinstance(listener, UnixListener) else (host, listener.getsockname()[1])


class _Watchdog:
    """Ends the process if the event loop does not end.

    The system's signal handlers count the signals. They run even if the loop is blocked.

    Attributes:
        has_ended: whether the loop has ended.
    """

    def __init__(self, *limits: float) -> None:
        """Give the loop so many seconds after the first signal, and after each of the next."""
        self._limits = iter(limits)
        self._lock = threading.Lock()
        self._is_handling = True
        self.has_ended = threading.Event()

    def watch(self, numbers: Iterable[signal.Signals]) -> None:
        """Count each of these signals before its present handler is called."""
        for number in numbers:
            signal.signal(number, partial(self._count, signal.getsignal(number)))

    def terminate(self) -> None:
        """Send SIGTERM to this process, unless its handlers are about to be removed: it would be killed then."""
        with self._lock:
            if self._is_handling:
                os.kill(os.getpid(), signal.SIGTERM)

    def handle_no_more(self) -> None:
        """Report that the handlers of signals are removed next."""
        with self._lock:
            self._is_handling = False

    def _count(self, handler: Any, number: int, frame: Any) -> None:  # noqa: ANN401 - whatever `signal` takes
        if (limit := next(self._limits, None)) is not None:
            with suppress(RuntimeError):  # perhaps no thread can be started
                start_new_thread(self._end, (limit + _GRACE_SECONDS,))  # takes no lock that may be held here
        if callable(handler):
            handler(number, frame)

    def _end(self, seconds: float) -> None:
        if not self.has_ended.wait(seconds):
            os.write(2, b"streamcodec: the event loop does not end; the process ends without it\n")
            os._exit(1)


def collect_seldom() -> None:
    """Make the garbage collector of this program block its event loop less often.

    It is not needed to free the memory of requests. It only has to find cycles, and mostly models make them.
    """
    gc.freeze()  # modules and models, which stay
    gc.set_threshold(*_COLLECTED)


async def _run_until_signal(
    server: Stoppable,
    listener: socket.socket,
    announce: Callable[[TaskGroup], None],
    watchdog: _Watchdog,
    numbers: tuple[signal.Signals, ...],
) -> None:
    with _received(numbers) as signals:
        watchdog.watch(numbers)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, signals, server, tasks.cancel_scope if numbers == _SIGNALS else None)
            announce(tasks)  # only now: a signal that comes before it is handled here would kill the process
            await server.serve(listener)
            watchdog.handle_no_more()
            tasks.cancel_scope.cancel()


@contextmanager
def _received(numbers: tuple[signal.Signals, ...]) -> Iterator[AsyncIterator[signal.Signals]]:
    """Receive signals. An event loop of Windows cannot; there, handlers note them, and a task looks regularly."""
    with ExitStack() as stack:
        try:
            signals = stack.enter_context(anyio.open_signal_receiver(*numbers))
        except NotImplementedError:
            signals = stack.enter_context(_noted(numbers))
        yield signals


@contextmanager
def _noted(numbers: tuple[signal.Signals, ...]) -> Iterator[AsyncIterator[signal.Signals]]:
    noted: deque[int] = deque()
    before = {number: signal.signal(number, lambda number, _: noted.append(number)) for number in numbers}

    async def look() -> AsyncIterator[signal.Signals]:
        while True:
            while noted:
                yield signal.Signals(noted.popleft())
            await anyio.sleep(_LOOK_SECONDS)

    try:
        yield look()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _watch(
    signals: AsyncIterator[signal.Signals], server: Stoppable, everything: anyio.CancelScope | None
) -> None:
    async for _ in signals:
        if server.is_stopping and everything is not None:
            everything.cancel()
            return
        server.stop()
