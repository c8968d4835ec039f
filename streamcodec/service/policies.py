"""Policies: which web pages may call the service from a browser, and under which names of a host it may be called.

A browser keeps a page of another origin from reading an answer, and from sending most requests, unless the server
agrees (the Fetch standard's HTTP-CORS protocol). The server agrees in its answer to a preflight request, which the
browser sends first, and in a field of every answer, errors included. CORS protects the server only against pages in
browsers. Credentials (cookies) are never allowed.

An origin contains the host name of the page's address. The owner of that name decides where it leads: first to the
owner's server, which delivers the page, and a moment later to 127.0.0.1 (*DNS rebinding*). Then the page may call the
program that listens there, as if it were the page's own server, and CORS does not apply. Only the field `Host` shows
the attack: it still has the page's name (RFC 9110, section 7.4). The list of allowed names is an option: a proxy in
front may pass on the name under which it was called, and nobody here can guess that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Self
from urllib.parse import urlsplit

from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError, shown
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD
from streamcodec.http.heads.messages import RequestHead
from streamcodec.service.replies import Reply, failure_reply

_ANY: Final = "*"
_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?", re.ASCII)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}

_ALLOWED_FIELDS: Final = ("Content-Type", "Content-Encoding", HEADER_LENGTH_FIELD)
"""Fields that pages set on a request of this protocol; browsers set or allow all others themselves."""

_EXPOSED_FIELDS: Final = (HEADER_LENGTH_FIELD, "Retry-After")
"""Fields of an answer that pages may read, besides those they may always read (`Content-Type`, `Content-Length`)."""

_MAX_AGE_SECONDS: Final = 7200
"""How long a browser may remember the answer to a preflight: the maximum of Chromium."""


@dataclass(frozen=True, slots=True)
class CorsPolicy:
    """The origins whose pages may call."""

    origins: frozenset[str]
    """As browsers write them, or `*` for all; empty if CORS is switched off."""

    @classmethod
    def of(cls, origins: Iterable[str]) -> Self:
        """Make a policy.

        Args:
            origins: `*`, or scheme and host, with the port unless it is the scheme's default.

        Raises:
            LocalProtocolError: one of them is not an origin.
        """
        return cls(frozenset(map(_normal, origins)))

    @property
    def varies(self) -> bool:
        """Whether answers depend on the origin of the request."""
        return bool(self.origins) and _ANY not in self.origins

    def fields(self, head: RequestHead | None) -> list[tuple[str, str]]:
        """Return the fields that an answer needs; `head` is None if the head of the request could not be read."""
        if not self.origins:  # the usual case: nothing to look for
            return []
        origin = _ANY if _ANY in self.origins else _origin(head)
        if origin not in self.origins:
            return []
        exposed = ("Access-Control-Expose-Headers", ", ".join(_EXPOSED_FIELDS))
        return [("Access-Control-Allow-Origin", origin), exposed]

    def preflight(self, head: RequestHead, methods: Iterable[str]) -> Reply | None:
        """Answer a preflight, which asks whether a page may send a request; None if the request is not a preflight.

        The answer depends on the route, not on the model. The browser does not show a page why a preflight failed, so
        the request's own answer should say that a model does not exist.
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
    """Return the origin of the page; empty if it is missing or ambiguous."""
    values = [] if head is None else head.fields.values(b"origin")
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _normal(origin: str) -> str:
    """Return an origin as browsers write it: in lower case, without the scheme's default port."""
    if origin == _ANY:
        return origin
    match = _ORIGIN.fullmatch(origin.lower())
    if match is None:
        msg = f"an origin must be * or look like https://app.example:8443, without a path, unlike {origin!r}"
        raise LocalProtocolError(msg)
    scheme, host, port = match.groups()
    return f"{scheme}://{host}" if port in {None, _DEFAULT_PORTS.get(scheme)} else f"{scheme}://{host}:{port}"


_HOST: Final = re.compile(r"(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_PORT: Final = re.compile(r":[0-9]*$", re.ASCII)


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """The hosts that requests may be for."""

    hosts: frozenset[str]
    """In lower case, with or without a port; without one, every port is allowed. Empty if every host is allowed."""

    @classmethod
    def of(cls, hosts: Iterable[str]) -> Self:
        """Make a policy.

        Args:
            hosts: names and addresses as in a URL, as `localhost` or `[::1]`, with a port if only that port is allowed.

        Raises:
            LocalProtocolError: one of them is not a host, or `hosts` is one text.
        """
        if isinstance(hosts, str):
            msg = f"allowed hosts are a list, as [{hosts!r}]"
            raise LocalProtocolError(msg)
        allowed = frozenset(map(str.lower, hosts))
        for host in allowed:
            if not _HOST.fullmatch(host):
                msg = f"an allowed host must be a name or an address, with an optional port, unlike {host!r}"
                raise LocalProtocolError(msg)
        return cls(allowed)

    def check(self, head: RequestHead) -> None:
        """Refuse a request for another host, or without a host.

        A target in absolute form names a host too, which has precedence (RFC 9112, section 3.2.2). Both must be
        allowed.

        Raises:
            RemoteProtocolError: `misdirected`, status 421 (RFC 9110, section 15.5.20).
        """
        if not self.hosts:
            return
        named = [value.decode("latin-1") for value in head.fields.values(b"host")]
        if not head.target.startswith("/"):
            try:
                named.append(urlsplit(head.target).netloc)
            except ValueError:
                named.append("")
        for host in named or [""]:
            if self.hosts.isdisjoint({host.lower(), _PORT.sub("", host.lower())}):
                msg = f"this server is not {shown(host)}; its operator lists the hosts that it is"
                status = HTTPStatus.MISDIRECTED_REQUEST
                raise RemoteProtocolError(msg, code=ErrorCode.MISDIRECTED, status_hint=int(status))
