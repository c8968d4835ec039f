"""AsyncClient: a client of V2 servers for anyio programs, on asyncio (uvloop included) and trio.

It differs from `Client` in two points. It waits without blocking. It processes an answer in short pieces, in turns with
the other tasks of its event loop, whatever a server sends.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

import anyio
import numpy as np

from streamcodec.client.awaiting import Awaiting, within
from streamcodec.client.calls import model_path
from streamcodec.client.common import Common
from streamcodec.client.connections.timeouts import SECONDS, Timeout, Times
from streamcodec.client.errors import ServerError
from streamcodec.client.exchange import ClientExchange, InferResult, Placing
from streamcodec.client.fields import Auth, Headers
from streamcodec.client.raw import Receive
from streamcodec.client.uploads.uploading import OnResume, Uploading
from streamcodec.engine.errors import MessageError
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.memory.placement import Place
from streamcodec.engine.message import Values
from streamcodec.formats.v2.model import Event, RequestedOutput


class AsyncClient:
    """An asynchronous client. Any number of tasks of one event loop may use it at once.

    Example::

        async with AsyncClient("http://127.0.0.1:8000") as client:
            result = await client.infer("identity", {"x": np.ones((2, 3), np.float32)})
            print(result["x"])
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        auth: Auth | None = None,
        verify: bool | str | Path = True,
        ssl_context: ssl.SSLContext | None = None,
        timeout: float | Timeout | None = SECONDS,
        total_timeout: float | None = 3600.0,
        max_connections: int = 10,
        keepalive_expiry: float | None = 60.0,
        limits: Limits = DEFAULT_LIMITS,
        request_compression: str | None = None,
        response_compression: str | None = None,
        media_type: str | None = None,
    ) -> None:
        """Prepare to talk to a server; the arguments are those of `Client`. A function as `auth` should be quick."""
        self._common = Common(
            url,
            headers=headers,
            auth=auth,
            verify=verify,
            ssl_context=ssl_context,
            timeout=timeout,
            total_timeout=total_timeout,
            max_connections=max_connections,
            keepalive_expiry=keepalive_expiry,
            limits=limits,
            request_compression=request_compression,
            response_compression=response_compression,
            media_type=media_type,
            is_paced=True,
        )
        self._awaiting = Awaiting(self._common)

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
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
        resumable: str | PathLike[str] | bool = False,
        outage: float = 60.0,
        on_resume: OnResume | None = None,
    ) -> InferResult:
        """Run a model's inference; arguments, result and errors are those of `Client.infer`.

        The windows of `Rows` may be asynchronous, unless the request is `resumable`. Otherwise they are made on the
        event loop, so each should be quick.
        """
        times = self._common.times(timeout, total_timeout)
        arguments: dict[str, Any] = {
            "outputs": outputs,
            "request_id": request_id,
            "parameters": parameters,
            "version": version,
            "is_binary": is_binary,
            "placing": Placing(out, place),
            "headers": headers,
        }
        if resumable is not False:
            return await self._upload(
                self._common.calls.upload(model, inputs, resumable, outage=outage, on_resume=on_resume, **arguments),
                times,
            )
        exchange = self._common.calls.infer(model, inputs, **arguments)
        await self._compress(exchange, times)
        return (await self._call(exchange, times)).infer_result()

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
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[Event]]:
        """Run a model's inference, and receive its outputs as they arrive; see `Client.stream`.

        The request is sent in the background, from the beginning of the `async with` block. On a kept connection, the
        beginning of the block waits for the first bytes of the answer, because they show that the connection has not
        died.

        Example::

            async with client.stream("scale", {"x": rows}, place=lambda spec: Windows()) as events:
                async for event in events:
                    if isinstance(event, WindowReceived):
                        await use(event.array)
        """
        times = self._common.times(timeout, total_timeout)
        exchange = self._common.calls.infer(
            model,
            inputs,
            outputs=outputs,
            request_id=request_id,
            parameters=parameters,
            version=version,
            is_binary=is_binary,
            placing=Placing(place=place),
            headers=headers,
        )
        await self._compress(exchange, times)
        async with self._awaiting.exchanging(exchange, times) as events:
            yield events

    async def infer_raw(
        self,
        model: str,
        tensor: Values,
        *,
        version: str | None = None,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> InferResult:
        """Run the inference of a model with one input by a raw binary request; see `Client.infer_raw`."""
        times = self._common.times(timeout, total_timeout)
        exchange = self._common.calls.infer_raw(model, tensor, version=version, headers=headers)
        return (await self._call(exchange, times)).infer_result()

    async def request(
        self,
        method: str,
        path: str,
        receive: Receive,
        *,
        headers: Headers = (),
        parts: Sequence[bytes | memoryview] = (),
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> list[Event]:
        """Send a request of your own; arguments, result and errors are those of `Client.request`."""
        times = self._common.times(timeout, total_timeout)
        exchange = self._common.calls.raw(method, path, headers, parts, receive)
        await self._call(exchange, times)
        return exchange.events

    async def server_metadata(
        self,
        *,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> dict[str, Any]:
        """Return the server's name, version and extensions."""
        return await self._document("/v2", headers, timeout, total_timeout)

    async def model_metadata(
        self,
        model: str,
        version: str | None = None,
        *,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> dict[str, Any]:
        """Return a model's inputs, outputs and versions."""
        return await self._document(model_path(model, version), headers, timeout, total_timeout)

    async def is_server_live(
        self,
        *,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> bool:
        """Tell whether the server answers."""
        return await self._is_success("/v2/health/live", headers, timeout, total_timeout)

    async def is_server_ready(
        self,
        *,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> bool:
        """Tell whether the server is ready for requests."""
        return await self._is_success("/v2/health/ready", headers, timeout, total_timeout)

    async def is_model_ready(
        self,
        model: str,
        version: str | None = None,
        *,
        headers: Headers | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> bool:
        """Tell whether a model is ready for requests."""
        return await self._is_success(f"{model_path(model, version)}/ready", headers, timeout, total_timeout)

    def close(self) -> None:
        """Close all connections; those in use are closed when their calls end. The next call makes a new one."""
        self._common.pool.close()

    @property
    def sent_bytes(self) -> int:
        """Bytes of requests, heads included, that the system has taken so far, in all calls, running ones included.

        The overhead of TLS does not count. Any thread may ask at any time, to show the progress of a long call.
        """
        return self._common.pool.traffic.sent

    @property
    def received_bytes(self) -> int:
        """Bytes of answers, heads included, that have arrived so far, in all calls, as for `sent_bytes`."""
        return self._common.pool.traffic.received

    @property
    def received_copied(self) -> int:
        """Bytes of answers so far that were copied in user space; all others were received in place."""
        return self._common.pool.traffic.copied

    async def __aenter__(self) -> Self:
        """Use the client in an `async with` statement."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    async def _document(
        self, path: str, headers: Headers | None, timeout: float | Timeout | None, total_timeout: float | None
    ) -> dict[str, Any]:
        times = self._common.times(timeout, total_timeout)
        exchange = await self._call(self._common.calls.get(path, headers), times)
        if exchange.is_quick:
            return exchange.document()
        with within(times.limit):
            return await anyio.to_thread.run_sync(partial(exchange.document, in_thread=True), abandon_on_cancel=True)

    async def _is_success(
        self, path: str, headers: Headers | None, timeout: float | Timeout | None, total_timeout: float | None
    ) -> bool:
        times = self._common.times(timeout, total_timeout)
        try:
            await self._call(self._common.calls.get(path, headers), times)
        except ServerError:
            return False
        return True

    async def _compress(self, exchange: ClientExchange, times: Times) -> None:
        if self._common.compresses:  # this may take seconds; the event loop runs meanwhile
            with within(times.limit):
                await anyio.to_thread.run_sync(exchange.compress, abandon_on_cancel=True)

    async def _upload(self, uploading: Uploading, times: Times) -> InferResult:
        if uploading.is_recorded:
            with within(times.limit):
                await anyio.to_thread.run_sync(uploading.begin, abandon_on_cancel=True)
        while True:
            exchange = uploading.next_exchange()
            try:
                await self._call(exchange, times)
            except (OSError, MessageError) as error:
                seconds = uploading.failed(exchange, error, monotonic(), is_over=times.limit.is_over)
                await anyio.sleep(times.limit.at_most(seconds) or 0.0)
                continue
            if uploading.succeeded(exchange):
                return exchange.infer_result()

    async def _call(self, exchange: ClientExchange, times: Times) -> ClientExchange:
        async with self._awaiting.exchanging(exchange, times) as events:
            async for event in events:
                exchange.keep(event)
        return exchange
