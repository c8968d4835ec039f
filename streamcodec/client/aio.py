"""AsyncClient: a client of V2 servers for anyio programs, on asyncio (uvloop included) and trio.

It differs from `Client` in nothing but the waiting.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import anyio
import numpy.typing as npt

from streamcodec.client.exchange import Address, Compression, Exchange, InferResult, get, infer, infer_raw, model_path
from streamcodec.core.errors import RemoteProtocolError
from streamcodec.core.limits import DEFAULT_LIMITS, Limits
from streamcodec.core.model import RequestedOutput
from streamcodec.http.client import ClientConnection
from streamcodec.transports import aio
from streamcodec.transports.sync import has_input


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
        limits: Limits = DEFAULT_LIMITS,
        request_compression: str | None = None,
        response_compression: str | None = None,
    ) -> None:
        """Prepare to talk to a server; the arguments are those of `Client`."""
        self._address = Address.of(url)
        self._timeout = timeout
        self._limits = limits
        self._compression = Compression(request=request_compression, response=response_compression)
        self._socket: socket.socket | None = None
        self._connection = ClientConnection(limits)
        self._turn = anyio.Lock()

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, npt.ArrayLike],
        *,
        outputs: Iterable[str | RequestedOutput] | None = None,
        request_id: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        version: str | None = None,
        is_binary: bool = True,
    ) -> InferResult:
        """Have a model compute its outputs; arguments, result and errors are those of `Client.infer`."""
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
        )
        if self._compression.request is not None:  # which may take seconds; the event loop goes on meanwhile
            await anyio.to_thread.run_sync(exchange.compress, abandon_on_cancel=True)
        return (await self._call(exchange)).infer_result()

    async def infer_raw(self, model: str, tensor: npt.ArrayLike, *, version: str | None = None) -> InferResult:
        """Have a model of one input compute its outputs, by a raw binary request; see `Client.infer_raw`."""
        exchange = infer_raw(model, tensor, version=version, limits=self._limits, compression=self._compression)
        return (await self._call(exchange)).infer_result()

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
        return (await self._call(get(path, self._limits))).document()

    async def _is_success(self, path: str) -> bool:
        return (await self._call(get(path, self._limits))).is_success

    async def _call(self, exchange: Exchange) -> Exchange:
        async with self._turn:
            sock = await self._connect()
            buffers = exchange.start(self._connection, self._address)
            is_kept = False
            lost: ConnectionError | None = None
            try:
                try:
                    await aio.send(sock, buffers, timeout=self._timeout)
                except ConnectionError as error:
                    lost = error  # as in Client: the answer may be there already
                while not exchange.receive(
                    self._connection, await aio.next_event(sock, self._connection, timeout=self._timeout)
                ):
                    pass
                is_kept = lost is None and not exchange.has_server_failed
            except (ConnectionError, RemoteProtocolError) as error:
                raise lost or error from None
            finally:
                if not is_kept:
                    self.close()
        return exchange

    async def _connect(self) -> socket.socket:
        if self._socket is not None and self._connection.is_reusable and not has_input(self._socket):
            return self._socket
        self.close()
        self._socket = await aio.connect(self._address.host, self._address.port, timeout=self._timeout)
        self._connection = ClientConnection(self._limits)
        return self._socket
