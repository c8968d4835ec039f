"""Scope: turns the ASGI scope of a request into the head of a request (ASGI 3.0, "HTTP Connection Scope")."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol, cast
from urllib.parse import quote

from streamcodec.embedding.endpoint import READER, already_read
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.http.bodies.fed import fed_head
from streamcodec.http.heads.messages import RequestHead

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class StarletteRequest(Protocol):
    """A request of Starlette or FastAPI."""

    @property
    def scope(self) -> Scope:
        """As the server has given it."""
        ...

    @property
    def receive(self) -> Receive:
        """As the server has given it."""
        ...


def head_of(scope: Scope, limits: Limits) -> RequestHead:
    """Return the head of a request; its target begins below the path at which the application is mounted.

    Raises:
        MessageError: a connection of the bundled server would refuse this head too.
    """
    version: str = scope.get("http_version", "1.1")
    return fed_head(scope["method"], _target(scope), scope["headers"], http_version=version, limits=limits)


def client_of(scope: Scope) -> str:
    """Return address and port of the client; empty if the server does not know them."""
    host, port, *_ = scope.get("client") or ("", None)
    if not host or port is None:
        return str(host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _target(scope: Scope) -> str:
    """Return path and query, still percent-encoded."""
    path: str = scope["path"]
    raw: bytes = scope.get("raw_path") or quote(path).encode("ascii")
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(root + "/")):
        # The path is split into segments, because a character may be percent-encoded in only one of the two.
        segments = raw.split(b"/")[1 + root.count("/") :]
        raw = b"/" + b"/".join(segments)
    query: bytes = scope.get("query_string", b"")
    return (raw + b"?" * bool(query) + query).decode("latin-1")


def unread(scope: Scope | StarletteRequest, receive: Receive | None) -> tuple[Scope, Receive]:
    """Return scope and `receive` of a request, of which one reader reads the body from now on.

    A server that is asked for more of a body than there is waits for the client to leave. Nothing that it gives tells
    whether the body has been read; Starlette's own request does.

    Raises:
        LocalProtocolError: the body has been read before, as far as can be seen; or there is no `receive`.
    """
    if receive is None:
        if not hasattr(scope, "receive"):
            msg = "receive_request() needs the scope and `receive`, or the request of Starlette or FastAPI"
            raise LocalProtocolError(msg)
        if getattr(scope, "_stream_consumed", False) or hasattr(scope, "_body"):
            raise already_read("`request.body()` or the like, or for a parameter that FastAPI takes from it")
        request = cast("StarletteRequest", scope)
        scope, receive = request.scope, request.receive
    scope = cast("Scope", scope)
    source = getattr(receive, "__self__", receive)
    if scope.get(READER, _nobody)() is source:
        raise already_read("an earlier `receive_request()`")
    scope[READER] = _reference(source)
    return scope, receive


def _nobody() -> None:
    """Stand for the reader of a body that nobody has read."""


def _reference(source: object) -> Callable[[], object]:
    """Refer to what a scope belongs to, which may refer to the scope: without a cycle, which would keep its memory."""
    try:
        return weakref.ref(source)
    except TypeError:  # granian's, which is not of Python and does not
        return lambda: source
