"""Processes: one server in several processes on one port, for more than one processor.

Each process has its own socket (`SO_REUSEPORT`), event loop, models, threads and memory; nothing is shared. The system
gives each new connection to one of them, by its addresses. With one socket for all, whoever is awake takes most: of 64
connections that came together, 43 to 64 went to the same of two processes, and 32 to 38 with a socket for each. Those
that wait at the socket of a process that is stuck or has died are served by another (see `handover`).

Unix sockets cannot share a name, so there the processes do have one socket for all. The first process opens it, and
the others inherit it. Connections that wait there survive a process that dies.

The budget of memory is that of the machine, so each process has its part of it. Other limits hold for each process.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.runtime.memory.available import memory_left
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.uploads.uploading import shared_uploads
from streamcodec.server.processes.running import run_worker
from streamcodec.server.processes.supervising import Supervisor
from streamcodec.server.processes.workerprocess import Ready
from streamcodec.server.serving import Server
from streamcodec.server.sockets.handover import SharedListener, WorkerListener
from streamcodec.server.sockets.opening import cannot_listen, open_listener, open_place, place_of
from streamcodec.server.sockets.unixsocket import PERMISSIONS, UnixListener, UnixPath, refuse_tls
from streamcodec.service import Service
from streamcodec.service.observing import Observer

_HAS_REUSE_PORT: Final = hasattr(socket, "SO_REUSEPORT")
_HAS_FORK: Final = hasattr(os, "fork")

Observing = Callable[[Service], AbstractContextManager[Iterable[Observer]]]
"""Makes the observers of one process, which are closed at its end."""


def run_workers(
    make_service: Callable[[], Service],
    count: int,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    options: ServerOptions | None = None,
    observing: Observing = lambda _: nullcontext(()),
    on_listening: Callable[[str, int, str], None] | None = None,
    describe: Callable[[Service], str] | None = None,
    ssl_context: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
    uds: UnixPath | None = None,
    uds_permissions: int = PERMISSIONS,
    listener: socket.socket | None = None,
    reuse_port: bool = False,
    on_worker_end: Callable[[int, bool], None] | None = None,
) -> int:
    """Serve in several processes until SIGINT or SIGTERM; a second signal ends them at once.

    Processes are forked: call this before there are other threads, and load models in `make_service`. A process that
    dies is replaced, and one whose event loop has stood still for `worker_timeout` is killed and replaced. If the first
    one cannot start, everything ends. SIGHUP replaces them one after the other, by processes that have read models and
    certificates anew; if one of these cannot start, the others go on.

    Args:
        make_service: makes what is served, in each process.
        count: of processes.
        host: address to listen at.
        port: port to listen at; 0 picks a free one.
        options: how. Each process has its part of `max_memory_bytes`; everything else holds for each of them.
        observing: makes the observers, in each process.
        on_listening: called once with address, port and description, when all processes accept connections; for a Unix
            socket with its absolute path, 0 and description.
        describe: makes the description of what is served, in the first process that is ready.
        ssl_context: of a server, to serve https; or a function that makes one, which is called in each process.
        uds: path of a Unix socket to listen at, instead of `host` and `port`; see `open_unix_listener`.
        uds_permissions: of its file.
        listener: a listening socket of the caller's, at which all processes listen, instead of `host` and `port`, or
            `uds`.
        reuse_port: whether other servers of this user may listen at the same port, so that one can take over from
            another.
        on_worker_end: called in the first process when one of the others has ended, and another one takes its place:
            with its number, and whether it has died, because nobody had told it to stop.

    Returns:
        An exit status: 0 after SIGTERM, 130 after Ctrl-C.

    Raises:
        LocalProtocolError: there are other threads, or the system cannot fork or share a port; the path is too long, or
            there is TLS on a Unix socket.
        OSError: the address cannot be had.
    """
    refuse_tls(uds, ssl_context)
    if not _HAS_FORK:
        msg = "this system cannot fork processes; serve in one, or start several servers at ports of their own"
        raise LocalProtocolError(msg)
    if uds is None and listener is None and not _HAS_REUSE_PORT:
        msg = "this system cannot share a port among processes (SO_REUSEPORT)"
        raise LocalProtocolError(msg)
    options = options or ServerOptions(max_memory_bytes=memory_left(processes=count + 1).budget)
    if uds is None and listener is None:
        opened = reserve(host, port, reuse_port=reuse_port)
    else:
        opened = open_place(uds=uds, uds_permissions=uds_permissions, listener=listener)
    with opened as reserved, shared_uploads(options) as shared:
        place = place_of(reserved, host)
        part = share_out(shared, count)

        def work(channel: socket.socket, ready: Ready) -> int:
            service = make_service()
            context = ssl_context() if callable(ssl_context) else ssl_context
            with observing(service) as observers, _listener_of_worker(reserved, *place) as listening:
                server = Server(service, part, observer=observers, ssl_context=context)
                own = listening if isinstance(listening, WorkerListener) else None
                ready("" if describe is None else describe(service), own)
                run_worker(server, listening, channel, part)
            return 0

        def announce(description: str) -> None:
            if on_listening is not None:
                on_listening(*place, description)

        def stop() -> None:
            if isinstance(reserved, UnixListener) and not options.drain_delay:
                reserved.remove()

        return Supervisor(
            work,
            count,
            shutdown_timeout=options.shutdown_timeout,
            worker_timeout=options.worker_timeout,
            on_ready=announce,
            on_stop=stop,
            on_end=on_worker_end,
        ).run()


def _listener_of_worker(reserved: socket.socket, host: str, port: int) -> socket.socket:
    """Return the listener of one of several processes."""
    if isinstance(reserved, UnixListener):
        reserved.owns_file = False  # others still listen when this process ends; see `run_worker`
        return reserved
    if isinstance(reserved, SharedListener):
        return reserved
    return WorkerListener(fileno=open_listener(host, port, reuse_port=True).detach())


def share_out(options: ServerOptions, count: int) -> ServerOptions:
    """Return the options of one of several processes: together they have as much memory as one would have."""
    return replace(options, max_memory_bytes=max(1, options.max_memory_bytes // count))


def reserve(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """Return a socket that keeps a port for processes of ours, and does not listen.

    Args:
        host: as of `open_listener`.
        port: as of `open_listener`.
        reuse_port: whether other servers may share it.

    Raises:
        OSError: the address cannot be had; also if somebody else shares it, who would get some of our connections.
    """
    address: tuple[Any, ...] = (host, port)
    if not reuse_port:
        with open_listener(host, port) as probe:  # which shares it with nobody
            address = probe.getsockname()
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except BaseException as error:
        sock.close()
        if isinstance(error, OSError):
            raise cannot_listen(error, host, port) from None
        raise
    return sock
