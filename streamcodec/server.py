"""Server: the V2 service on sockets, under anyio.

Each connection is a task that drives one `ServerConnection`; models run in worker threads. So the event loop is never
held up by a model or by a large body, and health checks are answered meanwhile. This file knows sockets, tasks, signals
and time, and nothing of the protocol.

Shutting down: at the first signal the server stops accepting and closes idle connections at once; requests that are
under way get `shutdown_timeout` to end. A second signal ends everything.
"""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup

from streamcodec.core.errors import ErrorCode, RemoteProtocolError
from streamcodec.core.events import NEED_DATA, EndOfMessage
from streamcodec.http.messages import RequestHead
from streamcodec.http.server import ServerConnection
from streamcodec.service import Inference, Reply, Service, error_reply, unavailable_reply
from streamcodec.transports import aio

logger = logging.getLogger(__name__)

_OVERFLOW_CONNECTIONS: Final = 64
"""Connections beyond the cap that are told so; beyond these, clients wait in the system's queue."""

_LINGER_BYTES: Final = 64 << 10
_ACCEPT_PAUSE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server uses its machine, and how long it waits; times in seconds."""

    max_connections: int = 512
    """Connections served at once; each has 64 KiB of scratch memory. Further ones are answered 503."""
    max_workers: int = 8
    """Models called at once."""
    idle_timeout: float = 75.0
    """Without a request on an open connection, before it is closed."""
    read_timeout: float = 30.0
    """Without a byte in the middle of a request, before it is answered 408."""
    write_timeout: float = 30.0
    """Without the client taking a byte of the response, before the connection is closed."""
    linger_timeout: float = 2.0
    """After a refusal, for a client that is still sending, before its connection is closed. What it sends is dropped;
    without this time, many clients would see a broken connection and not the answer."""
    shutdown_timeout: float = 30.0
    """For requests under way when the server stops."""


def run(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    options: ServerOptions | None = None,
    on_listening: Callable[[str, int], None] | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM.

    Args:
        service: what is served.
        host: address to listen at.
        port: port to listen at; 0 picks a free one.
        options: how.
        on_listening: called with address and port once connections are accepted and signals are minded.

    Returns:
        How many calls of models go on, in threads that keep the interpreter from ending: those that had not returned
        after `shutdown_timeout`, or at a second signal.

    Raises:
        OSError: the address cannot be had.
    """
    server = Server(service, options)
    with open_listener(host, port) as listener:

        def announce() -> None:
            if on_listening is not None:
                on_listening(host, listener.getsockname()[1])

        anyio.run(_run_until_signal, server, listener, announce)
    return server.abandoned_calls


