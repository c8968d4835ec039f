"""Address: the parts of a server's URL. Credentials are kept separately, and nothing that is printed shows them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.http.heads import is_host

_PORTS: Final = {"http": 80, "https": 443}
_CREDENTIALS: Final = re.compile(r"//.*@", re.DOTALL)
"""Matches credentials even if they contain characters that should have been percent-encoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a server."""

    host: str
    """Name or address."""
    port: int
    """TCP port."""
    authority: str
    """Value of the `Host` field."""
    prefix: str
    """Path before `/v2`, without a slash at its end."""
    is_secure: bool
    """Whether to use TLS."""
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    """User and password, if the URL has them."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse a URL.

        Args:
            url: as `http://127.0.0.1:8000` or `https://user:password@example.org`, with a path if the service is not at
                the server's root.

        Raises:
            LocalProtocolError: not an `http` or `https` URL with a host.
        """
        shown = _CREDENTIALS.sub("//***@", url)
        if set(url) & set("\t\r\n"):  # urlsplit would remove these silently
            raise LocalProtocolError(f"{shown!r} is not a URL: it has a line end or a tab")
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
            prefix=parts.path.rstrip("/"),
            is_secure=parts.scheme == "https",
            credentials=_credentials(parts),
        )

    @property
    def place(self) -> str:
        """Host and port, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _credentials(parts: SplitResult) -> tuple[str, str] | None:
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")
