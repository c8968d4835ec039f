"""Guarding: accepts connections and serves each in a task, as `server.Server` does, with a link for each.

The parts are those of the server: how connections are accepted and limited, how TLS begins, how slow clients are ended,
and how a stop leaves requests in progress their time. What is different is what a connection does.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Final, cast

import anyio

from streamcodec.client.connections.timeouts import Timeout
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, MessageError, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.guard.link import Link
from streamcodec.guard.relaying.answers import PlainAnswers
from streamcodec.guard.relaying.arrived import PieceChannel
from streamcodec.guard.relaying.requests import PlainRequests
from streamcodec.guard.rules.gate import Gate
from streamcodec.guard.shared import Shared
from streamcodec.guard.upstream import Upstream
from streamcodec.http.responses import response_head
from streamcodec.runtime.models.calls import is_ending
from streamcodec.runtime.observation import Observers, client_of
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.tasks import Tasks, open_tasks
from streamcodec.server.connection.admission import RESERVED_PLACES, Admission
from streamcodec.server.connection.dates import Dates
from streamcodec.server.connection.disconnects import DisconnectWatcher
from streamcodec.server.connection.lingering import Refusals
from streamcodec.server.processes.draining import begin_to_stop
from streamcodec.server.sockets.accepting import accept_connections
from streamcodec.server.sockets.securing import Complaints, HandshakeError, PlainHttpError, Securing
from streamcodec.service.observing import Observer
from streamcodec.service.replies import Reply, error_reply, unavailable_reply
from streamcodec.transports.sockets.pipes import Pipes
from streamcodec.transports.tls.sockets import Socket, client_context

logger: Final = logging.getLogger(__name__)

GUARD_LIMITS: Final = Limits(max_header_bytes=1 << 20, max_document_bytes=1 << 20)
"""The JSON header is all that is kept of an inference, so it is what bounds the memory of a connection. JSON tensors
are in it: a megabyte has room for about 50,000 floats."""

ANSWER_TIMEOUT: Final = Timeout(connect=10.0, read=300.0, write=30.0, pool=10.0)
"""A model may take as long as with `ServerOptions.model_timeout`."""

_NO_PLACE: Final = "the guard has no place for another connection"
_NOT_PLAIN: Final = "this port speaks TLS: the URL begins with https://"


class Guard:
    """A proxy that passes only correct inferences to a V2 server."""

    def __init__(
        self,
        upstream: str,
        *,
        options: ServerOptions | None = None,
        limits: Limits = GUARD_LIMITS,
        timeout: Timeout = ANSWER_TIMEOUT,
        ssl_context: ssl.SSLContext | None = None,
        upstream_ssl_context: ssl.SSLContext | None = None,
        observer: Observer | Iterable[Observer] = (),
        pages: Mapping[str, Callable[[], Reply]] | None = None,
        allowed: Iterable[str] = (),
        allowed_hosts: Iterable[str] = (),
        upstream_ca: str | Path | None = None,
        null_is_nan: bool = False,
    ) -> None:
        """Prepare; nothing happens before `serve`.

        Args:
            upstream: URL of the server behind, as for `Client`.
            options: of the side of the clients. Those about models have no effect. `max_memory_bytes` is what requests
                take together of JSON headers and buffers: one beyond it is answered 503, with `Retry-After`.
            limits: of requests and heads. `max_document_bytes` bounds the body of a request that is not an inference.
                JSON that is checked as a whole also has `max_json_text_bytes`.
            timeout: of the server behind.
            ssl_context: of a server, to serve https; None to serve plain HTTP.
            upstream_ssl_context: of a client, for a server behind that has https.
            observer: called for each request; or several observers, called in turn. In their records, the time of the
                model is that of the server behind, until its answer begins. There are no calls of models, and no load.
            pages: makes the answer to a GET of each path, which is not passed on, as `/metrics`; on the event loop.
            allowed: what is passed on besides the V2 protocol: names of `ALLOWANCES`, as `generate`.
            allowed_hosts: the names under which the guard may be called, as for `Service`: the server behind cannot
                tell, because it gets a `Host` of its own.
            upstream_ca: file or folder with the certificates of authorities that the server behind is trusted by,
                instead of those of the system; not together with `upstream_ssl_context`.
            null_is_nan: whether `null` may stand in the JSON data of FP32 and FP64, as KServe's client writes NaN, and
                KServe takes it. NaN and the infinities as literals may stand there in any case.

        Raises:
            LocalProtocolError: the URL is invalid, or has credentials; there is no such name, host or file; or there
                are certificates for a server behind without TLS.
        """
        self._options = options = options or ServerOptions()
        self._upstream = Upstream(
            upstream,
            timeout=timeout,
            max_connections=options.max_connections + RESERVED_PLACES,
            limits=limits,
            ssl_context=upstream_ssl_context if upstream_ca is None else _trusting(upstream_ca, upstream_ssl_context),
        )
        if upstream_ca is not None and not self._upstream.address.is_secure:
            msg = "upstream_ca: the server behind has no certificate; its URL does not begin with https://"
            raise LocalProtocolError(msg)
        self._admission = Admission(options)
        self._complaints = Complaints()
        self._securing = (
            None if ssl_context is None else Securing(ssl_context, options.handshake_timeout, self._complaints)
        )
        observers = list(observer) if isinstance(observer, Iterable) else [observer]
        self._observers = Observers(observers) if observers else None
        address = self._upstream.address
        gate = Gate(address.prefix, pages=pages or (), allowed=allowed, hosts=allowed_hosts, null_is_nan=null_is_nan)
        self._shared = Shared(
            upstream=self._upstream,
            admission=self._admission,
            options=options,
            limits=limits,
            dates=Dates(),
            complaints=self._complaints,
            departures=DisconnectWatcher(),
            gate=gate,
            requests=PlainRequests(limits, address.authority, gate),
            answers=PlainAnswers(limits),
            pipes=Pipes(),
            pages=dict(pages or {}),
        )
        self._links: set[Link] = set()
        self._refusals = Refusals(options.linger_timeout, self._observers)
        self._accepting: anyio.CancelScope | None = None
        self._watchers: Tasks | None = None
        self._end = math.inf

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` has been called."""
        return self._admission.is_stopping

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
            self._shared.departures.tasks = self._watchers = watchers
            async with open_tasks() as connections:
                with listener, self._accepting:
                    await self._accept(listener, connections)
                connections.end_within(max(0.0, self._end - monotonic()))
            watchers.end_within(0.0)
        self._upstream.close()
        self._shared.pipes.close()

    def stop(self) -> None:
        """Take no more requests, and let `serve` return when those in progress have ended; see `drain_delay`."""
        if self.is_stopping:
            return
        self._end = monotonic() + self._options.shutdown_timeout
        self._admission.is_stopping = True
        begin_to_stop(
            self._watchers,
            self._options.drain_delay,
            self._end,
            close=self._close,
            is_idle=lambda: all(link.is_idle for link in self._links),
            stop_accepting=self._stop_accepting,
        )

    def _close(self) -> None:
        """Serve only those who are there, and have them leave after their next request."""
        self._admission.close()
        for link in self._links:
            link.stop()

    def _stop_accepting(self) -> None:
        if self._accepting is not None:
            self._accepting.cancel()

    async def _accept(self, listener: socket.socket, connections: Tasks) -> None:
        await accept_connections(
            listener,
            lambda sock: connections.start_soon(self._connection, sock),
            lambda: self._admission.free_places,
            lambda: self._accepting is not None and self._accepting.cancel_called,
        )

    async def _connection(self, sock: socket.socket) -> None:
        observe = None if self._observers is None else self._observers.of(client_of(sock))
        link = Link(self._shared, _host_of(sock), observe)
        with closing(sock):
            if not self._admission.enter(link, link):
                await self._refuse(sock)
                return
            self._links.add(link)
            try:
                await self._serve(sock, link)
            finally:
                self._links.discard(link)
                self._admission.forget(link)

    async def _refuse(self, sock: socket.socket) -> None:
        """Refuse a connection for which there is no place; with TLS, to tell it so costs more than there is."""
        if self._securing is not None:
            self._complaints.add(_NO_PLACE)
            return
        await self._tell(sock, unavailable_reply(_NO_PLACE, retry_after=1))

    async def _tell(self, sock: socket.socket, reply: Reply) -> None:
        """Answer a connection that is not served."""
        fields = [*reply.headers, ("Content-Length", str(reply.body_length)), ("Date", self._shared.dates.now())]
        head = response_head(reply.status, [*fields, ("Connection", "close")])
        encoded = b"".join((head, *cast("tuple[bytes, ...]", reply.buffers)))
        await self._refusals.tell(sock, reply, encoded)

    async def _serve(self, sock: socket.socket, link: Link) -> None:
        if self._admission.is_closed:
            link.stop()
        try:
            secured: Socket = sock if self._securing is None else await self._securing.secure(sock, client_of(sock))
            with closing(PieceChannel(secured, link.taking)) as channel:
                await link.serve(channel)
        except HandshakeError as error:
            with closing(error.sock):
                await self._refusals.end(error.sock)
        except PlainHttpError:
            await self._tell(sock, error_reply(RemoteProtocolError(_NOT_PLAIN, code=ErrorCode.INVALID_HTTP)))
        except (OSError, MessageError) as error:
            logger.debug("connection lost: %s", error)
        except MemoryError:
            logger.warning("connection closed: out of memory")
        except BaseException as error:  # a bug of ours; it must not affect other connections
            if is_ending(error):
                raise
            logger.exception("connection failed")


def _trusting(authorities: str | Path, context: ssl.SSLContext | None) -> ssl.SSLContext:
    """Return the TLS context for a server behind that some authorities vouch for."""
    if context is not None:
        msg = "upstream_ca and upstream_ssl_context both say who is trusted; give one of them"
        raise LocalProtocolError(msg)
    try:
        return client_context(verify=authorities)
    except LocalProtocolError as error:
        raise LocalProtocolError(str(error).replace("verify=", "upstream_ca=", 1)) from None


def _host_of(sock: socket.socket) -> str:
    """Return the address of a client without its port; empty for a Unix socket, or if the client has left."""
    try:
        name = sock.getpeername()
    except OSError:
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""
