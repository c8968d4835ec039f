"""Places: the options of `serve` and `guard` about where to listen, and how that is announced."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Final
from urllib.parse import quote

from streamcodec.cli.arguments import permissions, port
from streamcodec.cli.output import drop, say
from streamcodec.server.processes.servicemanager import given_listener
from streamcodec.server.sockets.unixsocket import PERMISSIONS
from streamcodec.transports.sockets.unix import AF_UNIX

HOST: Final = "127.0.0.1"
PORT: Final = 8000


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--host", help=f"address to listen at (default: {HOST})")
    parser.add_argument("--port", type=port, help=f"port to listen at; 0 picks one (default: {PORT})")
    parser.add_argument(
        "--reuse-port",
        action="store_true",
        help="let others that you start with this option listen at the same port: start a new one, and stop the old "
        "one when the new one is ready; no request is lost",
    )
    parser.add_argument(
        "--uds",
        metavar="PATH",
        help="listen at a Unix socket instead, for clients on this machine; its file is removed at the end, and one "
        "that an ended server has left there is replaced",
    )
    parser.add_argument(
        "--uds-permissions",
        type=permissions,
        metavar="MODE",
        help="permissions of that file, in octal: who may write to it may connect, as 660 for a group (default: "
        f"{PERMISSIONS:o})",
    )


def place_of_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `open_place` that say where to listen.

    Raises:
        LocalProtocolError: the socket of the service manager cannot be used.
    """
    given = [flag for flag, value in (("--host", options.host), ("--port", options.port)) if value is not None]
    given += ["--reuse-port"] * options.reuse_port
    if options.uds is None and options.uds_permissions is not None:
        options.fail("--uds-permissions: there is no Unix socket without --uds")
    if options.uds is not None and given:
        options.fail(f"--uds: not together with {' and '.join(given)}")
    if options.uds is not None and options.ssl_certfile is not None:
        options.fail("--uds: not together with --ssl-certfile: there is no TLS on a Unix socket")
    given += ["--uds"] * (options.uds is not None)
    listener = given_listener()
    if listener is not None:
        if given:
            options.fail(f"{', '.join(given)}: the service manager gives the socket (LISTEN_FDS); leave that out")
        if listener.family == AF_UNIX and options.ssl_certfile is not None:
            options.fail("--ssl-certfile: the service manager gives a Unix socket, and there is no TLS on one")
        return {"listener": listener}
    if options.uds is not None:
        mode = PERMISSIONS if options.uds_permissions is None else options.uds_permissions
        return {"uds": options.uds, "uds_permissions": mode}
    host = HOST if options.host is None else options.host
    return {
        "host": host,
        "port": PORT if options.port is None else options.port,
        "reuse_port": options.reuse_port,
    }


def announce(options: argparse.Namespace, host: str, number: int, *lines: str) -> None:
    """Print the address at which is listened, as `on_listening` is told, and what is served there."""
    try:
        say(f"listening on {_url(options, host, number)}", *lines)
    except BrokenPipeError:  # nobody reads the output, but clients may still use the server
        drop(sys.stdout)


def _url(options: argparse.Namespace, host: str, number: int) -> str:
    if not number:
        return f"http+unix://{quote(os.fsencode(host), safe='')}"
    scheme = "http" if options.ssl_certfile is None else "https"
    return f"{scheme}://[{host}]:{number}" if ":" in host else f"{scheme}://{host}:{number}"
