"""Routes: maps a request target to a resource of the V2 service.

Segments are split before they are percent-decoded, so a model's name may contain any character, even a slash. The query
is ignored.

There are also routes that clients of Triton and KServe call first. `/v2/models/stats` has two meanings: the statistics
of all models, or the metadata of a model named `stats`. If there is such a model, its metadata are answered. Statistics
can then be requested model by model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from urllib.parse import unquote, urlsplit

from streamcodec.engine.cache import Cache
from streamcodec.engine.errors import ErrorCode, RemoteProtocolError

URGENT_BYTES: Final = 1 << 10
HEALTH: Final = "/v2/health/"
"""Beginning of the paths of health checks. Any request below it is answered quickly, unless it has a body."""
_HEALTH_BEGINNING: Final = f"GET {HEALTH}".encode()


class Resource(Enum):
    """The resources of the V2 protocol, and of the extensions that are offered."""

    SERVER_METADATA = auto()
    SERVER_LIVE = auto()
    SERVER_READY = auto()
    MODEL_METADATA = auto()
    MODEL_READY = auto()
    MODEL_INFER = auto()
    MODEL_CONFIGURATION = auto()
    MODEL_STATISTICS = auto()
    MODELS = auto()
    STATISTICS = auto()
    INDEX = auto()

    @property
    def methods(self) -> tuple[str, ...]:
        """The HTTP methods of the resource."""
        return ("POST",) if self in {Resource.MODEL_INFER, Resource.INDEX} else ("GET", "HEAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A resource, and the model it belongs to."""

    resource: Resource
    """The requested resource."""
    model: str = ""
    """Name of the model; empty for the server's own resources."""
    version: str | None = None
    """Version of the model, if the URL names one."""

    @property
    def template(self) -> str:
        """The path with `{model}` and `{version}` instead of names, for metrics and traces."""
        path = _TEMPLATES[self.resource]
        return path if self.version is None else path.replace("{model}", "{model}/versions/{version}")


_SERVER = {
    (): Resource.SERVER_METADATA,
    ("health", "live"): Resource.SERVER_LIVE,
    ("health", "ready"): Resource.SERVER_READY,
    ("models",): Resource.MODELS,
    ("models", "stats"): Resource.STATISTICS,
    ("repository", "index"): Resource.INDEX,
}
_MODEL = {
    (): Resource.MODEL_METADATA,
    ("ready",): Resource.MODEL_READY,
    ("infer",): Resource.MODEL_INFER,
    ("config",): Resource.MODEL_CONFIGURATION,
    ("stats",): Resource.MODEL_STATISTICS,
}

_TEMPLATES = {resource: "/".join(("/v2", *rest)) for rest, resource in _SERVER.items()} | {
    resource: "/".join(("/v2/models/{model}", *rest)) for rest, resource in _MODEL.items()
}

_HEALTH: Final = {Resource.SERVER_LIVE, Resource.SERVER_READY}

STATISTICS_NAME: Final = "stats"
"""The name of the model whose URL is also the URL of the statistics of all models."""

_MOST_SEGMENTS: Final = 6
"""Of a route: `v2/models/{model}/versions/{version}/infer`."""

_MOST_ESCAPES: Final = 1024
"""Of a path. Each takes some 0.1 us to decode, and who compares paths decodes them several times."""

_known: Final = Cache[str, Route](max_entries=256, max_key_bytes=256)
"""Routes by their exact targets: the same text means the same."""

_NOT_OFFERED: Final = {
    "repository": "models are loaded and unloaded by the program that runs this server, and not by its clients",
    "systemsharedmemory": "this server shares no memory with its clients; tensors go through the body",
    "cudasharedmemory": "this server shares no memory with its clients; tensors go through the body",
    "trace": "this server has no tracing that clients can change",
    "logging": "this server has no logging that clients can change",
}
"""Extensions of Triton that are not offered: the first segment of their routes, and the reason."""

