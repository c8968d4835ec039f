"""Client: the blocking client."""

from __future__ import annotations

import ssl as tls
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

from streamcodec.client.blocking import Blocking
from streamcodec.client.caller import run
from streamcodec.client.connections.timeouts import Timeout
from streamcodec.tritonclient.http import calls, inference
from streamcodec.tritonclient.http.calls import Call, T
from streamcodec.tritonclient.http.face import Face, as_method
from streamcodec.tritonclient.http.result import InferResult
from streamcodec.tritonclient.utils import raise_error

P = ParamSpec("P")


class InferAsyncRequest:
    """An inference request that is on its way."""

    def __init__(self, greenlet: Future[InferResult], verbose: bool = False) -> None:
        """Keep the place where the result will be."""
        self._future = greenlet
        self._verbose = verbose

    def get_result(self, block: bool = True, timeout: float | None = None) -> InferResult:
        """Return the result.

        Args:
            block: whether to wait for it.
            timeout: seconds to wait; None for as long as it takes.

        Raises:
            InferenceServerException: it has not come in that time; or as from `infer`.
            OSError: as from `infer`.
        """
        try:
            return self._future.result(timeout if block else 0)
        except TimeoutError:
            if self._future.done():  # the call itself has taken too long
                raise
            raise_error("failed to obtain inference response")


def _blocking(describe: Callable[P, Call[T]]) -> Callable[Concatenate[InferenceServerClient, P], T]:
    """Make the method that sends a call and waits for its answer."""

    def method(self: InferenceServerClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(describe(*args, **kwargs))

    as_method(method, describe)
    return method


def _in_thread(
    describe: Callable[P, Call[InferResult]],
) -> Callable[Concatenate[InferenceServerClient, P], InferAsyncRequest]:
    """Make the method that has a thread send a call."""

    def method(self: InferenceServerClient, /, *args: P.args, **kwargs: P.kwargs) -> InferAsyncRequest:
        """Have a thread run a model's inference; arguments are those of `infer`.

        The arrays are copied before this returns, so they may be used again at once.

        Returns:
            Where the result will be.

        Raises:
            InferenceServerException: a parameter is reserved.
        """
        call = describe(*args, **kwargs)
        copied = replace(call, body=[bytes(part) for part in call.body or ()])
        return InferAsyncRequest(self._threads.submit(self._call, copied), self._verbose)

    as_method(method, describe, name=f"async_{describe.__name__}", result=InferAsyncRequest)
    return method


class InferenceServerClient(Face):
    """A blocking client of one server. Any number of threads may use it at once."""

    def __init__(
        self,
        url: str,
        verbose: bool = False,
        concurrency: int = 1,
        connection_timeout: float | None = 60.0,
        network_timeout: float | None = 60.0,
        max_greenlets: int | None = None,
        ssl: bool = False,
        ssl_options: Mapping[str, Any] | None = None,
        ssl_context_factory: Callable[..., tls.SSLContext] | None = None,
        insecure: bool = False,
    ) -> None:
        """Prepare to talk to a server; nothing is sent yet.

        Args:
            url: as `localhost:8000`, with a path behind it if the service is not at the root.
            verbose: whether to print each request and each answer.
            concurrency: connections at one time. Further calls wait until one is free.
            connection_timeout: seconds for connecting; None for no limit.
            network_timeout: seconds without progress; None for no limit.
            max_greenlets: threads for `async_infer`, at most `concurrency`; None for as many as connections.
            ssl: whether to use TLS. Only then the next three mean anything.
            ssl_options: `ca_certs`, `certfile`, `keyfile`, `ciphers`, `options` and `verify_flags` of the TLS context.
            ssl_context_factory: makes the TLS context, as `ssl.create_default_context` does.
            insecure: whether a certificate may be for another host. It must be trusted nevertheless.

        Raises:
            InferenceServerException: the URL has a scheme, or is not one of a server.
        """
        super().__init__(
            url,
            verbose,
            Blocking,
            is_secure=ssl,
            context=_context(ssl_options or {}, ssl_context_factory, insecure=insecure) if ssl else None,
            timeout=Timeout(connect=connection_timeout, read=network_timeout, write=network_timeout, pool=None),
            total_timeout=None,
            max_connections=concurrency,
        )
        self._threads = ThreadPoolExecutor(min(concurrency, max_greenlets or concurrency), "streamcodec infer")

    def close(self) -> None:
        """Wait for the requests of `async_infer`, and close all connections. There can be no other call after it."""
        self._threads.shutdown()
        self._is_closed = True
        self._common.pool.close()

    def __enter__(self) -> Self:
        """Use the client in a `with` statement."""
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    is_server_live = _blocking(calls.is_server_live)
    is_server_ready = _blocking(calls.is_server_ready)
    is_model_ready = _blocking(calls.is_model_ready)
    get_server_metadata = _blocking(calls.get_server_metadata)
    get_model_metadata = _blocking(calls.get_model_metadata)
    get_model_config = _blocking(calls.get_model_config)
    get_model_repository_index = _blocking(calls.get_model_repository_index)
    load_model = _blocking(calls.load_model)
    unload_model = _blocking(calls.unload_model)
    get_inference_statistics = _blocking(calls.get_inference_statistics)
    update_trace_settings = _blocking(calls.update_trace_settings)
    get_trace_settings = _blocking(calls.get_trace_settings)
    update_log_settings = _blocking(calls.update_log_settings)
    get_log_settings = _blocking(calls.get_log_settings)
    get_system_shared_memory_status = _blocking(calls.get_system_shared_memory_status)
    register_system_shared_memory = _blocking(calls.register_system_shared_memory)
    unregister_system_shared_memory = _blocking(calls.unregister_system_shared_memory)
    get_cuda_shared_memory_status = _blocking(calls.get_cuda_shared_memory_status)
    register_cuda_shared_memory = _blocking(calls.register_cuda_shared_memory)
    unregister_cuda_shared_memory = _blocking(calls.unregister_cuda_shared_memory)
    infer = _blocking(inference.infer)
    async_infer = _in_thread(inference.infer)

    def _call(self, call: Call[T]) -> T:
        return run(self._result(call))


def _context(
    options: Mapping[str, Any], factory: Callable[..., tls.SSLContext] | None, *, insecure: bool
) -> tls.SSLContext:
    """Return the TLS context that the arguments of a client ask for."""
    trusted = options.get("ca_certs")
    try:
        context = (factory or tls.create_default_context)(cafile=trusted)
    except TypeError:  # a function without arguments
        context = factory() if factory is not None else tls.create_default_context()
        if trusted is not None:
            context.load_verify_locations(trusted)
    context.check_hostname = not insecure
    if not insecure:
        context.verify_mode = tls.CERT_REQUIRED
    if "certfile" in options:
        context.load_cert_chain(options["certfile"], options.get("keyfile"))
    if "ciphers" in options:
        context.set_ciphers(options["ciphers"])
    for name in {"options", "verify_flags"} & {*options}:
        setattr(context, name, options[name])
    return context
