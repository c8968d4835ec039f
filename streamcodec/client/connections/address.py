"""Address: the parts of a server's URL. Credentials are kept separately, and nothing that is printed shows them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from streamcodec.engine.arguments import check_kind
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.http.heads.parsed import is_host
from streamcodec.transports.sockets.unix import check_path

_PORTS: Final = {"http": 80, "https": 443}
_CREDENTIALS: Final = re.compile(r"\A([A-Za-z][A-Za-z0-9+.\-]*://)?.*@", re.DOTALL)
"""Matches credentials even if they contain characters that should have been percent-encoded, or have no scheme."""

UNSENDABLE: Final = re.compile(r"[^!-~]|#")
"""What no request target may have (RFC 9112, section 3.2): space, control character, what is not ASCII, fragment."""

_UNIX_SCHEME: Final = re.compile(r"https?\+unix:", re.IGNORECASE)
_UNIX_URL: Final = re.compile(
    r"http\+unix://(?:(?P<user>[^/?#@:]*)(?::(?P<password>[^/?#@]*))?@)?"
    r"(?P<socket>(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})+)(?P<prefix>/[^?#]*)?",
    re.IGNORECASE,
)
"""The path of the socket stands where another URL has its host, so its slashes are percent-encoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a server."""

    host: str
    """Name or address; `localhost` for a Unix socket."""
    port: int
    """TCP port; 0 for a Unix socket."""
    authority: str
    """Value of the `Host` field; `localhost` for a Unix socket."""
    prefix: str
    """Path before `/v2`, without a slash at its end."""
    is_secure: bool
    """Whether to use TLS."""
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    """User and password, if the URL has them."""
    socket_path: str | None = None
    """Absolute path of a Unix socket; None for TCP."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse a URL.

        Args:
            url: as `http://127.0.0.1:8000` or `https://user:password@example.org`, with a path if the service is not at
                the server's root. Or `http+unix://%2Frun%2Fmodels.sock`, with the path of a Unix socket for a host.

        Raises:
            LocalProtocolError: not an `http` or `https` URL with a host, nor one of a Unix socket; or its path is not
                percent-encoded.
        """
        check_kind(url, str, "a server's URL is a str, as 'http://127.0.0.1:8000'")
        shown = _CREDENTIALS.sub(r"\1***@", url)
        if set(url) & set("\t\r\n"):  # urlsplit would remove these silently
            raise LocalProtocolError(f"{shown!r} is not a URL: it has a line end or a tab")
        if _UNIX_SCHEME.match(url):
            return _of_unix_socket(url, shown)
        try:
            parts = urlsplit(url)
            port = parts.port
            (parts.hostname or "").encode("idna")
        except ValueError:  # its text may quote a password
            raise LocalProtocolError(f"{shown!r} is not a URL: its host or port is invalid") from None
        if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
            raise LocalProtocolError(
                f"a server's URL looks like http://127.0.0.1:8000 or https://example.org, unlike {shown!r}"
            )
        authority = parts.netloc.rpartition("@")[2]
        if not is_host(authority):
            raise LocalProtocolError(f"{authority!r} is not the name or address of a host, in ASCII")
        return cls(
            host=parts.hostname,
            port=_PORTS[parts.scheme] if port is None else port,
            authority=authority,
            prefix=_prefix(parts.path, shown),
            is_secure=parts.scheme == "https",
            credentials=None if parts.username is None else (unquote(parts.username), unquote(parts.password or "")),
        )

    @property
    def place(self) -> str:
        """Host and port, or the path of the socket, for messages."""
        if self.socket_path is not None:
            return self.socket_path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _prefix(path: str, shown: str) -> str:
    """Return the path of a URL without a slash at its end; `shown` is the URL without credentials.

    Raises:
        LocalProtocolError: it cannot be a part of a request target.
    """
    if UNSENDABLE.search(path):
        raise LocalProtocolError(
            f"the path of {shown!r} has a space, or something else that is not visible ASCII; percent-encode it, as "
            "urllib.parse.quote(path) does"
        )
    return path.rstrip("/")


def _of_unix_socket(url: str, shown: str) -> Address:
    """Parse the URL of a Unix socket; `shown` is the URL without credentials.

    Raises:
        LocalProtocolError: it is not such a URL, or no path of a socket.
    """
    if url[:6].lower() == "https+":
        raise LocalProtocolError(
            f"there is no TLS on a Unix socket; its URL begins with http+unix://, unlike {shown!r}"
        )
    found = _UNIX_URL.fullmatch(url)
    path = "" if found is None else os.fsdecode(unquote_to_bytes(found["socket"]))
    if found is None or not path.startswith("/"):
        raise LocalProtocolError(
            "the URL of a Unix socket has its absolute path, percent-encoded, as http+unix://%2Frun%2Fmodels.sock, "
            f"unlike {shown!r}"
        )
    check_path(path)
    user = found["user"]
    return Address(
        host="localhost",
        port=0,
        authority="localhost",
        prefix=_prefix(found["prefix"] or "", shown),
        is_secure=False,
        credentials=None if user is None else (unquote(user), unquote(found["password"] or "")),
        socket_path=path,
    )
