"""CORS: which web pages may call the service from a browser (the Fetch standard's HTTP-CORS protocol).

A browser keeps a page of another origin from reading an answer, and from sending most requests at all, unless the
server agrees: to a preflight request that it sends by itself first, and in a field of every answer, errors included. It
is no protection of the server against anybody but pages in browsers. Credentials (cookies) are never agreed to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from streamcodec.engine.errors import LocalProtocolError, shown
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD
from streamcodec.http.messages import RequestHead
from streamcodec.service.replies import Reply, failure_reply

_ANY: Final = "*"
_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?", re.ASCII)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}

_ALLOWED_FIELDS: Final = ("Content-Type", "Content-Encoding", HEADER_LENGTH_FIELD)
"""What pages set on a request of this protocol; browsers set the rest themselves, or let it pass."""

_EXPOSED_FIELDS: Final = (HEADER_LENGTH_FIELD, "Retry-After")
"""What pages may read of an answer, besides what they always may (`Content-Type`, `Content-Length`)."""

_MAX_AGE_SECONDS: Final = 7200
"""How long a browser need not ask again: the most that Chromium grants."""


@dataclass(frozen=True, slots=True)
class CorsPolicy:
    """The origins whose pages may call."""

    origins: frozenset[str]
    """As browsers write them, or `*` for all; empty if CORS is switched off."""

    @classmethod
    def of(cls, origins: Iterable[str]) -> Self:
        """Make a policy.

        Args:
            origins: `*`, or scheme and host, and the port unless it is the scheme's own.

        Raises:
            LocalProtocolError: one of them is no origin.
        """
        return cls(frozenset(map(_normal, origins)))

    @property
    def varies(self) -> bool:
        """Whether answers differ by who asks."""
        return bool(self.origins) and _ANY not in self.origins

    def fields(self, head: RequestHead | None) -> list[tuple[str, str]]:
        """Return the fields that the answer to a request needs; None for a request whose head could not be read."""
        if not self.origins:  # as on most servers: nothing is looked for then
            return []
        origin = _ANY if _ANY in self.origins else _origin(head)
        if origin not in self.origins:
            return []
        exposed = ("Access-Control-Expose-Headers", ", ".join(_EXPOSED_FIELDS))
        return [("Access-Control-Allow-Origin", origin), exposed]

    def preflight(self, head: RequestHead, methods: Iterable[str]) -> Reply | None:
        """Answer the question whether a page may send a request; None if the request is no such question.

        It is about the route, not about the model: that there is none is better read from the request's own answer,
        since of a preflight that fails a page is told nothing.
        """
        if head.method != "OPTIONS" or not self.origins:
            return None
        origin = _origin(head)
        if not origin or not head.fields.values(b"access-control-request-method"):
            return None
        if not self.fields(head):
            text = f"pages of {shown(origin)} may not call this server; its operator lists those that may"
            return failure_reply(text, status=403)
        fields = [
            ("Access-Control-Allow-Methods", ", ".join(methods)),
            ("Access-Control-Allow-Headers", ", ".join(_ALLOWED_FIELDS)),
            ("Access-Control-Max-Age", str(_MAX_AGE_SECONDS)),
        ]
        return Reply(status=204, headers=fields)


def _origin(head: RequestHead | None) -> str:
    """Return where the page comes from; empty if nobody says so, or not clearly."""
    values = [] if head is None else head.fields.values(b"origin")
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _normal(origin: str) -> str:
    """Return an origin as browsers write it: in lower case, and without the scheme's own port."""
    if origin == _ANY:
        return origin
    match = _ORIGIN.fullmatch(origin.lower())
    if match is None:
        msg = f"an origin is * or looks like https://app.example:8443, without a path, unlike {origin!r}"
        raise LocalProtocolError(msg)
    scheme, host, port = match.groups()
    return f"{scheme}://{host}" if port in {None, _DEFAULT_PORTS.get(scheme)} else f"{scheme}://{host}:{port}"
