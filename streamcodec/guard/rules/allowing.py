"""Allowing: the routes that a guard passes on: those of the V2 protocol, and by name those of extensions. Sans-IO.

The list is closed. A path that is none of these is not passed on, because nobody here can say what it would do.
Reading the state of the server and of its models is harmless, and so are its routes for that. What the extensions can
do is the reason that each of them has to be allowed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from urllib.parse import unquote

from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.service.routes import Resource, find_route


class BodyCheck(Enum):
    """What of a body is checked."""

    MESSAGE = auto()
    """It is the message of an inference."""
    INPUTS = auto()
    """It is a JSON object with inputs of a model."""
    DOCUMENT = auto()
    """It is a JSON object, or nothing."""
    NOTHING = auto()


ALL: Final = "all"
"""The name that allows every route, also those that are not known here."""
CORS: Final = "cors"
"""The name that allows what browsers ask before a request (OPTIONS), for all routes that are allowed."""

ALLOWANCES: Final = {
    "generate": "Triton's generate and generate_stream: text in JSON, checked for depth, size and types",
    "repository": "the index of models, and loading and unloading them: who may load one may run code in Triton",
    "trace": "reading and changing Triton's tracing, which writes files",
    "logging": "reading and changing Triton's log, which writes files",
    "shared-memory": "registering memory of the server's machine; tensors in it are refused all the same",
    "v1": "KServe's V1 protocol (/v1/models/NAME:predict), whose requests are not checked, and GET /",
    "openai": "KServe's routes for OpenAI's clients (/openai/...), whose requests are not checked",
    "sagemaker": "Triton's routes for Amazon SageMaker (/ping, /invocations, /models), not checked",
    "docs": "KServe's pages about itself (/docs, /redoc, /openapi.json)",
    "metrics": "GET /metrics of the server behind; --metrics are the guard's own",
    CORS: "OPTIONS, which browsers ask first, for all routes that are allowed",
    ALL: "all of these, and every other path, whose requests are not checked",
}
"""What may be allowed: names, and what they stand for."""

_READ: Final = ("GET", "HEAD")
_WRITE: Final = ("POST",)
_BOTH: Final = (*_READ, *_WRITE)
_MODEL: Final = "/v2/models/[^/]+(?:/versions/[^/]+)?"
_REPOSITORY: Final = "/v2/repository(?:/[^/]+)?"
_MEMORY: Final = "/v2/(?:system|cuda)sharedmemory(?:/region/[^/]+)?"
_INFER: Final = re.compile("[^a-z]*+".join(["", *"infer", ""]))
"""The word with anything but letters within and around it. What is another word is found out at its first letter."""


class MethodError(RemoteProtocolError):
    """The method is not one of the route's.

    Attributes:
        methods: of the route.
    """

    def __init__(self, methods: tuple[str, ...]) -> None:
        """Say which methods there are."""
        message = f"this route takes {', '.join(methods)} through the guard"
        super().__init__(message, code=ErrorCode.METHOD_NOT_ALLOWED, status_hint=405)
        self.methods: tuple[str, ...] = methods


@dataclass(frozen=True, slots=True)
class AllowedRoute:
    """What may pass on a route."""

    methods: tuple[str, ...]
    """Methods of its requests; empty for any."""
    check: BodyCheck
    """What of their bodies is checked."""
    resource: Resource | None = None
    """What they ask for, if that is of the V2 protocol itself."""


_EXTENSIONS: Final = [
    (name, re.compile(pattern), AllowedRoute(methods, check))
    for name, pattern, methods, check in (
        ("generate", f"{_MODEL}/generate(?:_stream)?", _WRITE, BodyCheck.INPUTS),
        ("repository", f"{_REPOSITORY}/index", _WRITE, BodyCheck.DOCUMENT),
        ("repository", f"{_REPOSITORY}/models/[^/]+/(?:load|unload)", _WRITE, BodyCheck.DOCUMENT),
        ("trace", f"(?:/v2|{_MODEL})/trace/setting", _BOTH, BodyCheck.DOCUMENT),
        ("logging", "/v2/logging", _BOTH, BodyCheck.DOCUMENT),
        ("shared-memory", f"{_MEMORY}/status", _READ, BodyCheck.DOCUMENT),
        ("shared-memory", f"{_MEMORY}/(?:register|unregister)", _WRITE, BodyCheck.DOCUMENT),
        ("v1", "/|/v1/models(?:/[^/:]+)?", _READ, BodyCheck.NOTHING),
        ("v1", "/v1/models/[^/]+:(?:predict|explain)", _WRITE, BodyCheck.NOTHING),
        ("openai", "/openai/.+", _BOTH, BodyCheck.NOTHING),
        ("sagemaker", "/ping", _READ, BodyCheck.NOTHING),
        ("sagemaker", "/invocations|/models/[^/]+/invoke", _WRITE, BodyCheck.NOTHING),
        ("sagemaker", "/models(?:/[^/]+)?", (*_BOTH, "DELETE"), BodyCheck.NOTHING),
        ("docs", "/docs(?:/oauth2-redirect)?|/redoc|/openapi[.]json", _READ, BodyCheck.NOTHING),
        ("metrics", "/metrics", _READ, BodyCheck.NOTHING),
    )
]
"""Routes of extensions, by the names that allow them."""

_PROTOCOL: Final = {
    resource: AllowedRoute(
        resource.methods, BodyCheck.MESSAGE if resource is Resource.MODEL_INFER else BodyCheck.NOTHING, resource
    )
    for resource in Resource
    if resource is not Resource.INDEX
}
"""Routes of the V2 protocol. The index of the repository is part of an extension here."""

_ANY: Final = AllowedRoute((), BodyCheck.NOTHING)


class Routes:
    """The routes that one guard passes on."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """Prepare.

        Args:
            allowed: names of `ALLOWANCES`, besides the V2 protocol.

        Raises:
            LocalProtocolError: one of them is none.
        """
        self._allowed = frozenset(allowed)
        for name in sorted(self._allowed - ALLOWANCES.keys()):
            msg = f"{name!r} cannot be allowed; what can is {', '.join(ALLOWANCES)}"
            raise LocalProtocolError(msg)

    def find(self, method: str, path: str, *, has_body: bool) -> AllowedRoute:
        """Return what may pass.

        Args:
            method: of a request.
            path: canonical; see `routing`.
            has_body: whether the request has a body.

        Raises:
            RemoteProtocolError: `not-offered`, status 403: it is of an extension that is not allowed. `not-found`: it
                is none of the known routes. `method-not-allowed`.
        """
        passage = self._passage(path)
        if method == "OPTIONS" and not has_body and self._allows(CORS):
            return _ANY
        if passage.methods and method not in passage.methods:
            raise MethodError(passage.methods)
        if passage is _ANY and (has_body or method not in _READ) and _resembles_inference(path):
            msg = "this path resembles that of an inference; write it as /v2/models/NAME/infer"
            raise RemoteProtocolError(msg, code=ErrorCode.NOT_FOUND, status_hint=404)
        return passage

    def _passage(self, path: str) -> AllowedRoute:
        """Return what may pass on a path."""
        resource = _resource(path)
        if resource in _PROTOCOL:
            return _PROTOCOL[resource]
        for name, pattern, passage in _EXTENSIONS:
            if pattern.fullmatch(path):
                if self._allows(name):
                    return passage
                msg = f"the guard does not pass this on; its operator can allow it: --allow {name}"
                raise RemoteProtocolError(msg, code=ErrorCode.NOT_OFFERED, status_hint=403)
        if ALL in self._allowed:
            return _ANY
        msg = f"the guard knows no such route, and passes on only those that it knows, unless with --allow {ALL}"
        raise RemoteProtocolError(msg, code=ErrorCode.NOT_FOUND, status_hint=404)

    def _allows(self, name: str) -> bool:
        return not self._allowed.isdisjoint({name, ALL})


def _resource(path: str) -> Resource | None:
    """Return the resource of a canonical path; None if it is none of the V2 protocol.

    Raises:
        RemoteProtocolError: `invalid-http`: nobody may say what it is.
    """
    try:
        return find_route(path).resource
    except RemoteProtocolError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise


def _resembles_inference(path: str) -> bool:
    """Return whether a lenient reader might take a canonical path for that of an inference: `/v2/models/m/Infer`."""
    text = unicodedata.normalize("NFKC", unquote(path)).casefold()
    return any(map(_INFER.fullmatch, text.split("/")))
