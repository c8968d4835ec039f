"""Routes: which resource of the V2 service a request target names.

Segments are split before they are percent-decoded, so a model's name may hold any character, a slash included. The
query is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import unquote, urlsplit

from streamcodec.core.errors import ErrorCode, RemoteProtocolError


class Resource(Enum):
    """The resources of the V2 protocol."""

    SERVER_METADATA = auto()
    SERVER_LIVE = auto()
    SERVER_READY = auto()
    MODEL_METADATA = auto()
    MODEL_READY = auto()
    MODEL_INFER = auto()

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that it answers."""
        return ("POST",) if self is Resource.MODEL_INFER else ("GET", "HEAD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A resource, and the model it belongs to."""

    resource: Resource
    """What is asked for."""
    model: str = ""
    """Name of the model; empty for the server's own resources."""
    version: str | None = None
    """Version of the model, if the URL names one."""


_SERVER = {
    (): Resource.SERVER_METADATA,
    ("health", "live"): Resource.SERVER_LIVE,
    ("health", "ready"): Resource.SERVER_READY,
}
_MODEL = {
    (): Resource.MODEL_METADATA,
    ("ready",): Resource.MODEL_READY,
    ("infer",): Resource.MODEL_INFER,
}


def find_route(target: str) -> Route:
    """Return what a request target names.

    Args:
        target: in origin form (`/v2/models/m`) or absolute form (`http://host/v2/models/m`).

    Raises:
        RemoteProtocolError: `not-found`, status 404; `invalid-http` where the percent-encoding is not of UTF-8.
    """
    try:
        path = target.partition("?")[0] if target.startswith("/") else _absolute(target)
        segments = tuple(unquote(segment, errors="strict") for segment in path.split("/")[1:])
    except ValueError:
        msg = "the request target cannot be decoded"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HTTP) from None
    route = _match(segments)
    if route is None:
        msg = "there is no such route in the V2 protocol"
        raise RemoteProtocolError(msg, code=ErrorCode.NOT_FOUND, status_hint=404)
    return route


def _absolute(target: str) -> str:
    parts = urlsplit(target)
    return parts.path if parts.scheme in {"http", "https"} else ""


def _match(segments: tuple[str, ...]) -> Route | None:
    match segments:
        case ("v2", "models", model, "versions", version, *rest) if model and version and tuple(rest) in _MODEL:
            return Route(resource=_MODEL[tuple(rest)], model=model, version=version)
        case ("v2", "models", model, *rest) if model and tuple(rest) in _MODEL:
            return Route(resource=_MODEL[tuple(rest)], model=model)
        case ("v2", *rest) if tuple(rest) in _SERVER:
            return Route(resource=_SERVER[tuple(rest)])
        case _:
            return None
