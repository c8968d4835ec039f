"""Environ: makes the head of a request from what a WSGI server says of it (PEP 3333).

WSGI hides some parts of a head. Fields of one name are joined by commas; where only one field is allowed, the joined
text is refused as malformed. Servers drop fields with underscores in their names, because these look like fields with
dashes. The path is decoded. Most servers add the path as it was sent, as `RAW_URI` or `REQUEST_URI`. It is used only if
it decodes to the same path, because software between server and application may have changed the decoded path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote_to_bytes

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.http.bodies.fed import fed_head
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.observation import format_address

Environ = dict[str, Any]


class StartResponse(Protocol):
    """Begins an answer."""

    def __call__(self, status: str, headers: list[tuple[str, str]], /) -> Callable[[bytes], object]:
        """Take status and fields. Only old applications use the returned function."""
        ...


_BEFORE: Final = (("CONTENT_TYPE", b"content-type"), ("CONTENT_LENGTH", b"content-length"))
"""Variables of fields that have no prefix."""
_BEHIND_PREFIX: Final = {"HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE"}
"""Variables that some servers give in addition."""


def head_of(environ: Environ, limits: Limits) -> RequestHead:
    """Return the head of a request; its target begins below the path that the application is mounted at.

    Raises:
        MessageError: a connection of the bundled server would refuse this head, too; or `length-required`, for a
            body in chunks from a server that does not say where it ends.
    """
    version: str = environ.get("SERVER_PROTOCOL", "HTTP/1.1")
    head = fed_head(
        environ["REQUEST_METHOD"],
        _target(environ),
        _fields_of(environ),
        http_version=version.removeprefix("HTTP/"),
        limits=limits,
    )
    if head.content_length is None and not environ.get("wsgi.input_terminated"):
        msg = "a body without Content-Length cannot be read: the server does not say where it ends"
        raise RemoteProtocolError(msg, code=ErrorCode.LENGTH_REQUIRED, status_hint=411)
    return head


def client_of(environ: Environ) -> str:
    """Return address and port of the client; empty if the server does not know them."""
    host, port = environ.get("REMOTE_ADDR") or "", environ.get("REMOTE_PORT")
    if not host or not port:
        return str(host)
    return format_address(host, port)


def _fields_of(environ: Environ) -> list[tuple[bytes, bytes]]:
    """Return the fields of a head."""
    found = [(name, value.encode("latin-1")) for variable, name in _BEFORE if (value := environ.get(variable))]
    for variable, value in environ.items():
        if variable[:5] == "HTTP_" and variable not in _BEHIND_PREFIX:
            found.append((_name_of(variable), value.encode("latin-1")))
    return found


@lru_cache(maxsize=256)
def _name_of(variable: str) -> bytes:
    return variable[5:].lower().replace("_", "-").encode("latin-1")


def _target(environ: Environ) -> str:
    """Return path and query, still percent-encoded."""
    mount: str = environ.get("SCRIPT_NAME", "")
    path: str = environ.get("PATH_INFO", "")
    query: str = environ.get("QUERY_STRING", "")
    raw = _raw_path(environ)
    if raw is not None and unquote_to_bytes(raw).decode("latin-1") == mount + path:
        # By segments: a character may be percent-encoded in one of the two and not in the other.
        target = "/" + "/".join(raw.split("/")[1 + mount.count("/") :])
    else:
        target = quote(path.encode("latin-1"))
    return f"{target}?{query}" if query else target


def _raw_path(environ: Environ) -> str | None:
    """Return the path as it was sent, if the server says it, without scheme and host of an absolute one."""
    raw: str | None = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if raw is None:
        return None
    raw, _, _ = raw.partition("?")
    if not raw.startswith("/") and "://" in raw:
        _, _, raw = raw.partition("://")
        raw = raw[len(raw.partition("/")[0]) :]
    return raw
