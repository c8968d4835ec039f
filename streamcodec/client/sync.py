"""Client: a blocking client of V2 servers."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from inspect import signature
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from streamcodec.client.blocking import Blocking
from streamcodec.client.caller import run
from streamcodec.client.common import Common
from streamcodec.client.connections.timeouts import SECONDS, Timeout
from streamcodec.client.fields import Auth, Headers
from streamcodec.client.lane.tensors import MemoryLane
from streamcodec.client.methods import Methods
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.formats.v2.model import Event

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Methods, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Make the method that brings a coroutine to its end."""

    def blocking(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._methods, *args, **kwargs))

    _describe(blocking, method)
    return blocking


def _blocking_events(
    method: Callable[Concatenate[Methods, P], AbstractAsyncContextManager[AsyncIterator[Event]]],
) -> Callable[Concatenate[Client, P], AbstractContextManager[Iterator[Event]]]:
    """Make the method whose block has an iterator in place of an asynchronous one."""

    @contextmanager
    def blocking(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[Iterator[Event]]:
        manager = method(self._methods, *args, **kwargs)
        events = run(_entered(manager))
        try:
            yield iter(lambda: run(_next(events)), None)
        except BaseException as error:
            if not run(_left(manager, error)):
                raise
        else:
            run(_left(manager, None))

    _describe(blocking, method, Iterator[Iterator[Event]])
    return blocking


async def _entered(manager: AbstractAsyncContextManager[T]) -> T:
    return await manager.__aenter__()


async def _next(events: AsyncIterator[T]) -> T | None:
    return await anext(events, None)


async def _left(manager: AbstractAsyncContextManager[Any], error: BaseException | None) -> bool | None:
    if error is None:
        return await manager.__aexit__(None, None, None)
    return await manager.__aexit__(type(error), error, error.__traceback__)


def _describe(method: Callable[..., Any], other: Callable[..., Any], result: object = None) -> None:
    """Give a method the name, the words and the arguments of another, and perhaps another result."""
    found = signature(other, eval_str=True)
    method.__name__, method.__qualname__, method.__doc__ = other.__name__, f"Client.{other.__name__}", other.__doc__
    vars(method).pop("__wrapped__", None)
    found = found if result is None else found.replace(return_annotation=result)
    annotations = {name: argument.annotation for name, argument in found.parameters.items() if name != "self"}
    method.__annotations__ = annotations | {"return": found.return_annotation}
    vars(method)["__signature__"] = found


class Client:
    """A blocking client. Any number of threads may use it at once; each call uses its own connection.

    Tensors of a request are sent from the memory of the arrays. Tensors of an answer are received straight into the
    memory of the result. The client reads while it sends. So a refusal stops the sending, and a server may answer row
    by row.

    Example::

        with Client("http://127.0.0.1:8000") as client:
            result = client.infer("identity", {"x": np.ones((2, 3), np.float32)})
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
        memory_lane: MemoryLane | None = None,
        retries: int = 0,
    ) -> None:
        """Prepare to talk to a server; nothing is sent yet.

        Args:
            url: as `http://127.0.0.1:8000` or `https://example.org`, or `http+unix://%2Frun%2Fmodels.sock` for a Unix
                socket. A user and a password in it are sent as Basic authentication, and never shown.
            headers: fields for every request, as a mapping or in pairs; `Host` is allowed. Fields that the message
                needs, such as `Content-Length`, are not allowed.
            auth: a pair of user and password; or a bearer token; or a function without arguments that returns the
                token, called for each request. An `Authorization` in `headers` has precedence.
            verify: True to trust the certificates that the system trusts. A path of a file or folder to trust its
                certificates instead. False to trust every server: whoever is on the way can then read and change
                everything.
            ssl_context: replaces `verify`, and may do more, such as give a certificate of the client. If it offers
                protocols (ALPN), it should offer HTTP/1.1 only, with `set_alpn_protocols(["http/1.1"])`: a server that
                chooses `h2` is an error.
            timeout: seconds without progress before giving up, in each phase of a call: waiting for a connection,
                connecting, sending and receiving; or a `Timeout` with one value for each phase. None waits for ever.
            total_timeout: seconds for a whole call, even with progress: waiting for a connection, looking up the
                server's name, connecting, sending, and receiving the answer. It also ends an answer of which only a
                byte arrives from time to time, which `timeout` does not. None for no such limit. In `stream`, the time
                that the caller uses between two events does not count.
            max_connections: at one time. Further calls wait until one is free.
            keepalive_expiry: seconds for which an unused connection is kept for the next call; None for ever.
            limits: bound every answer.
            request_compression: `gzip` or `deflate` to compress inference requests, if that makes them smaller. This
                helps on slow networks only: tensors are compressed at 30 to 130 MB/s.
            response_compression: `gzip` or `deflate` to ask for compressed inference responses. A server need not
                comply; the client reads both.
            media_type: `SAGEMAKER_MEDIA_TYPE` or `VERTEX_AI_MEDIA_TYPE`, to give the length of a request's JSON header
                in `Content-Type`, for gateways that pass on no other field; None for `Inference-Header-Content-Length`.
                The client reads answers in both forms.
            memory_lane: memory to share with the server of a Unix socket, so that the tensors of `infer` are not sent;
                see `MemoryLane`. A server that offers no memory lane gets them as usual.
            retries: how often a call that has failed is made again, after growing pauses, if the server has not run it:
                there was no connection, or the answer is 429 or 503 with `Retry-After`. A request that only reads, or
                that is `idempotent`, is made again, too, if its connection ends or stalls before a byte of the answer.
                Health checks and `stream` are not made again, and a `resumable` request has a rule of its own. Each
                pause counts for `total_timeout`, and none is longer than `timeout`.

        Raises:
            LocalProtocolError: the URL is not that of an HTTP server, a field cannot be sent, there is no such
                compression or media type, no certificates can be read, or there is a memory lane for TCP.
        """
        common = Common(
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
            memory_lane=memory_lane,
            retries=retries,
        )
        self._methods = Methods(common, Blocking(common.context))

    infer = _blocking(Methods.infer)
    stream = _blocking_events(Methods.stream)
    infer_raw = _blocking(Methods.infer_raw)
    request = _blocking(Methods.request)
    server_metadata = _blocking(Methods.server_metadata)
    model_metadata = _blocking(Methods.model_metadata)
    model_config = _blocking(Methods.model_config)
    statistics = _blocking(Methods.statistics)
    repository_index = _blocking(Methods.repository_index)
    load = _blocking(Methods.load)
    unload = _blocking(Methods.unload)
    trace_settings = _blocking(Methods.trace_settings)
    log_settings = _blocking(Methods.log_settings)
    is_server_live = _blocking(Methods.is_server_live)
    is_server_ready = _blocking(Methods.is_server_ready)
    is_model_ready = _blocking(Methods.is_model_ready)

    def close(self) -> None:
        """Close all connections; those in use are closed when their calls end. The next call makes a new one."""
        self._methods.close()

    @property
    def sent_bytes(self) -> int:
        """Bytes of requests, heads included, that the system has taken so far, in all calls, running ones included.

        The overhead of TLS does not count. Any thread may ask at any time, to show the progress of a long call.
        """
        return self._methods.sent_bytes

    @property
    def received_bytes(self) -> int:
        """Bytes of answers, heads included, that have arrived so far, in all calls, as for `sent_bytes`."""
        return self._methods.received_bytes

    @property
    def received_copied(self) -> int:
        """Bytes of answers so far that were copied in user space; all others were received in place."""
        return self._methods.received_copied

    def __enter__(self) -> Self:
        """Use the client in a `with` statement."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()
