"""Encryption: the options of `streamcodec serve` about TLS. They have the names that users of uvicorn know."""

from __future__ import annotations

import argparse
import ssl
from typing import Final

from streamcodec.cli.arguments import given
from streamcodec.server import ClientCertificates, server_context
from streamcodec.server.sockets.securing import KEY_ADVICE

_NUMBERS: Final = {"0": "none", "1": "optional", "2": "required"}
"""The values of Python's `ssl.VerifyMode`, which uvicorn takes."""

_OTHERS: Final = ("ssl_keyfile", "ssl_keyfile_password", "ssl_ca_certs", "ssl_cert_reqs")
"""Options that mean nothing without a certificate."""


def add_encryption(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.set_defaults(told=lambda error: str(error).replace(KEY_ADVICE, f"--ssl-{KEY_ADVICE}"))
    group = parser.add_argument_group(
        "TLS", "With a certificate, the server speaks https on its port, and nothing else."
    )
    group.add_argument("--ssl-certfile", metavar="FILE", help="the server's certificate and its chain, in PEM")
    group.add_argument("--ssl-keyfile", metavar="FILE", help="its private key, if that is in another file")
    group.add_argument(
        "--ssl-keyfile-password",
        metavar="TEXT",
        help="password of an encrypted private key; other users of this machine may see it in the list of processes",
    )
    group.add_argument(
        "--ssl-ca-certs",
        metavar="FILE",
        help="authorities of clients' certificates; with it, clients must show one that is valid",
    )
    group.add_argument(
        "--ssl-cert-reqs",
        type=_mode,
        metavar="{none,optional,required}",
        help="whether clients must show a certificate; or 0, 1 and 2, as with uvicorn, whose default is 0 (default: "
        "required with --ssl-ca-certs, else none)",
    )


def context_of(options: argparse.Namespace) -> ssl.SSLContext | None:
    """Return the TLS context that the options describe; None for plain HTTP.

    Raises:
        LocalProtocolError: a file cannot be read, or does not fit.
    """
    if options.ssl_certfile is None:
        if others := given(options, _OTHERS):
            options.fail(f"{', '.join(others)}: there is no TLS without --ssl-certfile")
        return None
    if options.ssl_cert_reqs not in {None, ClientCertificates.NONE} and options.ssl_ca_certs is None:
        options.fail("--ssl-cert-reqs: clients' certificates cannot be checked without --ssl-ca-certs")
    return server_context(
        options.ssl_certfile,
        options.ssl_keyfile,
        password=options.ssl_keyfile_password,
        ca_certs=options.ssl_ca_certs,
        client_certificates=options.ssl_cert_reqs,
    )


def _mode(text: str) -> ClientCertificates:
    try:
        return ClientCertificates(_NUMBERS.get(text, text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is none of none, optional, required, 0, 1 and 2") from None
