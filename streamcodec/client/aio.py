"""AsyncClient: a client of V2 servers for anyio programs, on asyncio (uvloop included) and trio.

It differs from `Client` in nothing but the waiting, and in that it works off an answer in turns with the other tasks of
its event loop: whatever a server sends, no stretch of that is long.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

import anyio
import numpy as np
from anyio.lowlevel import checkpoint

from streamcodec.client.calls import Values, get, infer, infer_raw, model_path
from streamcodec.client.exchange import Address, Compression, Exchange, InferResult, Placing, ServerError
from streamcodec.core.errors import LocalProtocolError, RemoteProtocolError
from streamcodec.core.events import Event
from streamcodec.core.limits import DEFAULT_LIMITS, Limits
from streamcodec.core.model import RequestedOutput
from streamcodec.core.placement import Place
from streamcodec.http.client import ClientConnection
from streamcodec.http.messages import HttpEvent
from streamcodec.transports import aio
from streamcodec.transports.duplex import AsyncDuplex
from streamcodec.transports.sync import has_input
from streamcodec.transports.timelimit import TimeLimit

_EVENTS_IN_A_ROW: Final = 64
"""After so many, other tasks have their turn."""


class AsyncClient:
    """An asynchronous client. It keeps one connection open; calls of several tasks take turns.

    Example::

        async with AsyncClient("http://127.0.0.1:8000") as client:
            result = await client.infer("identity", {"x": np.ones((2, 3), np.float32)})
            print(result["x"])
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float | None = 60.0,
        total_timeout: float | None = 3600.0,
        limits: Limits = DEFAULT_LIMITS,
        request_compression: str | None = None,
        response_compression: str | None = None,
    ) -> None:
        """Prepare to talk to a server; the arguments are those of `Client`.

        To the time of a call belongs that in which it waits for the calls of other tasks.
        """
        self._address = Address.of(url)
        self._timeout = timeout
        self._total_timeout = total_timeout
        self._limits = limits
        self._compression = Compression(request=request_compression, response=response_compression)
        self._socket: socket.socket | None = None
        self._connection = ClientConnection(limits)
        self._turn = anyio.Lock()

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, Values],
        *,
        outputs: Iterable[str | RequestedOutput] | None = None,
        request_id: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        version: str | None = None,
        is_binary: bool = True,
        out: Mapping[str, np.ndarray[Any, Any]] | None = None,
        place: Place | None = None,
        total_timeout: float | None = None,
    ) -> InferResult:
        """Have a model compute its outputs; arguments, result and errors are those of `Client.infer`.

        The windows of `Rows` may come asynchronously. Where they do not, they are made on the event loop, so each
        should be quick.
        """
        limit = self._limit(total_timeout)
        exchange = infer(
            model,
            inputs,
            outputs=outputs,
            request_id=request_id,
            parameters=parameters,
            version=version,
            is_binary=is_binary,
            limits=self._limits,
            compression=self._compression,
            placing=Placing(out, place),
        )
        await self._compress(exchange, limit)
        return (await self._call(exchange, limit)).infer_result()

    @asynccontextmanager
    async def stream(
        self,
        model: str,
        inputs: Mapping[str, Values],
        *,
        outputs: Iterable[str | RequestedOutput] | None = None,
        request_id: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        version: str | None = None,
        is_binary: bool = True,
        place: Place | None = None,
        total_timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """Have a model compute its outputs, and take them as they come; see `Client.stream`.

        The request is sent in the background, from the beginning of the `async with` block. Calls of other tasks wait
        until its end.

        Example::

            async with client.stream("scale", {"x": rows}, place=lambda spec: Windows()) as events:
                async for event in events:
                    if isinstance(event, WindowReceived):
                        await use(event.array)
        """
        limit = self._limit(total_timeout)
        exchange = infer(
            model,
            inputs,
            outputs=outputs,
            request_id=request_id,
            parameters=parameters,
            version=version,
            is_binary=is_binary,
            limits=self._limits,
            compression=self._compression,
            placing=Placing(place=place),
        )
        await self._compress(exchange, limit)
        async with self._exchanging(exchange, limit) as events:
            yield events

    async def infer_raw(
        self, model: str, tensor: Values, *, version: str | None = None, total_timeout: float | None = None
    ) -> InferResult:
        """Have a model of one input compute its outputs, by a raw binary request; see `Client.infer_raw`."""
        limit = self._limit(total_timeout)
        exchange = infer_raw(model, tensor, version=version, limits=self._limits, compression=self._compression)
        return (await self._call(exchange, limit)).infer_result()

    async def server_metadata(self) -> dict[str, Any]:
        """Return the server's name, version and extensions."""
        return await self._document("/v2")

    async def model_metadata(self, model: str, version: str | None = None) -> dict[str, Any]:
        """Return a model's inputs, outputs and versions."""
        return await self._document(model_path(model, version))

    async def is_server_live(self) -> bool:
        """Tell whether the server answers."""
        return await self._is_success("/v2/health/live")

    async def is_server_ready(self) -> bool:
        """Tell whether the server is ready for requests."""
        return await self._is_success("/v2/health/ready")

    async def is_model_ready(self, model: str, version: str | None = None) -> bool:
        """Tell whether a model is ready for requests."""
        return await self._is_success(f"{model_path(model, version)}/ready")

    def close(self) -> None:
        """Close the connection; the next call makes a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def received_copied(self) -> int:
        """Bytes of answers on this connection that were copied in user space; all others were received in place."""
        return self._connection.incoming.received_copied

    async def __aenter__(self) -> Self:
        """Use the client in an `async with` statement."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    async def _document(self, path: str) -> dict[str, Any]:
        limit = self._limit()
        exchange = await self._call(get(path, self._limits), limit)
        if exchange.is_quick:
            return exchange.document()
        with _within(limit):
            return await anyio.to_thread.run_sync(partial(exchange.document, in_thread=True), abandon_on_cancel=True)

    async def _is_success(self, path: str) -> bool:
        try:
            await self._call(get(path, self._limits), self._limit())
        except ServerError:
            return False
        return True

    def _limit(self, total_timeout: float | None = None) -> TimeLimit:
        return TimeLimit(self._total_timeout if total_timeout is None else total_timeout)

    async def _compress(self, exchange: Exchange, limit: TimeLimit) -> None:
        if self._compression.request is not None:  # which may take seconds; the event loop goes on meanwhile
            with _within(limit):
                await anyio.to_thread.run_sync(exchange.compress, abandon_on_cancel=True)

    async def _call(self, exchange: Exchange, limit: TimeLimit) -> Exchange:
        async with self._exchanging(exchange, limit) as events:
            async for event in events:
                exchange.keep(event)
        return exchange

    @asynccontextmanager
    async def _exchanging(self, exchange: Exchange, limit: TimeLimit) -> AsyncIterator[AsyncIterator[Event]]:
        """Send a request, and yield the events of its answer."""
        async with self._turn_of_this_task(limit):
            with _within(limit):
                sock = await self._connect()
            parts = exchange.start(self._connection, self._address, paced=True)
            duplex: AsyncDuplex[HttpEvent] = AsyncDuplex(
                sock, self._connection, parts, read_timeout=self._timeout, write_timeout=self._timeout
            )
            try:
                async with duplex.sending(), aclosing(self._events(exchange, duplex, limit)) as events:
                    yield events
            finally:
                if not (exchange.is_answered and duplex.is_sent):
                    self.close()

    async def _events(
        self, exchange: Exchange, duplex: AsyncDuplex[HttpEvent], limit: TimeLimit
    ) -> AsyncGenerator[Event, None]:
        try:
            for number in count(1):
                if exchange.has_ended:
                    break
                if number % _EVENTS_IN_A_ROW == 0:  # all of which may have come with one read
                    await checkpoint()
                with _within(limit):
                    http_event = await duplex.next_event()
                event = exchange.receive(self._connection, http_event)
                if not exchange.is_success:
                    duplex.stop_sending()
                if event is not None:
                    with limit.paused():
                        yield event
        except (ConnectionError, RemoteProtocolError) as error:
            raise (
                exchange.refusal(error) or duplex.lost or error
            ) from None  # as in Client: the answer may be there already
        exchange.check_status()

    @asynccontextmanager
    async def _turn_of_this_task(self, limit: TimeLimit) -> AsyncIterator[None]:
        try:
            with _within(limit):
                await self._turn.acquire()
        except RuntimeError:  # it would wait for itself
            msg = "the answer to this task's last request is still being received; leave its `async with` block"
            raise LocalProtocolError(msg) from None
        try:
            yield
        finally:
            self._turn.release()

    async def _connect(self) -> socket.socket:
        if self._socket is not None and self._connection.is_reusable and not has_input(self._socket):
            return self._socket
        self.close()
        self._socket = await aio.connect(self._address.host, self._address.port, timeout=self._timeout)
        self._connection = ClientConnection(self._limits, paced=True)
        return self._socket


@contextmanager
def _within(limit: TimeLimit) -> Iterator[None]:
    """Wait no longer than the call may take.

    Raises:
        TimeoutError: it has taken all its time.
    """
    with anyio.move_on_after(limit.left) as scope:
        yield
    if scope.cancelled_caught:
        raise limit.exceeded()
