"""Aio: the asynchronous client, for asyncio (uvloop included) and trio."""

from __future__ import annotations

import ssl as tls
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

from streamcodec.client.awaiting import Awaiting
from streamcodec.tritonclient.http import calls, inference
from streamcodec.tritonclient.http.calls import Call, T
from streamcodec.tritonclient.http.client import InferAsyncRequest
from streamcodec.tritonclient.http.face import Face, as_method
from streamcodec.tritonclient.http.plugin import InferenceServerClientPlugin, Request
from streamcodec.tritonclient.http.result import InferResult
from streamcodec.tritonclient.http.tensors import InferInput, InferRequestedOutput
from streamcodec.tritonclient.utils import InferenceServerException

__all__ = [
    "InferAsyncRequest",
    "InferInput",
    "InferRequestedOutput",
    "InferResult",
    "InferenceServerClient",
    "InferenceServerClientPlugin",
    "InferenceServerException",
    "Request",
]

P = ParamSpec("P")
_MOST_CONNECTIONS = 1 << 16
"""In place of no limit."""


def _awaiting(
    describe: Callable[P, Call[T]],
) -> Callable[Concatenate[InferenceServerClient, P], Coroutine[Any, Any, T]]:
    """Make the method that sends a call and awaits its answer."""

    async def method(self: InferenceServerClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._result(describe(*args, **kwargs))

    as_method(method, describe)
    return method


class InferenceServerClient(Face):
    """An asynchronous client of one server. Any number of tasks of one event loop may use it at once."""

    _media_type = "application/octet-stream"
    """As aiohttp has it, and the other client of tritonclient not."""

    def __init__(
        self,
        url: str,
        verbose: bool = False,
        conn_limit: int = 100,
        conn_timeout: float | None = 60.0,
        ssl: bool = False,
        ssl_context: tls.SSLContext | bool | None = None,
    ) -> None:
        """Prepare to talk to a server; nothing is sent yet.

        Args:
            url: as `localhost:8000`, with a path behind it if the service is not at the root.
            verbose: whether to print each request and each answer.
            conn_limit: connections at one time; 0 for no limit. Further calls wait until one is free.
            conn_timeout: seconds for a whole call; None or 0 for no limit.
            ssl: whether to use TLS.
            ssl_context: the TLS context; None for the certificates that the system trusts, False to trust every server.

        Raises:
            InferenceServerException: the URL has a scheme, or is not one of a server.
        """
        super().__init__(
            url,
            verbose,
            Awaiting,
            is_secure=ssl,
            verify=ssl_context is not False,
            context=ssl_context if isinstance(ssl_context, tls.SSLContext) else None,
            timeout=None,
            total_timeout=conn_timeout or None,
            max_connections=conn_limit or _MOST_CONNECTIONS,
        )

    async def close(self) -> None:
        """Close all connections. There can be no other call after it."""
        self._is_closed = True
        self._common.pool.close()

    async def __aenter__(self) -> Self:
        """Use the client in an `async with` statement."""
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    is_server_live = _awaiting(calls.is_server_live)
    is_server_ready = _awaiting(calls.is_server_ready)
    is_model_ready = _awaiting(calls.is_model_ready)
    get_server_metadata = _awaiting(calls.get_server_metadata)
    get_model_metadata = _awaiting(calls.get_model_metadata)
    get_model_config = _awaiting(calls.get_model_config)
    get_model_repository_index = _awaiting(calls.get_model_repository_index)
    load_model = _awaiting(calls.load_model)
    unload_model = _awaiting(calls.unload_model)
    get_inference_statistics = _awaiting(calls.get_inference_statistics)
    update_trace_settings = _awaiting(calls.update_trace_settings)
    get_trace_settings = _awaiting(calls.get_trace_settings)
    update_log_settings = _awaiting(calls.update_log_settings)
    get_log_settings = _awaiting(calls.get_log_settings)
    get_system_shared_memory_status = _awaiting(calls.get_system_shared_memory_status)
    register_system_shared_memory = _awaiting(calls.register_system_shared_memory)
    unregister_system_shared_memory = _awaiting(calls.unregister_system_shared_memory)
    get_cuda_shared_memory_status = _awaiting(calls.get_cuda_shared_memory_status)
    register_cuda_shared_memory = _awaiting(calls.register_cuda_shared_memory)
    unregister_cuda_shared_memory = _awaiting(calls.unregister_cuda_shared_memory)
    infer = _awaiting(inference.infer)
