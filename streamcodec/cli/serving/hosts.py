"""Hosts: the option about the names under which a server or a guard may be called."""

from __future__ import annotations

import argparse

from streamcodec.cli.arguments import checked
from streamcodec.service.policies import HostPolicy


def add_allowed_hosts(group: argparse._ArgumentGroup) -> None:
    """Add the option."""
    group.add_argument(
        "--allowed-host",
        dest="allowed_hosts",
        action="append",
        default=argparse.SUPPRESS,
        type=checked(lambda text: HostPolicy.of([text])),
        metavar="HOST",
        help="answer only requests for this host, as localhost, 127.0.0.1 or '[::1]:8000', and others with 421; give "
        "one for each name that clients use; protects against web pages whose own name leads to this machine (DNS "
        "rebinding) (default: any host)",
    )
