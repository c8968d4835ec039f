"""`streamcodec guard`: checks requests on their way to a V2 server that does not check them."""

from __future__ import annotations

import argparse
import socket
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Final

from streamcodec.cli.arguments import UNITS, Once, checked, count, given, seconds, seconds_or_0, size, size_text
from streamcodec.cli.logs import access_log, add_logging, set_up_logging
from streamcodec.cli.serving.encryption import add_encryption, context_of
from streamcodec.cli.serving.hosts import add_allowed_hosts
from streamcodec.cli.serving.metrics import add_guard_metrics, guard_counters
from streamcodec.cli.serving.places import add_places, announce, place_of_options
from streamcodec.cli.serving.sparing import add_small, sizes_of
from streamcodec.client.connections.address import Address
from streamcodec.client.connections.timeouts import Timeout
from streamcodec.engine.record import replaced
from streamcodec.guard import ALLOWANCES, ANSWER_TIMEOUT, GUARD_LIMITS, Guard
from streamcodec.guard.rules.allowing import Routes
from streamcodec.server import ServerOptions
from streamcodec.server.processes.running import collect_seldom, serve_until_signal
from streamcodec.server.sockets.opening import open_place, place_of
from streamcodec.server.sockets.unixsocket import UnixListener

_DESCRIPTION = """\
Stand in front of a V2 inference server, and pass only correct inference requests to it. A request that breaks a rule of
HTTP or of the protocol is answered here, and the server behind does not see it. Tensors are checked while they pass, in
constant memory; the JSON header of a request is checked before anything is passed on.

When the guard is ready, it prints its address, "listening on http://HOST:PORT", and then the server behind it.
"""

_EPILOG = """\
examples:
  streamcodec guard --upstream http://127.0.0.1:8001
  streamcodec guard --upstream http://triton:8000 --host 0.0.0.0 --port 8000
  streamcodec guard --upstream http://127.0.0.1:8001 --allow generate,repository
  streamcodec guard --upstream http+unix://%2Frun%2Fmodels.sock --port 8000 --max-tensor 64M
  streamcodec guard --upstream http://127.0.0.1:8001 --port 8443 --ssl-certfile server.crt --ssl-keyfile server.key

Inferences, health, metadata and statistics pass, and nothing else, unless it is allowed by its name. Let no client
reach the server behind in any other way.
"""

