"""Service: the V2 inference service, sans-IO. From a request's head to a reply, or to an inference that will make one.

It knows models and routes, and HTTP only as heads and replies. Transports, threads and time are the server's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streamcodec import __version__
from streamcodec.engine.errors import ErrorCode, MessageError, RemoteProtocolError, shown
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.placement import Place, new_array
from streamcodec.engine.pool import Pool
from streamcodec.engine.record import replaced
from streamcodec.formats.v2.header import parse_request_header
from streamcodec.formats.v2.headercache import HeaderCache
from streamcodec.formats.v2.jsonoutput import NonFiniteOutput
from streamcodec.http.messages import RequestHead
from streamcodec.service import documents
from streamcodec.service.cors import CorsPolicy
from streamcodec.service.extensions import CLASSIFICATION
from streamcodec.service.hosts import HostPolicy
from streamcodec.service.inference import Inference, ResolvedHead
from streamcodec.service.listing import Listing
from streamcodec.service.models import Model
from streamcodec.service.placing import guarded
from streamcodec.service.registry import ModelRegistry
from streamcodec.service.replies import Reply, error_reply, json_reply, unavailable_reply
from streamcodec.service.routes import STATISTICS_NAME, Resource, Route, find_route

_EXTENSIONS: Final = ("binary_tensor_data", "model_configuration", "statistics")

MAX_POOL_BYTES: Final = 256 << 20
"""Kept by default for the next tensors: a few large ones. More would only make a server that rests look larger."""


class Service:
    """Answers requests of the V2 protocol for the models of a registry.

    Attributes:
        models: the models; they may be added, removed and replaced at any time.
        limits: of every request.
        is_ready: what readiness checks are told; a server that shuts down sets it to False.
        pool: memory of tensors that is used again; None if there is none. A server counts what is idle of it in its
            budget, and gives that back before a request has to wait; so a pool belongs to one server.
    """

    def __init__(
        self,
        models: ModelRegistry,
        *,
        limits: Limits = DEFAULT_LIMITS,
        place: Place | None = None,
        max_pool_bytes: int = MAX_POOL_BYTES,
        nonfinite: NonFiniteOutput = NonFiniteOutput.LITERAL,
        allow_headerless: bool = True,
        cors_origins: Iterable[str] = (),
        allowed_hosts: Iterable[str] = (),
        compresses: bool = False,
        classifies: bool = False,
        decompresses: bool = True,
    ) -> None:
        """Serve these models.

        Args:
            models: what is served.
            limits: caps on every request.
            place: whose memory the tensors of requests go to; by default that of `pool`. A model that takes windows
                decides for itself.
            max_pool_bytes: what `pool` keeps at most while nobody uses it; 0 for new memory each time, which is slower
                and leaves nothing behind. Without effect where `place` is given.
            nonfinite: how NaN and the infinities are written in JSON outputs.
            allow_headerless: whether requests may have binary tensors without `Inference-Header-Content-Length`, as
                some clients send them; see `request_decoder`.
            cors_origins: whose pages may call this service from a browser, as `https://app.example`; `*` for all.
                None of them may by default, and none of them ever with credentials.
            allowed_hosts: by which names the service may be called, as `localhost` or `[::1]`, with a port or in any;
                requests for others get 421. Keeps pages out that a browser believes to be of this server (DNS
                rebinding). Every name is allowed by default, since a proxy in front may pass on any.
            compresses: whether inference responses are compressed for clients whose `Accept-Encoding` prefers that.
                Costs far more time than it saves on a fast network, and some clients ask without meaning it.
            classifies: whether outputs can be asked for as classes: the K highest values with index and label, for
                `{"classification": K}` in the parameters of a requested output, as with Triton. Else that is refused.
            decompresses: whether requests may be compressed. They cost a thread's time, up to a thousand times as much
                as their bytes say; without this they are refused by their heads, with status 415.

        Raises:
            LocalProtocolError: one of `cors_origins` is no origin, one of `allowed_hosts` no host, or `max_pool_bytes`
                is negative.
        """
        self.models = models
        self.limits = limits
        self.pool: Pool | None = Pool(max_idle_bytes=max_pool_bytes) if place is None and max_pool_bytes else None
        self._place = _place_in(self.pool) if place is None else guarded(place)
        self._headers = HeaderCache(parse_request_header, limits)
        self.is_ready = True
        self._nonfinite = nonfinite
        self._allow_headerless = allow_headerless
        self._compresses = compresses
        self._classifies = classifies
        self._decompresses = decompresses
        self._cors = CorsPolicy.of(cors_origins)
        self._hosts = HostPolicy.of(allowed_hosts)
        varying = [("Accept-Encoding", compresses), ("Origin", self._cors.varies)]
        self._vary = ", ".join(name for name, varies in varying if varies)
        self._adds_fields = bool(self._vary or self._cors.origins)

    def begin(
        self, head: RequestHead, *, pause_after_header: bool = False, paced: bool = False
    ) -> Reply | Inference | Listing:
        """Decide on a request by its head.

        Args:
            head: of the request.
            pause_after_header: whether the decoder is paused after a JSON header by which it first becomes known how
                much memory the request takes (`Inference.memory_bytes`); see `request_decoder`.
            paced: whether the decoder does its work in small pieces, each when it is asked to; see `Decoder.work`.

        Returns:
            If its body is wanted an `Inference`, or a `Listing`, which has the same `decoder`, `receive` and `run`.
            Else the reply: a body that nobody wants need not be read.
        """
        outcome = self.open(head)
        if isinstance(outcome, ResolvedHead):
            return outcome.begin(pause_after_header=pause_after_header, paced=paced)
        return outcome

    def open(self, head: RequestHead) -> Reply | ResolvedHead | Listing:
        """Decide on a head, for one request or for many that begin with it.

        Returns:
            A `ResolvedHead` if it begins an inference request; it stays true until the registry has another
            `generation`. A `Listing` for this one request if it asks for the index in a body. Else the reply, which may
            be another one next time.
        """
        try:
            self._hosts.check(head)
            route = find_route(head.target)
            methods = route.resource.methods
            if (answer := self._cors.preflight(head, methods)) is not None:
                return answer
            if head.method not in methods:
                error = _not_allowed(head.method, methods)
                return error_reply(error, headers=[("Allow", ", ".join(methods))])
            if route.model:
                return self._model(route, self.models.find(route.model, route.version), head)
            if route.resource is Resource.STATISTICS and STATISTICS_NAME in self.models:
                return json_reply(documents.metadata(self.models.find(STATISTICS_NAME, None)))
            return self._server(route.resource, head)
        except MessageError as error:
            return error_reply(error)

    def finish(self, reply: Reply, head: RequestHead | None) -> Reply:
        """Add the fields that every reply of this service has, whoever made it.

        A server calls this on each reply right before it is sent, also on those that are none of `begin`'s or
        `Inference.run`'s: without these fields a browser shows no page what went wrong. Where neither CORS nor
        compression is switched on, there is nothing to add.

        Args:
            reply: to be sent.
            head: of the request that is answered; None if it could not be read.
        """
        if not self._adds_fields:
            return reply
        fields = self._cors.fields(head)
        if self._vary:
            fields.append(("Vary", self._vary))
        return replaced(reply, headers=[*reply.headers, *fields]) if fields else reply

    def _server(self, resource: Resource, head: RequestHead) -> Reply | Listing:
        match resource:
            case Resource.SERVER_LIVE:
                return json_reply({"live": True})
            case Resource.SERVER_READY:
                return self._readiness()
            case Resource.MODELS:
                return json_reply(documents.names(self.models))
            case Resource.INDEX:
                return self._index(head)
            case Resource.STATISTICS:
                return json_reply(documents.statistics(self.models.offers))
            case _:
                extensions = [*_EXTENSIONS, CLASSIFICATION] if self._classifies else _EXTENSIONS
                return json_reply({"name": "streamcodec", "version": __version__, "extensions": extensions})

    def _index(self, head: RequestHead) -> Reply | Listing:
        if head.content_length == 0:
            return json_reply(documents.index(self.models))
        if not self._decompresses and _is_compressed(head):
            return _uncompressed_only()
        return Listing(self.models, self.limits)

    def _readiness(self) -> Reply:
        """Answer whether the server is ready: specification, "if all the models are ready for inferencing"."""
        if not self.is_ready:
            return unavailable_reply("the server is shutting down", retry_after=1)
        waiting = next((model for model in self.models if not model.is_ready), None)
        return json_reply({"ready": True}) if waiting is None else _not_ready(waiting)

    def _model(self, route: Route, model: Model, head: RequestHead) -> Reply | ResolvedHead:
        if route.resource not in {Resource.MODEL_INFER, Resource.MODEL_READY}:
            return json_reply(self._document(route, model))
        if not model.is_ready:
            return _not_ready(model)
        if route.resource is Resource.MODEL_READY:
            return json_reply({"name": model.name, "ready": True})
        if not self._decompresses and _is_compressed(head):
            return _uncompressed_only()
        return ResolvedHead(
            model,
            head,
            version=route.version,
            headers=self._headers,
            place=self._place,
            nonfinite=self._nonfinite,
            allow_headerless=self._allow_headerless,
            compresses=self._compresses,
            classifies=self._classifies,
        )

    def _document(self, route: Route, model: Model) -> documents.Document:
        match route.resource:
            case Resource.MODEL_CONFIGURATION:
                return documents.configuration(model)
            case Resource.MODEL_STATISTICS:
                offers = [offer for offer in self.models.offers if offer.model is model]
                return documents.statistics(offers, route.version)
            case _:
                return documents.metadata(model)


def _place_in(pool: Pool | None) -> Place:
    return new_array if pool is None else lambda _: pool


def _not_ready(model: Model) -> Reply:
    return unavailable_reply(f"model {shown(model.name)} is not ready", retry_after=1)


def _is_compressed(head: RequestHead) -> bool:
    try:
        return head.fields.encoding_of(head.content_length) is not None
    except MessageError:  # by something else
        return True


def _uncompressed_only() -> Reply:
    msg = "this server takes no compressed requests"
    error = RemoteProtocolError(msg, code=ErrorCode.UNSUPPORTED_ENCODING, status_hint=415)
    accepted = [("Accept-Encoding", "identity")]
    return json_reply({"error": msg}, status=error.status_hint, headers=accepted, refusal=error)


def _not_allowed(method: str, methods: tuple[str, ...]) -> RemoteProtocolError:
    msg = f"this route answers {' and '.join(methods)}, not {shown(method)}"
    return RemoteProtocolError(msg, code=ErrorCode.METHOD_NOT_ALLOWED, status_hint=405)
