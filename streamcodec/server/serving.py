"""Serving: the connections of one listening socket, whose requests a service answers, under anyio.

Models run in worker threads, so neither a model nor a large body blocks the event loop, and health checks are answered
meanwhile. How connections are accepted, secured and ended is the matter of `listening`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from contextlib import closing, suppress
from functools import partial
from itertools import chain
from types import NoneType
from typing import Final

from streamcodec.engine.arguments import check_kind
from streamcodec.engine.datatypes import find_bfloat16
from streamcodec.engine.json.quick import find_parser
from streamcodec.runtime.descriptors import free_descriptors
from streamcodec.runtime.models.workers import Workers, load_of
from streamcodec.runtime.observation import Observers, client_of
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.tasks import open_tasks
from streamcodec.runtime.uploads.uploading import drop_expired, uploads_of
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.channels import Channel, Outbox, ProtocolChannel
from streamcodec.server.connection.dates import Dates
from streamcodec.server.connection.driver import Driver
from streamcodec.server.connection.lanes import Lanes
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session
from streamcodec.server.connection.socketchannel import SocketChannel
from streamcodec.server.listening import Listening
from streamcodec.service import Model, Service
from streamcodec.service.observing import Observer, ServerLoad
from streamcodec.transports.sockets.unix import AF_UNIX
from streamcodec.transports.tls.transport import TlsTransport

_NOT_TLS: Final = "a client speaks TLS; for this port, the URL begins with http://"


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
        self._admission = Admission(options, service.pool, descriptors=free_descriptors())
        self._uploads = self._admission.uploads = uploads_of(service, options, self._admission.budget)
        self._workers = Workers(options.max_workers, options.max_windowed_requests)
        self._outbox: Outbox | None = None
        self._listening = Listening(
            "server",
            options,
            self._admission,
            observers=self._observers,
            dates=self._dates,
            ssl_context=ssl_context,
            enter=self._enter,
            serve=self._serve,
            forget=self._forget,
            finish=lambda reply: service.finish(reply, None),
        )
        self._lanes = Lanes(options, self._admission.budget, service.limits) if options.max_lane_bytes else None
        for each in observers:
            each.server_begun(self.load)

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` has been called."""
        return self._admission.is_stopping

    @property
    def max_connections(self) -> int:
        """Connections that are served at once: fewer than `ServerOptions.max_connections` without the descriptors."""
        return self._admission.max_connections

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
        return sum(not driver.is_idle for driver in [*self._listening.peers])

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
        with suppress(RuntimeError):  # of trio, which has no transports
            self._outbox = Outbox()
        async with open_tasks() as watchers:
            if self._lanes is not None:
                watchers.start_soon(self._lanes.watch)
            if self._uploads is not None:
                watchers.start_soon(drop_expired, self._uploads.uploads)
            await self._listening.serve(listener, watchers)
            if self._uploads is not None:
                self._uploads.uploads.close()
            watchers.end_within(0.0)

    def accept_waiting(self, listener: socket.socket) -> None:
        """Serve the connections that wait at another listening socket now, as if they had come to this server's own.

        Args:
            listener: a reference to the socket, which is closed then.
        """
        self._listening.accept_waiting(listener)

    def share_out(self) -> None:
        """Have the present connections end with their next answer: there is another server at this port, with none."""
        self._admission.share_out()

    def renew(self, ssl_context: ssl.SSLContext) -> None:
        """Show another certificate to those who connect from now on; nothing changes for a server without TLS."""
        self._listening.renew(ssl_context)

    def stop(self, *, is_replaced: bool = False) -> None:
        """Take no more requests, and let `serve` return when those in progress have ended; see `drain_delay`.

        Args:
            is_replaced: whether another process serves in its place. Then there is no `drain_delay`, and it stays ready
                for those who ask on the connections that are left.
        """
        if not self.is_stopping:
            self._service.is_ready = self._service.is_ready and is_replaced
            self._listening.stop(is_replaced=is_replaced)

    def _enter(self, sock: socket.socket) -> Driver | None:
        """Return the driver of a new connection; None if there is no place for it."""
        observe = None if self._observers is None else self._observers.of(client_of(sock))
        session = Session(self._service, self._express, self._admission, self._dates, observe)
        driver = Driver(session, self._workers, self._listening.disconnects, self._options)
        return driver if self._admission.enter(session, driver) else None

    async def _serve(self, sock: socket.socket, driver: Driver) -> None:
        """Serve by the fastest channel for the current event loop."""
        if self._lanes is not None and sock.family == AF_UNIX:
            driver.session.share(await driver.waits.prepare(partial(self._lanes.open, sock)))
        secured = await self._listening.secure(sock, driver)
        session, taking = driver.session, driver.waits.taking
        channel: Channel
        if self._outbox is None:
            channel = SocketChannel(secured or sock, taking)
        else:
            most = self._options.max_pipelined_bytes
            channel = protocol = ProtocolChannel(session, taking, self._outbox, most, driver.caller)
            if secured is None:
                await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, sock)
            else:
                TlsTransport(secured, protocol)
        with closing(channel):
            await driver.serve(channel)

    def _forget(self, driver: Driver, error: BaseException | None) -> None:
        if driver.session.speaks_tls:
            self._listening.complaints.add(_NOT_TLS)
        driver.session.observed(error, is_whole=False)
        driver.close()  # work that goes on takes over the memory that the session gives back
        driver.session.let_go()
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
