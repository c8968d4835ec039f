"""Hosts: the option about the names under which a server or a guard may be called."""

from __future__ import annotations

import argparse

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.service.policies import HostPolicy


def add_allowed_hosts(group: argparse._ArgumentGroup) -> None:
    """Add the option."""
    group.add_argument(
        "--allowed-host",
        dest="allowed_hosts",
        action="append",
        default=argparse.SUPPRESS,
        type=_host,
        metavar="HOST",
        help="answer only requests for this host, as localhost, 127.0.0.1 or '[::1]:8000', and others with 421; give "
        "one for each name that clients use; protects against web pages whose own name leads to this machine (DNS "
        "rebinding) (default: any host)",
    )


def _host(text: str) -> str:
    """Read a host with an optional port."""
    try:
        HostPolicy.of([text])
    except LocalProtocolError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
