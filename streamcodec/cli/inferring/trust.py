"""Trust: the option that says whose certificates the commands of a client trust, and advice that names the option."""

from __future__ import annotations

import argparse
import ssl
from pathlib import Path
from typing import Final

from streamcodec.client.connections.reaching import TRUST_ARGUMENT
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.transports.tls.sockets import CERTIFICATE_ADVICE, client_context

_FLAG: Final = "--ca"


def add_trust(group: argparse._ArgumentGroup) -> None:
    """Add the option."""
    group.add_argument(
        _FLAG,
        dest="ca",
        type=Path,
        metavar="PATH",
        help="trust the certificates of this file or folder, and not those that the system trusts; for https",
    )
    # An error of `Client` names its arguments, this command its option.
    group.set_defaults(
        told=lambda error: (
            str(error).replace(TRUST_ARGUMENT, f"{_FLAG} PATH").replace(CERTIFICATE_ADVICE, "no option gives it one")
        )
    )


def trusted(options: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the TLS context of a client that trusts what was given; None if nothing was.

    Raises:
        LocalProtocolError: no certificates can be read there.
    """
    if options.ca is None:
        return None
    try:
        return client_context(verify=options.ca)
    except LocalProtocolError as error:
        raise LocalProtocolError(f"{_FLAG}: {str(error).partition(': ')[2]}") from None
