"""Scope: turns the ASGI scope of a request into the head of a request (ASGI 3.0, "HTTP Connection Scope")."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote

from streamcodec.engine.limits import Limits
from streamcodec.http.fed import fed_head
from streamcodec.http.messages import RequestHead
from streamcodec.server.knownheads import MEANINGFUL_FIELDS

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def head_of(scope: Scope, limits: Limits) -> RequestHead:
    """Return the head of a request; its target begins below the path at which the application is mounted.

    Raises:
        MessageError: a connection of the bundled server would refuse this head too.
    """
    fields = [(bytes(name), bytes(value)) for name, value in scope["headers"]]
    version: str = scope.get("http_version", "1.1")
    return fed_head(scope["method"], _target(scope), fields, http_version=version, limits=limits)


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


def key_of(scope: Scope) -> bytes:
    """Return everything in a head that the service uses. Heads with equal keys mean the same.

    Fields that mean nothing to the service are left out. A character may be percent-encoded or not, so both forms of
    the path belong to the key.
    """
    fields = [part for field in scope["headers"] if bytes(field[0]) in MEANINGFUL_FIELDS for part in field]
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    first = (scope["method"].encode(), path.encode(), scope.get("raw_path") or b"", root.encode())
    return b"\n".join((*first, scope.get("query_string", b""), scope.get("http_version", "1.1").encode(), *fields))