_LIMITS: Final = {
    "max_header_bytes": "the JSON header, including tensors that come as JSON; it is kept until it was checked",
    "max_tensor_bytes": "one binary tensor",
    "max_message_bytes": "a whole inference request",
    "max_document_bytes": "the body of a request that is not an inference; it is kept until it has come; JSON that is "
    "checked as a whole may have 256 KiB",
}
_TIMES: Final = {
    "request_timeout": "for a whole request to arrive, then it gets 408",
    "idle_timeout": "before a connection without a request is closed",
    "shutdown_timeout": "for requests in progress when the guard is stopped",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make the command's parser."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument(
        "--upstream",
        action=Once,
        type=checked(Guard),
        required=True,
        metavar="URL",
        help="the server behind, as http://127.0.0.1:8001",
    )
    parser.add_argument(
        "--upstream-ca",
        metavar="FILE",
        help="certificates of the authorities to trust about a server behind that has https, in PEM (default: those "
        "of the system)",
    )
    add_places(parser)
    add_encryption(parser)
    _add_routes(parser)
    _add_contents(parser)
    _add_limits(parser)
    add_logging(parser, has_statistics=False)
    add_guard_metrics(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Serve until a signal ends it."""
    place = place_of_options(options)
    set_up_logging(options)
    ssl_context = context_of(options)
    counters, pages = guard_counters(options)
    sizes = sizes_of(options)
    server_options = sizes.options
    make = partial(
        Guard,
        options.upstream,
        options=server_options,
        limits=replaced(GUARD_LIMITS, **given(options, _LIMITS)),
        timeout=Timeout(
            connect=options.connect_timeout, read=options.answer_timeout, write=ANSWER_TIMEOUT.write, pool=10.0
        ),
        ssl_context=ssl_context,
        pages=pages,
        allowed=[name for names in options.allowed for name in names.split(",")],
        allowed_hosts=getattr(options, "allowed_hosts", ()),
        upstream_ca=options.upstream_ca,
        null_is_nan=options.nonfinite == "null",
    )
    make()  # certificates that cannot be read are reported before anything is opened
    collect_seldom()
    with open_place(**place) as listener, access_log(options) as logs:
        if is_itself(Address.of(options.upstream), listener):
            options.fail(f"--upstream {options.upstream}: this is the guard itself; requests would go in a circle")
        guard = make(observer=[*logs, *counters])
        where = place_of(listener, place.get("host", ""))
        found = sizes.text(guard.max_connections, has_models=False)
        tell = partial(announce, options, *where, f"guarding {options.upstream}", found)
        anew = partial(context_of, options)
        status = serve_until_signal(guard, listener, tell, server_options.shutdown_timeout, anew)
    if status:
        raise SystemExit(status)


def is_itself(address: Address, listener: socket.socket) -> bool:
    """Tell whether a listener is what a URL leads to. Nothing is sent."""
    if isinstance(listener, UnixListener):
        return listener.path == address.socket_path
    host, port, *_ = listener.getsockname()
    if port != address.port:
        return False
    with suppress(OSError):  # it cannot be found, or not be reached
        for family, kind, _, _, place in socket.getaddrinfo(address.host, port, listener.family, socket.SOCK_DGRAM):
            with socket.socket(family, kind) as probe:
                probe.connect(place)
                there, here = probe.getpeername()[0], probe.getsockname()[0]
            if there == host or (ip_address(host).is_unspecified and there == here):
                return True
    return False


def _add_routes(parser: argparse.ArgumentParser) -> None:
    names = "\n".join(f"  {name:14} {text}" for name, text in ALLOWANCES.items())
    group = parser.add_argument_group("what passes besides the V2 protocol", f"NAME is one of these:\n{names}")
    group.add_argument(
        "--allow",
        dest="allowed",
        action="append",
        default=[],
        type=checked(lambda text: Routes(text.split(","))),
        metavar="NAME",
        help="pass this on, too; several names with commas between them, or the option several times (default: none)",
    )
    add_allowed_hosts(parser.add_argument_group("clients"))


def _add_contents(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("contents")
    group.add_argument(
        "--nonfinite",
        choices=["literal", "null"],
        default="literal",
        help="how requests may write NaN in the JSON data of FP32 and FP64: as literal (NaN, "
        "and also Infinity), as Triton takes it; or also as null, as KServe's client writes it and KServe takes it, "
        "while others may refuse it or read 0 (default: %(default)s)",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits", f"SIZE is a number of bytes, optionally with {UNITS}.")
    for name, text in _LIMITS.items():
        shown = size_text(getattr(GUARD_LIMITS, name))
        flag = "--" + name.removesuffix("_bytes").replace("_", "-")
        group.add_argument(flag, dest=name, type=size, metavar="SIZE", help=f"{text} (default: {shown})")
    group.add_argument(
        "--max-connections", type=count, metavar="N", help="of clients at once, and to the server behind (default: 512)"
    )
    group.add_argument(
        "--max-memory",
        dest="max_memory_bytes",
        type=size,
        metavar="SIZE",
        help="what all requests take together of headers and buffers, then 503 (default: half of what is left "
        "of the control group, RLIMIT_AS or the machine)",
    )
    add_small(group)
    for name, text in _TIMES.items():
        flag, default = "--" + name.replace("_", "-"), getattr(ServerOptions(), name)
        group.add_argument(flag, type=seconds, metavar="SECONDS", help=f"{text} (default: {default:g})")
    group.add_argument(
        "--drain-delay",
        type=seconds_or_0,
        metavar="SECONDS",
        help="first part of --shutdown-timeout, in which everything still passes, while the readiness check says that "
        "the guard stops; set it to the time after which a load balancer has noticed (default: 0)",
    )
    for name, default, text in (
        ("connect", ANSWER_TIMEOUT.connect, "for a connection to the server behind, then 504"),
        ("answer", ANSWER_TIMEOUT.read, "without a byte of its answer, then 504, or the connection is closed"),
    ):
        group.add_argument(
            f"--{name}-timeout", type=seconds, default=default, metavar="SECONDS", help=f"{text} (default: {default:g})"
        )