def open_listener(host: str, port: int) -> socket.socket:
    """Open a listening TCP socket.

    Args:
        host: an address or a name; one with a colon is IPv6.
        port: 0 picks a free one.

    Raises:
        OSError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024)


class Server:
    """Serves connections from one listening socket. For programs with an event loop of their own; else see `run`.

    Attributes:
        is_stopping: whether `stop` has been called.
        abandoned_calls: calls of models that had not returned when their connections had to end.
    """

    def __init__(self, service: Service, options: ServerOptions | None = None) -> None:
        """Prepare to serve; nothing happens before `serve`."""
        self._service = service
        self._options = options = options or ServerOptions()
        self.is_stopping = False
        self.abandoned_calls = 0
        self._served: set[ServerConnection] = set()
        self._accepting: anyio.CancelScope | None = None
        self._idle: set[anyio.CancelScope] = set()
        self._slots = anyio.Semaphore(options.max_connections + _OVERFLOW_CONNECTIONS)
        self._workers = anyio.CapacityLimiter(options.max_workers)

    async def serve(self, listener: socket.socket) -> None:
        """Accept and serve connections until `stop` is called and the requests under way have ended.

        Args:
            listener: listening; closed when no more connections are accepted.
        """
        listener.setblocking(False)
        self._accepting = anyio.CancelScope()
        if self.is_stopping:
            self._accepting.cancel()
        async with anyio.create_task_group() as connections:
            with listener, self._accepting:
                await self._accept(listener, connections)
            connections.cancel_scope.deadline = anyio.current_time() + self._options.shutdown_timeout

    def stop(self) -> None:
        """Stop accepting, close idle connections, and let `serve` return when the requests under way have ended."""
        self.is_stopping = True
        self._service.is_ready = False
        if self._accepting is not None:
            self._accepting.cancel()
        for scope in self._idle:
            scope.cancel()

    async def _accept(self, listener: socket.socket, connections: TaskGroup) -> None:
        while True:
            await self._slots.acquire()
            connections.start_soon(self._connection, await _accept_one(listener))

    async def _connection(self, sock: socket.socket) -> None:
        connection = ServerConnection(self._service.limits)
        try:
            with sock:
                while await self._exchange(sock, connection):
                    pass
                if connection.has_unread_body:
                    await _linger(sock, self._options.linger_timeout)
        except OSError as error:  # the client has gone, or takes nothing
            logger.debug("connection lost: %s", error)
        except Exception:  # a bug of ours; the other connections shall not pay for it
            logger.exception("connection failed")
        finally:
            self._served.discard(connection)
            self._slots.release()

    async def _exchange(self, sock: socket.socket, connection: ServerConnection) -> bool:
        """Serve one request; False when there will be no other. What it held in memory is free when it returns."""
        head: RequestHead | None = None
        try:
            head = await self._next_head(sock, connection)
            if head is None:
                return False
            reply = await self._reply(sock, connection, head)
        except RemoteProtocolError as error:
            reply = error_reply(error)
        reply = self._service.finish(reply, head)
        if reply.cause is not None:
            logger.error("a model failed", exc_info=reply.cause)
        is_last = self.is_stopping or not self._admits(connection)
        headers = [*reply.headers, ("Connection", "close")] if is_last else reply.headers
        buffers = connection.send_response(reply.status, headers, reply.buffers)
        await aio.send(sock, buffers, timeout=self._options.write_timeout)
        return True

    def _admits(self, connection: ServerConnection) -> bool:
        """Whether the connection is among those served; it stays so until it ends, whoever comes later."""
        if len(self._served) < self._options.max_connections:
            self._served.add(connection)
        return connection in self._served

    async def _next_head(self, sock: socket.socket, connection: ServerConnection) -> RequestHead | None:
        """Wait for the next request; None if there will be none."""
        while (event := connection.next_event()) is NEED_DATA:
            if not connection.incoming.has_input:
                if not await self._first_bytes(sock, connection):
                    return None
                continue
            try:
                await aio.read(sock, connection, timeout=self._options.read_timeout)
            except TimeoutError:
                raise _give_up(connection, "head") from None
        return event if isinstance(event, RequestHead) else None

    async def _first_bytes(self, sock: socket.socket, connection: ServerConnection) -> bool:
        """Wait for a request to begin; False if none does in time, or the server stops."""
        with anyio.move_on_after(self._options.idle_timeout) as scope:
            self._idle.add(scope)
            try:
                if not self.is_stopping:
                    await aio.read(sock, connection)
                    return True
            finally:
                self._idle.discard(scope)
        return False

    async def _reply(self, sock: socket.socket, connection: ServerConnection, head: RequestHead) -> Reply:
        """Receive the body as far as it is wanted, and have the request answered."""
        if not self._admits(connection):
            return unavailable_reply("the server has as many connections as it may have", retry_after=1)
        outcome = self._service.begin(head)
        if isinstance(outcome, Reply):
            return outcome
        if interim := connection.receive_body(outcome.decoder):
            await aio.send(sock, [interim], timeout=self._options.write_timeout)
        await self._receive(sock, connection, outcome)
        try:
            return await anyio.to_thread.run_sync(outcome.run, abandon_on_cancel=True, limiter=self._workers)
        except anyio.get_cancelled_exc_class():
            self.abandoned_calls += 1
            raise

    async def _receive(self, sock: socket.socket, connection: ServerConnection, inference: Inference) -> None:
        try:
            while True:
                event = await aio.next_event(sock, connection, timeout=self._options.read_timeout)
                if isinstance(event, EndOfMessage):
                    return
                inference.receive(event)
        except TimeoutError:
            raise _give_up(connection, "body") from None


async def _run_until_signal(server: Server, listener: socket.socket, announce: Callable[[], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, signals, server, tasks.cancel_scope)
            announce()  # not before the signals are ours, or one that comes at once would kill the process
            await server.serve(listener)
            tasks.cancel_scope.cancel()


async def _watch(signals: AsyncIterator[signal.Signals], server: Server, everything: anyio.CancelScope) -> None:
    async for _ in signals:
        if server.is_stopping:
            everything.cancel()
            return
        server.stop()


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
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


async def _linger(sock: socket.socket, seconds: float) -> None:
    """Let the client read the response before the connection closes on what it is still sending."""
    scratch = bytearray(_LINGER_BYTES)
    sock.shutdown(socket.SHUT_WR)
    with anyio.move_on_after(seconds):
        while True:
            await anyio.wait_readable(sock)
            if not sock.recv_into(scratch):
                return


def _give_up(connection: ServerConnection, part: str) -> RemoteProtocolError:
    msg = f"the {part} of the request comes too slowly"
    error = RemoteProtocolError(msg, code=ErrorCode.TOO_SLOW, status_hint=408)
    connection.give_up(error)
    return error
