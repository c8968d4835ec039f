"""Serving: connections accepted from one listening socket, each served by a task, under anyio.

Models run in worker threads, so the event loop is held up neither by a model nor by a large body, and health checks are
answered meanwhile. This file knows sockets and tasks, and nothing of the protocol.

Stopping: the server accepts no more and closes idle connections at once; requests that are under way get
`shutdown_timeout` to end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import closing, suppress
from typing import Final

import anyio
from anyio.abc import TaskGroup

from streamcodec.core.errors import RemoteProtocolError
from streamcodec.server.calls import is_ending
from streamcodec.server.channels import Channel, ProtocolChannel, SocketChannel
from streamcodec.server.driver import Driver
from streamcodec.server.express import Express
from streamcodec.server.options import ServerOptions
from streamcodec.server.outbox import Outbox
from streamcodec.server.session import Admission, Session
from streamcodec.server.workers import Workers
from streamcodec.service import Service

logger = logging.getLogger(__name__)

_OVERFLOW_CONNECTIONS: Final = 64
"""Connections beyond the cap that are told so; beyond these, clients wait in the system's queue."""

_ACCEPT_PAUSE_SECONDS: Final = 0.1


class Server:
    """Serves connections from one listening socket. For programs with an event loop of their own; else see `run`."""

    def __init__(self, service: Service, options: ServerOptions | None = None) -> None:
        """Prepare to serve; nothing happens before `serve`."""
        self._service = service
        self._options = options = options or ServerOptions()
        self._express = Express(service)
        self._admission = Admission(options, service.pool)
        self._workers = Workers(options.max_workers)
        self._drivers: set[Driver] = set()
        self._accepting: anyio.CancelScope | None = None
        self._slots = anyio.Semaphore(options.max_connections + _OVERFLOW_CONNECTIONS)

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` has been called."""
        return self._admission.is_stopping

    @property
    def abandoned_calls(self) -> int:
        """Calls of models that had not returned in time, or when their connections had to end."""
        return self._workers.abandoned

    @property
    def unfinished_calls(self) -> int:
        """How many of those go on, in threads."""
        return self._workers.unfinished

    @property
    def reserved_bytes(self) -> int:
        """Memory of the requests under way, see `ServerOptions.max_memory_bytes`."""
        return self._admission.budget.reserved

    async def serve(self, listener: socket.socket) -> None:
        """Accept and serve connections until `stop` is called and the requests under way have ended.

        Args:
            listener: listening; closed when no more connections are accepted.
        """
        listener.setblocking(False)
        self._accepting = anyio.CancelScope()
        if self.is_stopping:
            self._accepting.cancel()
        async with anyio.create_task_group() as watchers:
            self._workers.watchers = watchers
            async with anyio.create_task_group() as connections:
                with listener, self._accepting:
                    await self._accept(listener, connections)
                connections.cancel_scope.deadline = anyio.current_time() + self._options.shutdown_timeout
            watchers.cancel_scope.cancel()

    def stop(self) -> None:
        """Stop accepting, close idle connections, and let `serve` return when the requests under way have ended."""
        self._admission.is_stopping = True
        self._service.is_ready = False
        if self._accepting is not None:
            self._accepting.cancel()
        for driver in self._drivers:
            driver.stop()

    async def _accept(self, listener: socket.socket, connections: TaskGroup) -> None:
        outbox = _outbox(self._options.busy_poll)
        while True:
            await self._slots.acquire()
            connections.start_soon(self._connection, await _accept_one(listener), outbox)

    async def _connection(self, sock: socket.socket, outbox: Outbox | None) -> None:
        session = Session(self._service, self._express, self._admission)
        driver = Driver(session, self._workers, self._options)
        self._drivers.add(driver)
        if self.is_stopping:
            driver.stop()
        try:
            channel = await _open_channel(sock, session, outbox, self._options.max_pipelined_bytes)
            with closing(channel):
                await driver.serve(channel)
        except (OSError, RemoteProtocolError) as error:  # the client has gone, takes nothing, or fails its own answer
            logger.debug("connection lost: %s", error)
        except BaseException as error:  # a bug of ours, or of a model; the other connections shall not pay for it
            if is_ending(error):
                raise
            logger.exception("connection failed")
        finally:
            self._drivers.discard(driver)
            self._admission.forget(session)
            self._slots.release()


def _outbox(busy_poll: float) -> Outbox | None:
    """Return the outbox of an event loop of asyncio; None on another."""
    try:
        return Outbox(busy_poll)
    except RuntimeError:  # on trio's
        return None


async def _open_channel(
    sock: socket.socket, session: Session, outbox: Outbox | None, max_pipelined_bytes: int
) -> Channel:
    """Choose the quickest channel for the event loop at hand."""
    if outbox is None:
        return SocketChannel(sock)
    loop = asyncio.get_running_loop()
    _, channel = await loop.connect_accepted_socket(lambda: ProtocolChannel(session, outbox, max_pipelined_bytes), sock)
    return channel


async def _accept_one(listener: socket.socket) -> socket.socket:
    while True:
        await anyio.wait_readable(listener)
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            continue  # the client has gone already
        except OSError as error:  # out of descriptors or memory: other connections will give some back
            logger.warning("cannot accept a connection: %s", error)
            await anyio.sleep(_ACCEPT_PAUSE_SECONDS)
            continue
        sock.setblocking(False)
        with suppress(OSError):  # a Unix socket has no such option, and a client may have gone already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
