"""Guarding: the connections of a guard, each of which a link serves.

How connections are accepted, limited, secured and ended is the same as for a server (`server.listening`).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from streamcodec.client.connections.timeouts import Timeout
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.guard.link import Link
from streamcodec.guard.relaying.arrived import PieceChannel
from streamcodec.guard.relaying.requests import PlainAnswers, PlainRequests
from streamcodec.guard.rules.gate import Gate
from streamcodec.guard.shared import Shared
from streamcodec.guard.upstream import Upstream
from streamcodec.runtime.descriptors import free_descriptors
from streamcodec.runtime.observation import Observers, client_of
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.tasks import open_tasks
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.dates import Dates
from streamcodec.server.listening import Listening
from streamcodec.service.observing import Observer
from streamcodec.service.replies import Reply
from streamcodec.transports.sockets.pipes import MOST_PIPES, Pipes
from streamcodec.transports.tls.sockets import Socket, client_context

_PART_OF_PIPES: Final = 8
"""For so many descriptors there may be a pipe, which has two; the others are for clients and the server behind."""

GUARD_LIMITS: Final = Limits(max_header_bytes=1 << 20, max_document_bytes=1 << 20)
"""The JSON header is all that is kept of an inference, so it is what bounds the memory of a connection. JSON tensors
are in it: a megabyte has room for about 50,000 floats."""

ANSWER_TIMEOUT: Final = Timeout(connect=10.0, read=300.0, write=30.0, pool=10.0)
"""A model may take as long as with `ServerOptions.model_timeout`."""


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
        options = options or ServerOptions()
        free = free_descriptors()
        pipes = MOST_PIPES if free is None else min(MOST_PIPES, free // _PART_OF_PIPES)
        self._admission = Admission(options, descriptors=None if free is None else (free - 2 * pipes) // 2)
        self._upstream = Upstream(
            upstream,
            timeout=timeout,
            max_connections=self._admission.places,
            limits=limits,
            ssl_context=upstream_ssl_context if upstream_ca is None else _trusting(upstream_ca, upstream_ssl_context),
        )
        if upstream_ca is not None and not self._upstream.address.is_secure:
            msg = "upstream_ca: the server behind has no certificate; its URL does not begin with https://"
            raise LocalProtocolError(msg)
        observers = list(observer) if isinstance(observer, Iterable) else [observer]
        self._observers = Observers(observers) if observers else None
        dates = Dates()
        self._listening = Listening(
            "guard",
            options,
            self._admission,
            observers=self._observers,
            dates=dates,
            ssl_context=ssl_context,
            enter=self._enter,
            serve=self._serve,
            forget=lambda link, _: self._admission.forget(link),
        )
        address = self._upstream.address
        gate = Gate(address.prefix, pages=pages or (), allowed=allowed, hosts=allowed_hosts, null_is_nan=null_is_nan)
        self._shared = Shared(
            upstream=self._upstream,
            admission=self._admission,
            options=options,
            limits=limits,
            dates=dates,
            complaints=self._listening.complaints,
            disconnects=self._listening.disconnects,
            gate=gate,
            requests=PlainRequests(limits, address.authority, gate),
            answers=PlainAnswers(limits),
            pipes=Pipes(pipes),
            pages=dict(pages or {}),
        )

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` has been called."""
        return self._admission.is_stopping

    @property
    def max_connections(self) -> int:
        """Connections of clients that are served at once: each takes two descriptors."""
        return self._admission.max_connections

    async def serve(self, listener: socket.socket) -> None:
        """Accept and serve connections until `stop` is called and the current requests have ended.

        Args:
            listener: listening; closed when no more connections are accepted.
        """
        async with open_tasks() as watchers:
            await self._listening.serve(listener, watchers)
            watchers.end_within(0.0)
        self._upstream.close()
        self._shared.pipes.close()

    def renew(self, ssl_context: ssl.SSLContext) -> None:
        """Show another certificate to those who connect from now on; nothing changes for a guard without TLS."""
        self._listening.renew(ssl_context)

    def stop(self) -> None:
        """Take no more requests, and let `serve` return when those in progress have ended; see `drain_delay`."""
        if not self.is_stopping:
            self._listening.stop()

    def _enter(self, sock: socket.socket) -> Link | None:
        observe = None if self._observers is None else self._observers.of(client_of(sock))
        try:
            name = sock.getpeername()
        except OSError:  # the client has left
            name = ""
        host = str(name[0]) if isinstance(name, tuple) else ""  # a Unix socket has none
        link = Link(self._shared, host, observe)
        return link if self._admission.enter(link, link) else None

    async def _serve(self, sock: socket.socket, link: Link) -> None:
        secured: Socket = await self._listening.secure(sock, link) or sock
        with closing(PieceChannel(secured, link.waits.taking)) as channel:
            await link.serve(channel)


def _trusting(authorities: str | Path, context: ssl.SSLContext | None) -> ssl.SSLContext:
    """Return the TLS context for a server behind that some authorities vouch for."""
    if context is not None:
        msg = "upstream_ca and upstream_ssl_context both say who is trusted; give one of them"
        raise LocalProtocolError(msg)
    try:
        return client_context(verify=authorities)
    except LocalProtocolError as error:
        raise LocalProtocolError(str(error).replace("verify=", "upstream_ca=", 1)) from None
