"""Serving: accepts connections from one listening socket, and serves each in a task, under anyio.

Models run in worker threads, so neither a model nor a large body blocks the event loop, and health checks are answered
meanwhile. This file knows sockets and tasks, and nothing of the protocol.

If there is no place or no memory for a connection, it gets a refusal before it has sent a request, and is closed. An
error in a connection ends only that connection.

Stopping: readiness checks are answered 503, and every answer tells its client that the connection ends. A connection
without a request has a moment for one that is on its way; else a client that has just sent it would see it lost.
Requests in progress have `shutdown_timeout` to end. The server accepts no more connections, or after `drain_delay`
only to answer 503, as long as there are requests in progress.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from itertools import chain
from time import monotonic
from types import NoneType
from typing import Final, cast

import anyio

from streamcodec.engine.arguments import check_kind
from streamcodec.engine.datatypes import find_bfloat16
from streamcodec.engine.errors import ErrorCode, MessageError, RemoteProtocolError
from streamcodec.engine.json.quick import find_parser
from streamcodec.http.responses import response_head
from streamcodec.runtime.loads import load_of
from streamcodec.runtime.models.calls import is_ending
from streamcodec.runtime.models.workers import Workers
from streamcodec.runtime.observation import Observers, client_of
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.tasks import Tasks, open_tasks
from streamcodec.runtime.uploading import drop_expired, uploads_of
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.channels import Channel, ProtocolChannel, SocketChannel
from streamcodec.server.connection.dates import Dates
from streamcodec.server.connection.disconnects import DisconnectWatcher
from streamcodec.server.connection.driver import Driver
from streamcodec.server.connection.lanes import Lanes
from streamcodec.server.connection.lingering import Refusals
from streamcodec.server.connection.outbox import Outbox
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session
from streamcodec.server.processes.draining import begin_to_stop
from streamcodec.server.sockets.accepting import accept_connections, accept_waiting
from streamcodec.server.sockets.securing import Complaints, HandshakeError, PlainHttpError, Securing
from streamcodec.service import Model, Reply, Service, error_reply, unavailable_reply
from streamcodec.service.observing import Observer, ServerLoad
from streamcodec.service.replies import drop_tracebacks
from streamcodec.transports.sockets.unix import AF_UNIX
from streamcodec.transports.tls.sockets import TlsSocket
from streamcodec.transports.tls.transport import TlsTransport

logger: Final = logging.getLogger(__name__)

_NO_PLACE: Final = "the server has no place for another connection"
_NOT_TLS: Final = "a client speaks TLS; for this port, the URL begins with http://"
_NOT_PLAIN: Final = "this port speaks TLS: the URL begins with https://"


class Server:
    """Serves connections from one listening socket, for programs with their own event loop. Otherwise see `run`."""

    def __init__(
        self,
        service: Service,
        options: ServerOptions | None = None,
        *,
        observer: Observer | Iterable[Observer] = (),
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare to serve; nothing happens before `serve`.

        Args:
            service: what is served.
            options: settings of the server.
            observer: called for each request; or several observers, called in turn.
            ssl_context: of a server, to serve https; see `server_context`. None to serve plain HTTP.

        Raises:
            LocalProtocolError: an argument is of another type, or there is a `max_lane_bytes`, and this system has no
                memory files.
        """
        check_kind(service, Service, "a server has a Service, as Service(ModelRegistry.of([model]))")
        check_kind(options, (ServerOptions, NoneType), "options are ServerOptions, as ServerOptions(max_connections=9)")
        _import_for(service.models)
        observers = list(observer) if isinstance(observer, Iterable) else [observer]
        self._observers = Observers(observers) if observers else None
        self._dates = Dates()
        self._service = service
        self._options = options = options or ServerOptions()
        self._express = RequestCache(service, options.model_timeout)
        self._admission = Admission(options, service.pool)
        self._uploads = self._admission.uploads = uploads_of(service, options, self._admission.budget)
        self._workers = Workers(options.max_workers, options.max_windowed_requests)
        self._departures = DisconnectWatcher()
        self._drivers: set[Driver] = set()
        self._accepting: anyio.CancelScope | None = None
        self._accept_at: Callable[[socket.socket], None] | None = None
        self._watchers: Tasks | None = None
        self._end = math.inf
        self._refusal = _Refusal(service, unavailable_reply(_NO_PLACE, retry_after=1))
        self._plain = _Refusal(service, error_reply(RemoteProtocolError(_NOT_PLAIN, code=ErrorCode.INVALID_HTTP)))
        self._complaints = Complaints()
        self._securing = (
            None if ssl_context is None else Securing(ssl_context, options.handshake_timeout, self._complaints)
        )
        self._lanes = Lanes(options, self._admission.budget, service.limits) if options.max_lane_bytes else None
        self._refusals = Refusals(options.linger_timeout, self._observers)
        for each in observers:
            each.server_begun(self.load)

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
        """How many of those still run, in threads."""
        return self._workers.unfinished

    @property
    def reserved_bytes(self) -> int:
        """Memory of the current requests, see `ServerOptions.max_memory_bytes`."""
        return self._admission.budget.reserved

    @property
    def requests_in_progress(self) -> int:
        """Connections that have a request in progress. This looks at each connection."""
        return sum(not driver.is_idle for driver in [*self._drivers])

    def load(self) -> ServerLoad:
        """Return what the server has to do and holds now. This looks at each connection."""
        return load_of(
            self._admission.budget,
            self._service.pool,
            self._workers,
            connections=self._admission.connections,
            requests_in_progress=self.requests_in_progress,
        )

    async def serve(self, listener: socket.socket) -> None:
        """Accept and serve connections until `stop` is called and the current requests have ended.

        Args:
            listener: listening; closed when no more connections are accepted.
        """
        listener.setblocking(False)
        self._accepting = anyio.CancelScope()
        if self.is_stopping:
            self._accepting.cancel()
        async with open_tasks() as watchers:
            if self._lanes is not None:
                watchers.start_soon(self._lanes.watch)
            self._departures.tasks = self._watchers = watchers
            if self._uploads is not None:
                watchers.start_soon(drop_expired, self._uploads.uploads)
            async with open_tasks() as connections:
                with listener, self._accepting:
                    await self._accept(listener, connections)
                connections.end_within(max(0.0, self._end - monotonic()))
            if self._uploads is not None:
                self._uploads.uploads.close()
            watchers.end_within(0.0)

    def accept_waiting(self, listener: socket.socket) -> None:
        """Serve the connections that wait at another listening socket now, as if they had come to this server's own.

        Args:
            listener: a reference to the socket, which is closed then.
        """
        if self._accept_at is None:
            listener.close()
        else:
            self._accept_at(listener)

    def stop(self) -> None:
        """Take no more requests, and let `serve` return when those in progress have ended; see `drain_delay`."""
        if self.is_stopping:
            return
        self._end = monotonic() + self._options.shutdown_timeout
        self._admission.is_stopping = True
        self._service.is_ready = False
        begin_to_stop(
            self._watchers,
            self._options.drain_delay,
            self._end,
            close=self._close,
            is_idle=lambda: all(driver.is_idle for driver in self._drivers),
            stop_accepting=self._stop_accepting,
        )

    def _close(self) -> None:
        """Serve only those who are there, and have them leave after their next request."""
        self._admission.close()
        for driver in self._drivers:
            driver.stop()

    def _stop_accepting(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()

    async def _accept(self, listener: socket.socket, connections: Tasks) -> None:
        outbox = _outbox()

        def begin(sock: socket.socket) -> None:
            connections.start_soon(self._connection, sock, outbox)

        def room() -> int:
            return self._admission.free_places

        self._accept_at = lambda other: connections.start_soon(accept_waiting, other, begin, room)
        try:
            await accept_connections(
                listener, begin, room, lambda: self._accepting is not None and self._accepting.cancel_called
            )
        finally:
            self._accept_at = None

    async def _connection(self, sock: socket.socket, outbox: Outbox | None) -> None:
        with closing(sock):
            try:
                driver = self._enter(sock)
            except MemoryError:
                driver = None
            if driver is None:
                await self._refuse(sock)
                return
            try:
                await self._serve(sock, driver, outbox)
                if driver.session.speaks_tls:
                    self._complaints.add(_NOT_TLS)
            except PlainHttpError:
                await self._refusals.tell(sock, self._plain.reply, self._plain.encoded(self._dates))
            except HandshakeError as error:
                with closing(error.sock):
                    await self._refusals.end(error.sock)

    def _enter(self, sock: socket.socket) -> Driver | None:
        """Return the driver of a new connection; None if there is no place for it."""
        observers = self._observers
        observe = None if observers is None else observers.of(client_of(sock))
        session = Session(self._service, self._express, self._admission, self._dates, observe)
        driver = Driver(session, self._workers, self._departures, self._options)
        return driver if self._admission.enter(session, driver) else None

    async def _refuse(self, sock: socket.socket) -> None:
        """Refuse a connection for which there is no place; with TLS, to tell it so costs more than there is."""
        if self._securing is None:
            await self._refusals.tell(sock, self._refusal.reply, self._refusal.encoded(self._dates))
        else:
            self._complaints.add(_NO_PLACE)

    async def _serve(self, sock: socket.socket, driver: Driver, outbox: Outbox | None) -> None:
        try:
            self._drivers.add(driver)
            if self._admission.is_closed:
                driver.stop()
            channel = await self._open_channel(sock, driver, outbox)
            with closing(channel):
                await driver.serve(channel)
        except (OSError, MessageError) as error:  # the client has left, does not read, or broke a rule while answered
            driver.session.observed(error, is_whole=False)
            logger.debug("connection lost: %s", error)
            drop_tracebacks(error)
        except (PlainHttpError, HandshakeError):
            raise
        except MemoryError:
            logger.warning("connection closed: out of memory")
        except BaseException as error:  # a bug of ours, or of a model; it must not affect other connections
            if is_ending(error):
                raise
            driver.session.observed(error, is_whole=False)
            logger.exception("connection failed")
            drop_tracebacks(error)
        finally:
            self._drivers.discard(driver)
            try:
                self._forget(driver)
            except MemoryError:  # its other memory is free by now
                self._forget(driver)

    async def _open_channel(self, sock: socket.socket, driver: Driver, outbox: Outbox | None) -> Channel:
        most = self._options.max_pipelined_bytes
        if self._lanes is not None and sock.family == AF_UNIX:
            driver.session.share(await driver.prepare(partial(self._lanes.open, sock)))
        if self._securing is None:
            return await _open_plain_channel(sock, driver, outbox, most)
        secured = await driver.prepare(partial(self._securing.secure, sock, client_of(sock)))
        return _open_tls_channel(secured, driver, outbox, most)

    def _forget(self, driver: Driver) -> None:
        driver.session.observed(is_whole=False)
        driver.session.let_go()
        driver.close()
        self._admission.forget(driver.session)
        memory = driver.session.share(None)
        if self._lanes is not None and memory is not None:
            self._lanes.end(memory)


def _import_for(models: Iterable[Model]) -> None:
    """Import what the first request that needs it would wait for, and all others with it.

    `ml_dtypes` takes 8 ms and 2.3 MiB. So it is imported only if a model declares a BF16 tensor, or when such a tensor
    comes all the same.
    """
    find_parser()
    tensors = chain.from_iterable((*(model.inputs or ()), *(model.outputs or ())) for model in models)
    if any(tensor.datatype == "BF16" for tensor in tensors):
        find_bfloat16()


def _outbox() -> Outbox | None:
    """Return the outbox of an event loop of asyncio; None for another loop."""
    try:
        return Outbox()
    except RuntimeError:  # trio
        return None


async def _open_plain_channel(
    sock: socket.socket, driver: Driver, outbox: Outbox | None, max_pipelined_bytes: int
) -> Channel:
    """Choose the fastest channel for the current event loop."""
    if outbox is None:
        return SocketChannel(sock, driver.taking)
    loop = asyncio.get_running_loop()
    _, channel = await loop.connect_accepted_socket(
        lambda: ProtocolChannel(driver.session, driver.taking, outbox, max_pipelined_bytes), sock
    )
    return channel


def _open_tls_channel(sock: TlsSocket, driver: Driver, outbox: Outbox | None, max_pipelined_bytes: int) -> Channel:
    """Do the same after the handshake of TLS."""
    if outbox is None:
        return SocketChannel(sock, driver.taking)
    channel = ProtocolChannel(driver.session, driver.taking, outbox, max_pipelined_bytes)
    TlsTransport(sock, channel)
    return channel


class _Refusal:
    """The answer to a connection that is not served, whatever it requests."""

    def __init__(self, service: Service, reply: Reply) -> None:
        self.reply = reply = service.finish(reply, None)
        self._body = b"".join(cast("tuple[bytes, ...]", reply.buffers))

    def encoded(self, dates: Dates) -> bytes:
        """Return the refusal with the current date."""
        fields = [*self.reply.headers, ("Connection", "close"), ("Date", dates.now())]
        return response_head(self.reply.status, fields, len(self._body)) + self._body
