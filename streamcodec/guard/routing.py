"""Routing: which requests are inferences, and what becomes of a request whose path only resembles one. Sans-IO.

An inference must not get past its checks by another spelling of its path, which the server behind might take for the
same: `/v2/models/m/%69nfer`, `/v2//models/m/infer`, `/v2/models/m/infer/`. So a request with a body is refused if its
path, decoded as often as anybody might, has a segment `infer` and is not the path of an inference as the protocol
writes it.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.http.messages import RequestHead
from streamcodec.service.routes import Resource, Route, find_route, path_of

_MOST_DECODINGS: Final = 4
_SEPARATORS: Final = re.compile(r"[/\\;?#]")
_INFER: Final = "infer"


def is_inference(head: RequestHead) -> bool:
    """Return whether a request is an inference, whose body is checked.

    Raises:
        RemoteProtocolError: `not-found`: it may be one or not; `method-not-allowed`, or `invalid-http`.
    """
    route = _route(head.target)
    if route is not None and route.resource is Resource.MODEL_INFER:
        if head.method != "POST":
            msg = f"{head.method} is not allowed here; use POST"
            raise RemoteProtocolError(msg, code=ErrorCode.METHOD_NOT_ALLOWED, status_hint=405)
        return True
    if (head.content_length != 0 or head.method not in {"GET", "HEAD", "OPTIONS"}) and _resembles(head.target):
        msg = "this path resembles that of an inference; write it as /v2/models/NAME/infer"
        raise RemoteProtocolError(msg, code=ErrorCode.NOT_FOUND, status_hint=404)
    return False


def origin_form(target: str, prefix: str) -> str:
    """Return the target for the server behind: path and query, after the prefix of its URL."""
    if target == "*":
        return target
    if not target.startswith("/"):
        parts = urlsplit(target)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return prefix + target


def _route(target: str) -> Route | None:
    """Return the route in the V2 protocol; None if it is none.

    Raises:
        RemoteProtocolError: `invalid-http`: the target cannot be decoded.
    """
    try:
        return find_route(target)
    except RemoteProtocolError as error:
        if error.code is ErrorCode.NOT_FOUND:
            return None
        raise


def _resembles(target: str) -> bool:
    path = path_of(target)
    for _ in range(_MOST_DECODINGS):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    return _INFER in _SEPARATORS.split(path.lower()) or "%" in path