UPLOADS: Final = "/v2/uploads/"
"""Path of the uploads that can be resumed. The last segment is a secret: who knows it has the upload."""

_SHOWN_CHARS: Final = 4


def without_secret(target: str) -> str:
    """Return a request target as it may be logged: the id of an upload is cut."""
    before, path, rest = target.partition(UPLOADS)
    return f"{before}{path}{rest[:_SHOWN_CHARS]}..." if rest else target


def find_route(target: str) -> Route:
    """Return the route of a request target.

    Args:
        target: in origin form (`/v2/models/m`) or absolute form (`http://host/v2/models/m`).

    Raises:
        RemoteProtocolError: `not-found`, status 404; `invalid-http` if the percent-encoding is not UTF-8, or
            (status 414) there are more than 1,024 escapes.
    """
    return _known.get(target) or _find_route(target)


def _find_route(target: str) -> Route:
    try:
        path = path_of(target)
        check_escapes(path)
        # A path of more segments is none; all that is behind the last one is taken together.
        parts = path.split("/", 1 + _MOST_SEGMENTS)[1:]
        segments = tuple([unquote(part, errors="strict") for part in parts] if "%" in path else parts)
    except ValueError:
        msg = "the request target cannot be decoded"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HTTP) from None
    route = _match(segments)
    if route is None:
        msg = "there is no such route in the V2 protocol"
        if len(segments) > 1 and segments[0] == "v2" and (reason := _NOT_OFFERED.get(segments[1])) is not None:
            msg += f"; {reason}"
        raise RemoteProtocolError(msg, code=ErrorCode.NOT_FOUND, status_hint=404)
    _known.put(target, route)
    return route


def check_escapes(path: str) -> None:
    """Refuse a path that takes long to decode, before it is decoded.

    Raises:
        RemoteProtocolError: `invalid-http`, status 414.
    """
    if path.count("%") > _MOST_ESCAPES:
        msg = f"the path has more than {_MOST_ESCAPES} percent escapes"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HTTP, status_hint=414)


def begins_health_check(data: bytes) -> bool:
    """Return whether a request may turn out to be a short question whether the server is live or ready.

    Args:
        data: as much as has come, up to `URGENT_BYTES`. A longer request is not urgent, because its head takes long.
    """
    return bool(data) and data.startswith(_HEALTH_BEGINNING[: len(data)]) and len(data) < URGENT_BYTES


def is_health_check(method: str, target: str) -> bool:
    """Return whether a request asks whether the server is live or ready."""
    try:
        resource = find_route(target).resource
    except RemoteProtocolError:
        return False
    return resource in _HEALTH and method in resource.methods


def path_of(target: str) -> str:
    """Return the path of a request target as it came, without the query; empty if it has none.

    Raises:
        ValueError: the target is in absolute form, and is no URL.
    """
    if target.startswith("/"):
        return target.partition("?")[0]
    parts = urlsplit(target)
    return parts.path if parts.scheme in {"http", "https"} else ""


def without_origin(path: str) -> str:
    """Return the path of a target in absolute form, without its scheme and host; any other path as it is.

    It is for services that are mounted under a prefix: RFC 9112, 3.2.2 has servers accept this form.
    """
    if path.startswith("/") or "://" not in path:
        return path
    _, _, path = path.partition("://")
    return path[len(path.partition("/")[0]) :]


def _match(segments: tuple[str, ...]) -> Route | None:
    match segments:
        case ("v2", "models", model, "versions", version, *rest) if model and version and tuple(rest) in _MODEL:
            return Route(resource=_MODEL[tuple(rest)], model=model, version=version)
        case ("v2", *rest) if tuple(rest) in _SERVER:
            return Route(resource=_SERVER[tuple(rest)])
        case ("v2", "models", model, *rest) if model and tuple(rest) in _MODEL:
            return Route(resource=_MODEL[tuple(rest)], model=model)
        case _:
            return None
