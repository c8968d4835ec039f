"""Hosts: the names under which the service may be called, as a protection against DNS rebinding.

A page in a browser may read answers of its own origin only. The origin contains the host name of the page's address.
The owner of that name decides where it leads: first to the owner's server, which delivers the page, and a moment later
to 127.0.0.1 (*DNS rebinding*). Then the page may call the program that listens there, as if it were the page's own
server. CORS does not apply. Only the field `Host` shows the attack: it still has the page's name (RFC 9110, section
7.4).

The list is an option. A proxy in front may pass on the name under which it was called, and nobody here can guess that
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Self
from urllib.parse import urlsplit

from streamcodec.engine.errors import ErrorCode, LocalProtocolError, RemoteProtocolError, shown
from streamcodec.http.heads.messages import RequestHead

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
