"""Face: what the blocking and the asynchronous client share: everything except how they wait."""

from __future__ import annotations

import inspect
import ssl as tls
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

from streamcodec.client.caller import Caller, Waits
from streamcodec.client.common import Common
from streamcodec.client.connections.timeouts import Timeout
from streamcodec.engine.errors import ProtocolError
from streamcodec.tritonclient.http import inference
from streamcodec.tritonclient.http.calls import Call, T
from streamcodec.tritonclient.http.plugin import InferenceServerClientPlugin, Request
from streamcodec.tritonclient.http.result import LIMITS, Answer, InferResult
from streamcodec.tritonclient.utils import InferenceServerException, raise_error

_HEADER_LENGTH = "Inference-Header-Content-Length"
_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Face:
    """A client of one server: its plugin, and what it does before and after each call."""

    _media_type: str | None = None
    """Of the body of a request, unless the caller gives one."""

    generate_request_body = staticmethod(inference.generate_request_body)
    parse_response_body = staticmethod(InferResult.from_response_body)

    def __init__(
        self,
        url: str,
        verbose: bool,
        waits: Callable[[tls.SSLContext | None], Waits],
        *,
        is_secure: bool,
        verify: bool = True,
        context: tls.SSLContext | None,
        timeout: Timeout | None,
        total_timeout: float | None,
        max_connections: int,
    ) -> None:
        """Begin without a plugin; nothing is sent yet.

        Raises:
            InferenceServerException: the URL has a scheme, or is not one of a server.
        """
        if url.startswith(("http://", "https://")):
            raise_error("url should not include the scheme")
        try:
            self._common = Common(
                f"{'https' if is_secure else 'http'}://{url}",
                verify=verify,
                ssl_context=context,
                timeout=timeout,
                total_timeout=total_timeout,
                max_connections=max_connections,
                keepalive_expiry=60.0,
                limits=LIMITS,
            )
        except ProtocolError as error:
            raise failure(error) from None
        self._waits = waits(self._common.context)
        self._caller = Caller(self._common, self._waits)
        self._verbose = verbose
        self._plugin: InferenceServerClientPlugin | None = None
        self._is_closed = False

    def __del__(self) -> None:
        """Close the connections of a client that was forgotten; no call is under way, because it would refer to it."""
        if "_common" in vars(self):
            self._common.pool.close()

    def register_plugin(self, plugin: InferenceServerClientPlugin) -> None:
        """Have a plugin called before each request.

        Raises:
            InferenceServerException: there is one already.
        """
        if self._plugin is not None:
            raise_error(
                "A plugin is already registered. Please unregister the previous plugin first before registering a new "
                "plugin."
            )
        self._plugin = plugin

    def plugin(self) -> InferenceServerClientPlugin | None:
        """Return the plugin, if there is one."""
        return self._plugin

    def unregister_plugin(self) -> None:
        """Remove the plugin.

        Raises:
            InferenceServerException: there is none.
        """
        if self._plugin is None:
            raise_error("No plugin has been registered.")
        self._plugin = None

    async def _result(self, call: Call[T]) -> T:
        """Send a call, and return its result.

        Raises:
            RuntimeError: the client is closed.
            InferenceServerException: the server refuses it, or the answer is wrong.
            OSError: there is no connection, or it broke; `TimeoutError` is one.
        """
        if self._is_closed:
            raise RuntimeError("the client is closed")
        times = self._common.times(None, None)
        answer = Answer(has_tensors=call.has_tensors)
        calls, path = self._common.calls, f"/{call.path}"
        try:
            if call.has_tensors and not (call.headers or self._plugin or self._verbose):
                exchange = calls.raw_inference(
                    path,
                    call.parts,
                    answer.receive,
                    answer.take_whole,
                    media_type=self._media_type,
                    header_length=call.header_length,
                )
            else:
                fields = self._fields(call)
                parts = call.parts if call.encoding is None else await self._waits.apart(call.compressed, times.limit)
                exchange = calls.raw(call.method, path, fields, parts, answer.receive, take=answer.take_whole)
            await self._caller.call(exchange, times)
            answer.take(exchange.events)
            if answer.is_long:  # others run meanwhile
                return await self._waits.apart(partial(self._read, call, answer), times.limit)
            return self._read(call, answer)
        except ProtocolError as error:
            raise failure(error) from None
        except TimeoutError as error:  # programs look for the two words
            raise TimeoutError(f"timed out: {error}") from None

    def _fields(self, call: Call[Any]) -> list[tuple[str, str]]:
        """Return the fields of a request, as the plugin leaves them.

        Raises:
            InferenceServerException: a field is not supported.
        """
        of_message = {} if call.header_length is None else {_HEADER_LENGTH: call.header_length}
        request = Request(call.headers | of_message)
        if self._plugin is not None:
            self._plugin(request)
        fields = [(str(name), str(value)) for name, value in request.headers.items()]
        names = {name.lower() for name, _ in fields}
        if "transfer-encoding" in names:
            raise_error(
                "Unsupported HTTP header: 'Transfer-Encoding' is not supported in the Python client library. Use raw "
                "HTTP request libraries or the C++ client instead for this header."
            )
        if self._verbose:
            print(f"{call.method} /{call.path}, headers {request.headers}")
        if self._media_type is not None and call.body is not None and "content-type" not in names:
            fields.append(("Content-Type", self._media_type))
        return fields

    def _read(self, call: Call[T], answer: Answer) -> T:
        """Return the result of an answer."""
        if self._verbose:
            fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in answer.fields.items}
            print(f"{answer.status}, headers {fields}")
        result = call.read(answer, self._verbose)
        if self._verbose and call.done is not None:
            print(call.done)
        return result


def failure(error: ProtocolError) -> InferenceServerException:
    """Return the error for a request that cannot be sent, or for an answer that breaks the protocol."""
    return InferenceServerException(msg=str(error))


def as_method(
    method: Callable[..., Any], describe: Callable[..., Call[Any]], *, name: str = "", result: object = None
) -> None:
    """Give a method the name, the words and the arguments of the function that describes its call.

    Args:
        method: without a name of its own.
        describe: the function.
        name: another name.
        result: what the method returns, if it is not what the call returns.
    """
    method.__name__ = name or describe.__name__
    method.__qualname__ = f"InferenceServerClient.{method.__name__}"
    method.__doc__ = method.__doc__ or describe.__doc__
    signature = inspect.signature(describe, eval_str=True)
    arguments = signature.parameters.values()
    returned = result or get_args(signature.return_annotation)[0]
    method.__annotations__ = {argument.name: argument.annotation for argument in arguments} | {"return": returned}
    vars(method)["__signature__"] = signature.replace(parameters=[_SELF, *arguments], return_annotation=returned)
