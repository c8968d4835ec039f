"""Listening: accepts connections at one socket, serves each in a task, and stops without losing a request.

A server and a guard differ in what a connection does; here is what they share. If there is no place or no memory for a
connection, it gets a refusal before it has sent a request, and is closed. An error in a connection ends only that
connection. This file knows sockets, tasks and TLS, and nothing of requests and models.

Stopping: the owner has readiness checks answered 503, and every answer tells its client that the connection ends. A
connection without a request has a moment for one that is on its way; else a client that has just sent it would see it
lost. Requests in progress have `shutdown_timeout` to end. No more connections are accepted, at once or after
`drain_delay`; those that the system has completed are served. Nobody is told to come back: a proxy asks another server
if nobody listens, and hands on a 503.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar, cast

import anyio

from streamcodec.engine.errors import ErrorCode, MessageError, RemoteProtocolError
from streamcodec.http.responses import response_head
from streamcodec.runtime.models.failures import is_ending
from streamcodec.runtime.observation import Observers, client_of
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.tasks import Tasks, open_tasks
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.dates import Dates
from streamcodec.server.connection.disconnects import DisconnectWatcher
from streamcodec.server.connection.lingering import Refusals
from streamcodec.server.connection.waits import ClientWaits
from streamcodec.server.sockets.accepting import accept_connections, accept_waiting
from streamcodec.server.sockets.securing import Complaints, HandshakeError, PlainHttpError, Securing
from streamcodec.service import Reply, error_reply, unavailable_reply
from streamcodec.service.replies import drop_tracebacks
from streamcodec.transports.tls.sockets import TlsSocket

logger: Final = logging.getLogger(__name__)

_NOT_PLAIN: Final = "this port speaks TLS: the URL begins with https://"


class Served(Protocol):
    """Serves one connection."""

    @property
    def waits(self) -> ClientWaits:
        """Its waits for the client."""
        ...


ServedT = TypeVar("ServedT", bound=Served)


class Listening(Generic[ServedT]):
    """The connections of one listening socket.

    Attributes:
        peers: who serves them.
        complaints: takes the lines of the log about clients.
        disconnects: notices clients that have gone while a model works.
    """

    def __init__(
        self,
        name: str,
        options: ServerOptions,
        admission: Admission,
        *,
        observers: Observers | None,
        dates: Dates,
        ssl_context: ssl.SSLContext | None,
        enter: Callable[[socket.socket], ServedT | None],
        serve: Callable[[socket.socket, ServedT], Awaitable[None]],
        forget: Callable[[ServedT, BaseException | None], None],
        finish: Callable[[Reply], Reply] = lambda reply: reply,
    ) -> None:
        """Prepare; nothing happens before `serve`.

        Args:
            name: of the owner, in the text of refusals: `server` or `guard`.
            options: settings of the owner.
            admission: decides how many connections there may be.
            observers: are told about each refusal.
            dates: of refusals.
            ssl_context: of a server, to serve https.
            enter: returns who serves a new connection; None if there is no place.
            serve: serves it until its end.
            forget: called when it has ended, with the error that has ended it.
            finish: adds what is in each answer of the owner.
        """
        self._options = options
        self._admission = admission
        self._enter, self._serve, self._forget = enter, serve, forget
        self._dates = dates
        self._no_place = f"the {name} has no place for another connection"
        self._refusals = Refusals(options.linger_timeout, observers)
        self._refusal = finish(unavailable_reply(self._no_place, retry_after=1))
        self._plain = finish(error_reply(RemoteProtocolError(_NOT_PLAIN, code=ErrorCode.INVALID_HTTP)))
        self._accepting: anyio.CancelScope | None = None
        self._accept_at: Callable[[socket.socket], None] | None = None
        self._watchers: Tasks | None = None
        self._end = math.inf
        self._is_closing = False
        self.peers: set[ServedT] = set()
        self.complaints = Complaints()
        self.disconnects = DisconnectWatcher()
        self._securing = (
            None if ssl_context is None else Securing(ssl_context, options.handshake_timeout, self.complaints)
        )

    async def secure(self, sock: socket.socket, peer: ServedT) -> TlsSocket | None:
        """Do the handshake of TLS with a new connection; return None for plain HTTP.

        Raises:
            PlainHttpError: the client speaks plain HTTP, and has to be told.
            HandshakeError: the handshake has failed.
            OSError: the client has gone, or is too slow, or the connection has to end.
        """
        securing, waits = self._securing, peer.waits
        if securing is None:
            return None
        return await waits.prepare(partial(securing.secure, sock, client_of(sock), waits.begun))

    async def serve(self, listener: socket.socket, watchers: Tasks) -> None:
        """Accept and serve connections until `stop` is called and the current requests have ended.

        Args:
            listener: listening; closed when no more connections are accepted.
            watchers: take the tasks that are no connections.
        """
        listener.setblocking(False)
        self.disconnects.tasks = self._watchers = watchers
        self._accepting = accepting = anyio.CancelScope()
        if self._admission.is_stopping:
            accepting.cancel()
        async with open_tasks() as connections:

            def begin(sock: socket.socket) -> None:
                connections.start_soon(self._connection, sock)

            def room() -> int:
                return self._admission.room

            self._accept_at = lambda other: connections.start_soon(accept_waiting, other, begin, room)
            with listener, accepting:
                await accept_connections(listener, begin, room, lambda: accepting.cancel_called)
            self._accept_at = None
            connections.end_within(max(0.0, self._end - monotonic()))

    def accept_waiting(self, listener: socket.socket) -> None:
        """Serve the connections that wait at another listening socket now, as if they had come to this one.

        Args:
            listener: a reference to the socket, which is closed then.
        """
        if self._accept_at is None:
            listener.close()
        else:
            self._accept_at(listener)

    def renew(self, ssl_context: ssl.SSLContext) -> None:
        """Use another certificate for new connections; only for a server with TLS."""
        if self._securing is not None:
            self._securing.context = ssl_context

    def stop(self, *, is_replaced: bool = False) -> None:
        """Stop at once, or first serve everything for a time.

        Args:
            is_replaced: whether another process listens in its place, so that nobody has to notice.
        """
        self._end = monotonic() + self._options.shutdown_timeout
        self._admission.is_stopping = True
        if self._options.drain_delay and self._watchers is not None and not is_replaced:
            self._watchers.start_soon(self._drain)
        else:
            self._close()

    async def _drain(self) -> None:
        await anyio.sleep(self._options.drain_delay)
        self._close()

    def _close(self) -> None:
        """Serve only those who have connected by now, and have them leave after their next request."""
        self._is_closing = True
        for peer in self.peers:
            peer.waits.stop()
        if self._accepting is not None:
            self._accepting.cancel()

    async def _connection(self, sock: socket.socket) -> None:
        with closing(sock):
            try:
                peer = self._enter(sock)
            except MemoryError:
                peer = None
            try:
                if peer is not None:
                    await self._serve_peer(sock, peer)
                elif self._securing is None:
                    await self._tell(sock, self._refusal)
                else:  # to tell it so costs more than there is
                    self.complaints.add(self._no_place)
            except PlainHttpError:
                await self._tell(sock, self._plain)
            except HandshakeError as error:
                with closing(error.sock):
                    await self._refusals.end(error.sock)

    async def _tell(self, sock: socket.socket, reply: Reply) -> None:
        """Answer a connection that is not served, whatever it requests."""
        fields = [*reply.headers, ("Connection", "close"), ("Date", self._dates.now())]
        head = response_head(reply.status, fields, reply.body_length)
        await self._refusals.tell(sock, reply, b"".join((head, *cast("tuple[bytes, ...]", reply.buffers))))

    async def _serve_peer(self, sock: socket.socket, peer: ServedT) -> None:
        failure: BaseException | None = None
        try:
            self.peers.add(peer)
            if self._is_closing:
                peer.waits.stop()
            await self._serve(sock, peer)
        except (OSError, MessageError) as error:  # the client has left, does not read, or broke a rule while answered
            failure = error
            logger.debug("connection lost: %s", error)
        except (PlainHttpError, HandshakeError):
            raise
        except MemoryError:
            logger.warning("connection closed: out of memory")
        except BaseException as error:  # a bug of ours, or of a model; it must not affect other connections
            if is_ending(error):
                raise
            failure = error
            logger.exception("connection failed")
        finally:
            self.peers.discard(peer)
            try:
                self._forget(peer, failure)
            except MemoryError:  # its other memory is free by now
                self._forget(peer, failure)
            if failure is not None:
                drop_tracebacks(failure)  # they refer to this frame, which refers to the error
