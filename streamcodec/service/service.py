"""Service: the V2 inference service: from a request's head to a reply, or to an inference that will make one. Sans-IO.

It knows models and routes, and HTTP only as heads and replies. The server is responsible for transports, threads and
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from streamcodec import __version__
from streamcodec.engine.arguments import check_kind
from streamcodec.engine.errors import ErrorCode, LocalProtocolError, MessageError, RemoteProtocolError, shown
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits, checked_limits
from streamcodec.engine.memory.placement import Place, new_array
from streamcodec.engine.memory.pool import Pool
from streamcodec.engine.record import replaced
from streamcodec.formats.v2.header.cache import HeaderCache
from streamcodec.formats.v2.header.parsing import parse_request_header
from streamcodec.formats.v2.json.output import NonFiniteOutput
from streamcodec.http.heads.messages import RequestHead
from streamcodec.service.memory.placing import guarded
from streamcodec.service.models import documents
from streamcodec.service.models.listing import Listing
from streamcodec.service.models.model import Model
from streamcodec.service.models.registry import ModelRegistry
from streamcodec.service.negotiation import CLASSIFICATION
from streamcodec.service.policies import CorsPolicy, HostPolicy
from streamcodec.service.replies import Reply, error_reply, failure_reply, json_reply, unavailable_reply
from streamcodec.service.request.inference import Inference, ResolvedHead
from streamcodec.service.routes import STATISTICS_NAME, Resource, Route, find_route, path_of

_EXTENSIONS: Final = ("binary_tensor_data", "model_configuration")
_STATISTICS: Final = "statistics"

_PAGE_METHODS: Final = ("GET", "HEAD")

MAX_POOL_BYTES: Final = 256 << 20
"""Idle memory that is kept by default for the next tensors: enough for a few large ones. More would only make an idle
server look larger."""


class Service:
    """Answers requests of the V2 protocol for the models of a registry.

    Attributes:
        models: the models; they may be added, removed and replaced at any time.
        limits: of every request.
        is_ready: the answer to readiness checks; a server that shuts down sets it to False.
        has_statistics: whether the statistics of models are offered. A program without a `StatisticsObserver`, where
            they would all be zero, sets it to False.
        pool: reuses the memory of tensors; None if there is none. A server counts its idle memory in its budget, and
            gives it back before a request has to wait. So a pool belongs to one server.
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
            models: the models to serve.
            limits: bound every request.
            place: chooses the memory for the tensors of requests; by default that of `pool`. A model that takes windows
                uses its own.
            max_pool_bytes: the most idle memory that `pool` keeps. 0 allocates new memory each time, which is slower
                and leaves nothing behind. Without effect if `place` is given.
            nonfinite: how NaN and the infinities are written in JSON outputs.
            allow_headerless: whether requests may have binary tensors without `Inference-Header-Content-Length`, as
                some clients send them; see `request_decoder`.
            cors_origins: the origins whose pages may call this service from a browser, as `https://app.example`; `*`
                for all. None by default. Credentials are never allowed.
            allowed_hosts: the names under which the service may be called, as `localhost` or `[::1]`, with a port or
                for any port. Requests for other hosts get status 421. This protects against DNS rebinding. By default
                every name is allowed, because a proxy in front may pass on any.
            compresses: whether inference responses are compressed for clients whose `Accept-Encoding` prefers that. On
                a fast network this costs far more time than it saves, and some clients ask for it without need.
            classifies: whether clients may ask for outputs as classes: the K highest values with index and label, by
                `{"classification": K}` in the parameters of a requested output, as with Triton. If not, such requests
                are refused.
            decompresses: whether requests may be compressed. Decompression occupies a thread for up to a thousand times
                as long as an uncompressed request of the same size. If not, they are refused by their heads, with
                status 415.

        Raises:
            LocalProtocolError: `models` is no registry, an entry of `cors_origins` is not an origin, an entry of
                `allowed_hosts` is not a host, or `max_pool_bytes` is negative.
        """
        check_kind(models, ModelRegistry, "a Service has a ModelRegistry, as ModelRegistry.of([model])")
        self.models = models
        self.limits = checked_limits(limits)
        self.pool = pool = Pool(max_idle_bytes=max_pool_bytes) if place is None and max_pool_bytes else None
        self._place: Place = new_array if pool is None else lambda _: pool
        if place is not None:
            self._place = guarded(place)
        self._is_placed_here = place is None
        self._headers = HeaderCache(parse_request_header, limits)
        self.is_ready = True
        self.has_statistics = True
        self._nonfinite = nonfinite
        self._allow_headerless = allow_headerless
        self._compresses = compresses
        self._classifies = classifies
        self._decompresses = decompresses
        self._cors = CorsPolicy.of(cors_origins)
        self._hosts = HostPolicy.of(allowed_hosts)
        varying = [("Accept-Encoding", compresses), ("Origin", self._cors.varies)]
        self._vary = ", ".join(name for name, varies in varying if varies)
        self.adds_fields: bool = bool(self._vary or self._cors.origins)
        self._pages: dict[str, Callable[[], Reply]] = {}

    def add_page(self, path: str, page: Callable[[], Reply]) -> None:
        """Answer `GET` and `HEAD` for a path outside of the V2 protocol, for example `/metrics`.

        Args:
            path: as it stands in requests, beginning with a slash.
            page: makes the answer. It is called for each request, on the event loop. If it raises, the client gets
                status 500.

        Raises:
            LocalProtocolError: the path has no slash, belongs to the V2 protocol, or already has a page.
        """
        if not path.startswith("/") or f"{path}/".startswith("/v2/") or path in self._pages:
            msg = f"the path of a page begins with / but not with /v2, and has one page only, unlike {path!r}"
            raise LocalProtocolError(msg)
        self._pages[path] = page

    def has_page(self, target: str) -> bool:
        """Tell whether a request target, in origin form, is that of a page (`add_page`)."""
        return bool(self._pages) and target.partition("?")[0] in self._pages

    def begin(
        self, head: RequestHead, *, pause_after_header: bool = False, paced: bool = False
    ) -> Reply | Inference | Listing:
        """Decide on a request by its head.

        Args:
            head: of the request.
            pause_after_header: whether to pause the decoder after the JSON header, if only the header tells how much
                memory the request takes (`Inference.memory_bytes`); see `request_decoder`.
            paced: whether the decoder works in small pieces, one for each call; see `Decoder.work`.

        Returns:
            An `Inference` or a `Listing` if the body is needed; both have `decoder`, `receive` and `run`. Else the
            reply; the body then need not be read.
        """
        outcome = self.open(head)
        if isinstance(outcome, ResolvedHead):
            return outcome.begin(pause_after_header=pause_after_header, paced=paced)
        return outcome

    def open(self, head: RequestHead) -> Reply | ResolvedHead | Listing:
        """Decide on a head, for one request or for many requests with that head.

        Returns:
            A `ResolvedHead` for an inference request. It is valid until the `generation` of the registry changes. A
            `Listing`, for this one request, if the head asks for the index with a body. Else the reply, which may be
            different next time unless it `lasts`.
        """
        try:
            self._hosts.check(head)
            if self._pages and (answer := self._page(head)) is not None:
                return answer
            route = find_route(head.target)
            methods = route.resource.methods
            if head.method not in methods:
                return self._cors.preflight(head, methods) or _not_allowed(head.method, methods)
            if route.model:
                return self._of_model(route, route.model, head)
            if route.resource is Resource.STATISTICS and STATISTICS_NAME in self.models:
                return json_reply(documents.metadata(self.models.find(STATISTICS_NAME, None)))
            return self._server(route.resource, head)
        except MessageError as error:
            return error_reply(error)

    def check_host(self, head: RequestHead) -> None:
        """Refuse a request for another host; `open` does this itself.

        Raises:
            RemoteProtocolError: `misdirected`, status 421; see `allowed_hosts`.
        """
        self._hosts.check(head)

    def finish(self, reply: Reply, head: RequestHead | None) -> Reply:
        """Add the fields that every reply of this service needs.

        A server calls this for each reply right before it is sent, including replies that do not come from `begin` or
        `Inference.run`. Without these fields a browser does not show the error to a page. If neither CORS nor
        compression is switched on, nothing is added.

        Args:
            reply: to be sent.
            head: of the request; None if it could not be read.
        """
        if not self.adds_fields:
            return reply
        fields = self._cors.fields(head)
        if self._vary:
            fields.append(("Vary", self._vary))
        return replaced(reply, headers=[*reply.headers, *fields]) if fields else reply

    def _page(self, head: RequestHead) -> Reply | None:
        """Return the page of a path; None if it has none."""
        try:
            path = path_of(head.target)
        except ValueError:  # which `find_route` refuses
            return None
        page = self._pages.get(path)
        if page is None:
            return None
        if head.method not in _PAGE_METHODS:
            return _not_allowed(head.method, _PAGE_METHODS)
        try:
            return page()
        except Exception as error:  # noqa: BLE001 - a page may raise anything; the server's log has it
            text = f"the page could not be made: {type(error).__name__}"
            return replaced(failure_reply(text, status=500, cause=error), call=f"page {path}")

    def _server(self, resource: Resource, head: RequestHead) -> Reply | Listing:
        match resource:
            case Resource.SERVER_LIVE:
                return _LIVE
            case Resource.SERVER_READY:
                return self._readiness()
            case Resource.MODELS:
                return json_reply(documents.names(self.models))
            case Resource.INDEX:
                return self._index(head)
            case Resource.STATISTICS:
                self._check_statistics()
                return json_reply(documents.statistics(self.models.offers))
            case _:
                extensions = [*_EXTENSIONS, *[_STATISTICS] * self.has_statistics, *[CLASSIFICATION] * self._classifies]
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
        waiting = next((model for model in self.models.loading if not model.is_ready), None)
        return _READY if waiting is None else _not_ready(waiting)

    def _of_model(self, route: Route, name: str, head: RequestHead) -> Reply | ResolvedHead:
        try:
            model = self.models.find(name, route.version)
        except MessageError as error:
            return replaced(error_reply(error), lasts=True)
        if route.resource not in {Resource.MODEL_INFER, Resource.MODEL_READY}:
            reply = json_reply(self._document(route, model))
            return reply if route.resource is Resource.MODEL_STATISTICS else replaced(reply, lasts=True)
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
            is_planned=self._is_placed_here,
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
                self._check_statistics()
                offers = [offer for offer in self.models.offers if offer.model is model]
                return documents.statistics(offers, route.version)
            case _:
                return documents.metadata(model)

    def _check_statistics(self) -> None:
        """Refuse a request for statistics that nobody counts."""
        if not self.has_statistics:
            msg = "this server counts no statistics; its operator can switch them on"
            raise RemoteProtocolError(msg, code=ErrorCode.NOT_OFFERED, status_hint=404)


_LIVE: Final = json_reply({"live": True})
_READY: Final = json_reply({"ready": True})


def _not_ready(model: Model) -> Reply:
    return unavailable_reply(f"model {shown(model.name)} is not ready", retry_after=1)


def _is_compressed(head: RequestHead) -> bool:
    try:
        return head.fields.encoding_of(head.content_length) is not None
    except MessageError:  # an unsupported compression
        return True


def _uncompressed_only() -> Reply:
    msg = "this server takes no compressed requests"
    error = RemoteProtocolError(msg, code=ErrorCode.UNSUPPORTED_ENCODING, status_hint=415)
    accepted = [("Accept-Encoding", "identity")]
    return json_reply({"error": msg}, status=error.status_hint, headers=accepted, refusal=error)


def _not_allowed(method: str, methods: tuple[str, ...]) -> Reply:
    msg = f"this route answers {' and '.join(methods)}, not {shown(method)}"
    error = RemoteProtocolError(msg, code=ErrorCode.METHOD_NOT_ALLOWED, status_hint=405)
    return error_reply(error, headers=[("Allow", ", ".join(methods))])
