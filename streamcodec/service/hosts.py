"""Hosts: the names by which the service may be called, against pages that call it by a name of their own.

A page in a browser may read answers of its own origin only. What is its origin says the name in its address, and where
that name leads says whoever owns it: first to the owner's server, which delivers the page, and a moment later to
127.0.0.1 (*DNS rebinding*). Then the page may call what listens there, as if it were its own server, without CORS being
asked. Only the field `Host` gives it away: it still has the page's name (RFC 9110, section 7.4).

The list is an option. A proxy in front may pass on the name that it was called by, which nobody here can guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Self
from urllib.parse import urlsplit

from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError, shown
from streamcodec.http.messages import RequestHead

_HOST: Final = re.compile(r"(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_PORT: Final = re.compile(r":[0-9]*$", re.ASCII)


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """The hosts that requests may be for."""

    hosts: frozenset[str]
    """In lower case, with a port or for any; empty if every host is allowed."""

    @classmethod
    def of(cls, hosts: Iterable[str]) -> Self:
        """Make a policy.

        Args:
            hosts: names and addresses as in a URL, as `localhost` or `[::1]`, with a port if no other is allowed.

        Raises:
            LocalProtocolError: one of them is no host.
        """
        allowed = frozenset(map(str.lower, hosts))
        for host in allowed:
            if not _HOST.fullmatch(host):
                msg = f"an allowed host is a name or an address, perhaps with a port, unlike {host!r}"
                raise LocalProtocolError(msg)
        return cls(allowed)

    def check(self, head: RequestHead) -> None:
        """Refuse a request for another host, or for none.

        A target in absolute form names a host, too, and comes first (RFC 9112, section 3.2.2); both have to be allowed.

        Raises:
            RemoteProtocolError: `misdirected`, status 421 (RFC 9110, section 15.5.20).
        """
        if not self.hosts:
            return
        named = [value.decode("latin-1") for value in head.fields.values(b"host")]
        if not head.target.startswith("/"):
            named.append(_authority(head.target))
        for host in named or [""]:
            if self.hosts.isdisjoint({host.lower(), _PORT.sub("", host.lower())}):
                msg = f"this server is not {shown(host)}; its operator lists the hosts that it is"
                status = HTTPStatus.MISDIRECTED_REQUEST
                raise RemoteProtocolError(msg, code=ErrorCode.MISDIRECTED, status_hint=int(status))


def _authority(target: str) -> str:
    try:
        return urlsplit(target).netloc
    except ValueError:
        return ""
