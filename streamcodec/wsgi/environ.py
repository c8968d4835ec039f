"""Environ: makes the head of a request from what a WSGI server says of it (PEP 3333).

WSGI hides some parts of a head. Fields of one name are joined by commas; where only one field is allowed, the joined
text is refused as malformed. Servers drop fields with underscores in their names, because these look like fields with
dashes. The path is decoded. Most servers add the path as it was sent, as `RAW_URI` or `REQUEST_URI`. It is used only if
it decodes to the same path, because software between server and application may have changed the decoded path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote_to_bytes

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.http.fed import fed_head
from streamcodec.http.messages import RequestHead
from streamcodec.server.knownheads import MEANINGFUL_FIELDS
from streamcodec.server.observation import format_address

Environ = dict[str, Any]


class StartResponse(Protocol):
    """Begins an answer."""

    def __call__(self, status: str, headers: list[tuple[str, str]], /) -> Callable[[bytes], object]:
        """Take status and fields. Only old applications use the returned function."""
        ...


_LENGTH: Final = "CONTENT_LENGTH"
_TYPE: Final = "CONTENT_TYPE"
_BEHIND_PREFIX: Final = {"HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE"}
"""Variables that some servers give in addition."""

_MEANINGFUL: Final = (
    "REQUEST_METHOD",
    "SCRIPT_NAME",
    "PATH_INFO",
    "QUERY_STRING",
    "RAW_URI",
    "REQUEST_URI",
    "SERVER_PROTOCOL",
    _TYPE,
    _LENGTH,
    *("HTTP_" + name.decode().upper().replace("-", "_") for name in sorted(MEANINGFUL_FIELDS)),
)
"""Variables that the service or the parser of heads uses."""


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
        _fields(environ),
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


def key_of(environ: Environ) -> bytes:
    """Return a key of everything in a head that the service uses, so that heads with equal keys have the same meaning.

    It may matter whether a path was sent percent-encoded, so all forms of the path belong to the key.
    """
    get = environ.get
    return "\n".join([str(get(name)) for name in _MEANINGFUL]).encode("latin-1", "replace")


def _fields(environ: Environ) -> Iterator[tuple[bytes, bytes]]:
    """Yield the fields of a head, names in lower case."""
    for name in (_TYPE, _LENGTH):
        if value := environ.get(name):
            yield _field(name, value)
    for name, value in environ.items():
        if name.startswith("HTTP_") and name not in _BEHIND_PREFIX:
            yield _field(name[5:], value)


def _field(name: str, value: str) -> tuple[bytes, bytes]:
    return name.lower().replace("_", "-").encode("latin-1"), value.encode("latin-1")


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
