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
from streamcodec.server.processes.loops import INTERRUPTED, RENEWS, STOPS, new_loop
from streamcodec.server.processes.servicemanager import Reload, Renewal, ServiceManager
from streamcodec.server.serving import Server
from streamcodec.server.sockets.handover import Word, received
from streamcodec.server.sockets.opening import open_place, place_of
from streamcodec.server.sockets.unixsocket import PERMISSIONS, UnixListener, UnixPath, refuse_tls
from streamcodec.service import Service
from streamcodec.service.observing import Observer

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
    listener: socket.socket | None = None,
    reuse_port: bool = False,
    on_reload: Reload | None = None,
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
        listener: a listening socket of the caller's, instead of `host` and `port`, or `uds`. Others may listen at it,
            too, now or later: those who wait there when this server stops are left to them.
        reuse_port: whether other servers of this user may listen at the same port, so that one can take over from
            another: the system gives each a share of the connections.
        on_reload: called in a thread at SIGHUP. It may change the models of the service, and returns the TLS context
            for new connections; None to keep it. If it fails, that is logged, and nothing changes.

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
    opening = open_place(
        host=host, port=port, uds=uds, uds_permissions=uds_permissions, listener=listener, reuse_port=reuse_port
    )
    with opening as opened:

        def announce() -> None:
            if on_listening is not None:
                on_listening(*place_of(opened, host))

        serve_until_signal(server, opened, announce, options.shutdown_timeout, on_reload)
    return server.unfinished_calls


Heed = Callable[[int], None]
"""Does what a signal asks for."""


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

    def renew(self, ssl_context: ssl.SSLContext) -> None:
        """Show another certificate to those who connect from now on."""
        ...


def serve_until_signal(
    server: Stoppable,
    listener: socket.socket,
    announce: Callable[[], None],
    seconds: float,
    on_reload: Reload | None = None,
) -> int:
    """Serve on a listening socket until SIGINT or SIGTERM; a second signal ends everything.

    Args:
        server: serves.
        listener: listening.
        announce: called once signals are handled.
        seconds: time for the server to stop.
        on_reload: reads anew what is served, at SIGHUP; None for nothing.

    Returns:
        An exit status: 130 if Ctrl-C was the first signal, else 0.
    """
    watchdog = _Watchdog(STOPS, seconds, 0.0)
    manager = ServiceManager()
    first: list[int] = []

    def begin(tasks: TaskGroup) -> Heed:
        renewal = Renewal(server.renew, on_reload or (lambda: None), manager)

        def heed(number: int) -> None:
            if number == RENEWS:
                renewal.ask()
            elif server.is_stopping:
                tasks.cancel_scope.cancel()
            else:
                first.append(number)
                manager.is_stopping()
                server.stop()

        announce()
        manager.is_ready()
        tasks.start_soon(renewal.run)
        tasks.start_soon(_reassure, manager)
        return heed

    renews = () if RENEWS is None or on_reload is None else (RENEWS,)
    _serve(server, listener, watchdog, renews, begin)
    return INTERRUPTED if first == [signal.SIGINT] else 0


def run_worker(server: Server, listener: socket.socket, channel: socket.socket, options: ServerOptions) -> None:
    """Serve in a process among others, until the channel ends or SIGTERM; a second signal changes nothing.

    Args:
        server: serves.
        listener: listening.
        channel: to the first process, which is told that this one works (see `heartbeat`), and may send the listeners
            of others (see `handover`).
        options: settings of the server, for the times.
    """
    watchdog = _Watchdog((signal.SIGTERM,), options.shutdown_timeout)  # Ctrl-C is for the first process
    is_replaced = threading.Event()

    def watch(loop: asyncio.AbstractEventLoop) -> None:
        for told in received(channel):
            if told is Word.REPLACED:
                is_replaced.set()
                continue
            try:
                if isinstance(told, Word):
                    loop.call_soon_threadsafe(server.share_out)
                else:
                    loop.call_soon_threadsafe(server.accept_waiting, told)
            except RuntimeError:  # the loop has ended
                if not isinstance(told, Word):
                    told.close()
        if isinstance(listener, UnixListener) and not is_replaced.is_set():
            listener.owns_file = True  # all workers stop, and not only this one
        watchdog.terminate()

    def begin(tasks: TaskGroup) -> Heed:
        tasks.start_soon(beat, channel, beat_seconds(options.worker_timeout), lambda: not server.is_stopping)
        loop = asyncio.get_running_loop()
        threading.Thread(target=watch, args=(loop,), name="streamcodec worker", daemon=True).start()
        return lambda _: server.stop(is_replaced=is_replaced.is_set())

    collect_seldom()
    _serve(server, listener, watchdog, (), begin)


def _serve(
    server: Stoppable,
    listener: socket.socket,
    watchdog: _Watchdog,
    others: tuple[signal.Signals, ...],
    begin: Callable[[TaskGroup], Heed],
) -> None:
    """Serve until the server ends, and heed signals meanwhile.

    Args:
        server: serves.
        listener: listening.
        watchdog: counts the signals that stop the server.
        others: signals that are heeded besides those.
        begin: called once signals are handled, with what ends when the server ends; returns what heeds them.
    """

    async def serve() -> None:
        with _received((*watchdog.signals, *others)) as signals:
            watchdog.watch()
            async with anyio.create_task_group() as tasks:
                heed = begin(tasks)  # only now: a signal that comes before it is handled here would kill the process
                tasks.start_soon(_heed_all, signals, heed)
                await server.serve(listener)
                watchdog.handle_no_more()
                tasks.cancel_scope.cancel()

    try:
        anyio.run(serve, backend_options={"loop_factory": new_loop})
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None  # who stops by itself does so for one reason
    finally:
        watchdog.has_ended.set()


async def _heed_all(signals: AsyncIterator[signal.Signals], heed: Heed) -> None:
    async for number in signals:
        heed(number)


async def _reassure(manager: ServiceManager) -> None:
    """Tell the service manager again and again that this event loop turns."""
    while True:
        manager.works()
        await anyio.sleep(manager.beat_seconds)


class _Watchdog:
    """Ends the process if the event loop does not end.

    The system's signal handlers count the signals. They run even if the loop is blocked.

    Attributes:
        signals: those that stop the server.
        has_ended: whether the loop has ended.
    """

    def __init__(self, signals: tuple[signal.Signals, ...], *limits: float) -> None:
        """Give the loop so many seconds after the first signal, and after each of the next."""
        self.signals = signals
        self._limits = iter(limits)
        self._lock = threading.Lock()
        self._is_handling = True
        self.has_ended = threading.Event()

    def watch(self) -> None:
        """Count each of these signals before its present handler is called."""
        for number in self.signals:
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
