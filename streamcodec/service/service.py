"""Service: the V2 inference service, sans-IO. From a request's head to a reply, or to an inference that will make one.

It knows models and routes, and HTTP only as heads and replies. Transports, threads and time are the server's.
"""

from __future__ import annotations

from typing import Any

from streamcodec import __version__
from streamcodec.core.errors import ErrorCode, RemoteProtocolError, shown
from streamcodec.core.jsondata import NonFiniteOutput
from streamcodec.core.limits import DEFAULT_LIMITS, Limits
from streamcodec.http.messages import RequestHead
from streamcodec.service.inference import Inference
from streamcodec.service.models import Model, ModelRegistry, TensorMetadata
from streamcodec.service.replies import Reply, error_reply, json_reply, unavailable_reply
from streamcodec.service.routes import Resource, Route, find_route

_EXTENSIONS = ("binary_tensor_data",)


class Service:
    """Answers requests of the V2 protocol for the models of a registry.

    Attributes:
        models: the models; more may be added at any time.
        limits: of every request.
        is_ready: what readiness checks are told; a server that shuts down sets it to False.
    """

    def __init__(
        self,
        models: ModelRegistry,
        *,
        limits: Limits = DEFAULT_LIMITS,
        nonfinite: NonFiniteOutput = NonFiniteOutput.LITERAL,
    ) -> None:
        """Serve these models.

        Args:
            models: what is served.
            limits: caps on every request.
            nonfinite: how NaN and the infinities are written in JSON outputs.
        """
        self.models = models
        self.limits = limits
        self.is_ready = True
        self._nonfinite = nonfinite

    def begin(self, head: RequestHead) -> Reply | Inference:
        """Decide on a request by its head.

        Returns:
            An `Inference` if its body is wanted, else the reply. A body that nobody wants need not be read.
        """
        try:
            route = find_route(head.target)
            methods = route.resource.methods
            if head.method not in methods:
                error = _not_allowed(head.method, methods)
                return error_reply(error, headers=[("Allow", ", ".join(methods))])
            if route.model:
                return self._model(route, self.models.find(route.model, route.version), head)
            return self._server(route.resource)
        except RemoteProtocolError as error:
            return error_reply(error)

    def _server(self, resource: Resource) -> Reply:
        match resource:
            case Resource.SERVER_LIVE:
                return json_reply({"live": True})
            case Resource.SERVER_READY if self.is_ready:
                return json_reply({"ready": True})
            case Resource.SERVER_READY:
                return unavailable_reply("the server is shutting down", retry_after=1)
            case _:
                return json_reply({"name": "streamcodec", "version": __version__, "extensions": _EXTENSIONS})

    def _model(self, route: Route, model: Model, head: RequestHead) -> Reply | Inference:
        match route.resource:
            case Resource.MODEL_READY:
                return json_reply({"name": model.name, "ready": True})
            case Resource.MODEL_INFER:
                return Inference(model, head, version=route.version, limits=self.limits, nonfinite=self._nonfinite)
            case _:
                return json_reply(_metadata(model))


def _metadata(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "versions": model.versions,
        "platform": model.platform,
        "inputs": [_tensor_metadata(tensor) for tensor in model.inputs or ()],
        "outputs": [_tensor_metadata(tensor) for tensor in model.outputs or ()],
    }


def _tensor_metadata(tensor: TensorMetadata) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}


def _not_allowed(method: str, methods: tuple[str, ...]) -> RemoteProtocolError:
    msg = f"this route answers {' and '.join(methods)}, not {shown(method)}"
    return RemoteProtocolError(msg, code=ErrorCode.METHOD_NOT_ALLOWED, status_hint=405)
