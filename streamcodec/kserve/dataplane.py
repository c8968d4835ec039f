"""Data plane: KServe's own, which receives the requests of our middleware itself, and encodes their answers.

KServe's endpoints call it for each request. Requests that are not binary inference, and all of gRPC, go on to KServe's
code as they are. KServe pickles its data plane for each worker process. Ours is made anew there, with the middleware of
that process.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from kserve import InferRequest, InferResponse, ModelRepository, ModelServer, model_server
from kserve.protocol.dataplane import DataPlane

from streamcodec.asgi.app import Receive, Scope, Send
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD
from streamcodec.kserve.batching import BusyError, batch_of
from streamcodec.kserve.call import CURRENT, MARK, BrokenOffError, KserveCall, KserveIntake, RefusedError
from streamcodec.kserve.client import replace_client
from streamcodec.runtime.memory.available import default_budget
from streamcodec.runtime.options import ServerOptions
from streamcodec.service.models.documents import configuration
from streamcodec.service.service import MAX_POOL_BYTES

logger: Final = logging.getLogger(__name__)

_INFERENCE: Final = re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/infer")
_HEADER_LENGTH: Final = HEADER_LENGTH_FIELD.lower().encode()
_CLOUD_EVENT: Final = b"ce-"
_CLOUD_EVENT_TYPE: Final = b"application/cloudevents"

_App = Callable[[Scope, Receive, Send], Awaitable[None]]


class _DataPlane(DataPlane):  # type: ignore[misc]  # KServe has no types
    """A data plane for the requests of `Middleware`, and for all others as KServe's."""

    def __init__(self, models: ModelRepository, *settings: Any) -> None:  # noqa: ANN401 - those of `install_here`
        """Serve KServe's models."""
        super().__init__(models)
        self._settings = settings

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a worker process install its own."""
        return install_here, (self.model_registry, *self._settings)

    def decode(self, body: Any, *arguments: Any, **named: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401 - KServe's
        """Return the call in the place of a request whose body has not been read; `infer` receives it."""
        call = CURRENT.get()
        if call is None or not call.take():
            decoded: tuple[Any, dict[str, Any]] = super().decode(body, *arguments, **named)
            return decoded
        return call, {}

    async def configuration(self, model_name: str) -> Response:
        """Answer what Triton answers about a batched model; KServe has no such page."""
        model = batch_of(self.get_model_from_registry(model_name))
        if model is None:
            return JSONResponse({"detail": "Not Found"}, status_code=404)
        return JSONResponse(configuration(model))

    async def infer(
        self,
        model_name: str,
        request: KserveCall | InferRequest | dict[str, Any],
        headers: dict[str, str] | None = None,
    ) -> tuple[Any, dict[str, str]]:
        """Have a model called, as soon as its request has arrived."""
        call = request if isinstance(request, KserveCall) else None
        if call is not None:
            request = await call.arrive(model_name)
        response, fields = await super().infer(model_name, request, headers)
        if call is not None:
            call.response = response
        return response, fields

    def encode(self, model_name: str, response: Any, *arguments: Any, **named: Any) -> tuple[Any, dict[str, str]]:  # noqa: ANN401 - KServe's
        """Leave the answer of our call to it: KServe then sends nothing but the status and the fields."""
        call = CURRENT.get()
        if call is None or response is not call.response or not isinstance(response, InferResponse):
            encoded: tuple[Any, dict[str, str]] = super().encode(model_name, response, *arguments, **named)
            return encoded
        call.encode(response)
        return b"", {MARK: ""}


class Middleware:
    """Receives the binary inference requests of KServe's application, and lets everything else pass."""

    def __init__(self, app: _App, intake: KserveIntake) -> None:
        """Stand before an application."""
        self._app = app
        self._intake = intake

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not is_binary_inference(scope):
            await self._app(scope, receive, send)
            return
        call = KserveCall(self._intake, scope, receive, send)
        token = CURRENT.set(call)
        try:
            await self._app(scope, call.receive, call.send)
            await call.answer()
        except BrokenOffError as error:
            logger.debug("answer broken off: %s", error)  # KServe's server closes the connection
        finally:
            CURRENT.reset(token)
            call.end()


def is_binary_inference(scope: Scope) -> bool:
    """Whether a request is V2 inference with the length of a JSON header. CloudEvents stay KServe's."""
    if scope["type"] != "http" or scope["method"] != "POST" or not _INFERENCE.fullmatch(scope["path"]):
        return False
    fields = scope["headers"]
    return any(name == _HEADER_LENGTH for name, _ in fields) and not any(
        name.startswith(_CLOUD_EVENT) or value.startswith(_CLOUD_EVENT_TYPE) for name, value in fields
    )


def install_here(models: ModelRepository, options: ServerOptions, limits: Limits, max_pool_bytes: int) -> DataPlane:
    """Add the middleware to the application of this process, and our client; for the arguments see `install`."""
    app = model_server.app
    app.add_middleware(Middleware, intake=KserveIntake(options, limits, max_pool_bytes))
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(BusyError, _busy)
    plane = _DataPlane(models, options, limits, max_pool_bytes)
    app.add_api_route("/v2/models/{model_name}/config", plane.configuration, methods=["GET"], tags=["V2"])
    replace_client()
    return plane


async def _refused(_: Request, __: RefusedError) -> Response:
    """Leave the answer to the call."""
    return Response(headers={MARK: ""})


async def _busy(_: Request, error: BusyError) -> Response:
    """Answer as KServe does where a model is not ready, and say when to come back."""
    return JSONResponse({"error": str(error)}, status_code=503, headers={"Retry-After": "1"})


def install(
    server: ModelServer,
    options: ServerOptions | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    max_pool_bytes: int = MAX_POOL_BYTES,
) -> None:
    """Have a KServe ModelServer receive binary V2 requests tensor by tensor, in bounded memory.

    Its transformers and explainers call with our `InferenceRESTClient`.

    Call it before `server.start(models)`. Models, hooks, routes, errors, metrics, gRPC and everything but binary V2
    inference over REST stay as they are. With `workers > 1`, each worker process installs it for itself.

    Args:
        server: not yet started, with the data plane that KServe gives it.
        options: bounds on memory and time, for each worker process. Options about connections, heads and threads have
            no effect. By default all workers together may use half of the memory that there is.
        limits: bound every request.
        max_pool_bytes: the most idle memory that each process keeps for the next tensors.

    Raises:
        LocalProtocolError: the server has another data plane already, or `max_pool_bytes` is negative.
    """
    if type(server.dataplane) is not DataPlane:
        msg = f"the server has a {type(server.dataplane).__qualname__} already, in the place of KServe's data plane"
        raise LocalProtocolError(msg)
    if options is None:
        options = ServerOptions(max_memory_bytes=max(1, default_budget() // server.workers))
    server.dataplane = install_here(server.dataplane.model_registry, options, limits, max_pool_bytes)
