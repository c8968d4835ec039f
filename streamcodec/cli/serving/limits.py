"""Limits: the options of `streamcodec serve` about how much, how many and how long."""

from __future__ import annotations

import argparse
from typing import Final

from streamcodec.cli.arguments import UNITS, count, rate_or_0, seconds, seconds_or_0, size, size_or_0, size_text
from streamcodec.cli.serving.sparing import add_small
from streamcodec.engine.limits import Limits
from streamcodec.runtime.options import SLOW_LINKS
from streamcodec.server import ServerOptions
from streamcodec.service.service import MAX_POOL_BYTES

_SIZES: Final = {
    "max_memory_bytes": "memory of all request bodies in progress, and of the idle memory for the next ones; requests "
    "wait for it, then get 503; by default half of what this process leaves of its control group, of RLIMIT_AS or of "
    "the machine, whichever is least; set it to what the models leave free",
    "max_message_bytes": "a whole request body; larger ones get 413, as for the next two options",
    "max_tensor_bytes": "one binary tensor",
    "max_header_bytes": "the JSON header, including tensors that come as JSON; parsing takes up to 48 times as much "
    "memory, and delays other requests by 10 ms per MB",
}
"""Limits in bytes, with their help texts."""

_COUNTS: Final = {
    "max_connections": "connections served at once; further ones get 503; fewer if the process may not open as many "
    "descriptors (RLIMIT_NOFILE)",
    "max_workers": "models called at once in threads",
    "max_windowed_requests": "requests at once to models that take windows in threads; further ones get 503",
    "resumable_uploads": "uploads at once whose clients may go on after their connection broke",
    "max_compression_ratio": "decompressed bytes for each byte of a compressed request; more get 413; tensors of "
    "zeros reach 1032, the most that gzip and deflate can do",
}
"""Limits in numbers of things."""

_TIMES: Final = {
    "model_timeout": "for a model to answer, then its client gets 504; its thread stays occupied until it returns",
    "request_timeout": "for a whole request to arrive, then it gets 408; and again for its answer to be received",
    "read_timeout": "without a byte in the middle of a request, then it gets 408",
    "write_timeout": "without the client receiving a byte of its answer, then its connection is closed; also how late "
    "all its answers together may be, compared with --min-rate",
    "head_timeout": "for the whole head of a request, then it gets 408",
    "header_timeout": "for the whole JSON header, then it gets 408",
    "handshake_timeout": "for the whole handshake of TLS, then the connection is closed",
    "idle_timeout": "before a connection without a request is closed",
    "upload_timeout": "for the client of an interrupted upload to come back, with --resumable-uploads",
    "budget_timeout": "for a request that waits for memory, then it gets 503",
    "shutdown_timeout": "for requests in progress when the server is stopped",
}
"""Limits in seconds."""

_TIMES_OR_0: Final = {
    "linger_timeout": "for a client that is still sending to read a refusal, before its connection is closed",
    "drain_delay": "first part of --shutdown-timeout, in which everything is still served, while the readiness check "
    "says that the server stops; set it to the time after which a load balancer has noticed",
    "worker_timeout": "without a sign of life of one of several --workers, before it is killed and replaced: it was "
    "stopped, or a model blocks its event loop; models in threads do not count; 0 for never",
}
"""Times in seconds that may be 0."""


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the limits for operators; each is a field of `Limits` or `ServerOptions` with the same name."""
    group = parser.add_argument_group(
        "limits",
        "How much one client may take from the others. All limits are finite without these options too;\nthese "
        "depend on the machine, its models and its clients. SIZE is a number of bytes,\n"
        f"optionally with {UNITS}.",
    )
    for kind, metavar, options in (
        (size, "SIZE", _SIZES),
        (count, "N", _COUNTS),
        (seconds, "SECONDS", _TIMES),
        (seconds_or_0, "SECONDS", _TIMES_OR_0),
    ):
        for name, text in options.items():
            default = getattr(Limits() if hasattr(Limits(), name) else ServerOptions(), name)
            shown = size_text(default) if kind is size else f"{default:g}"
            help_text = f"{text} (default: {shown})"
            group.add_argument(flag_of(name), dest=name, type=kind, metavar=metavar, help=help_text)
    group.add_argument(
        "--upload-dir",
        metavar="DIR",
        help="directory for the bytes of --resumable-uploads, which outlive a restart then; it is made if it is not "
        "there, and must belong to this user alone (default: in memory; with --workers, a temporary directory)",
    )
    group.add_argument(
        "--max-upload-dir",
        dest="max_upload_dir_bytes",
        type=size,
        metavar="SIZE",
        help="all files of --upload-dir together (default: half of what is free there)",
    )
    group.add_argument(
        "--min-rate",
        type=rate_or_0,
        metavar="BYTES",
        help="average bytes a second of tensors, and of answers that are received; 0 for no minimum (default: "
        f"{ServerOptions().min_rate:g})",
    )
    values = " ".join(f"{flag_of(name)} {value:g}" for name, value in SLOW_LINKS.items())
    group.add_argument(
        "--slow-links",
        action="store_true",
        help=f"for clients on links of a few kB/s with pauses: {values}; a slow attacker keeps its "
        "connection for as long, so use it where all clients are known",
    )
    add_small(group)
    group.add_argument(
        "--pool-memory",
        dest="max_pool_bytes",
        type=size_or_0,
        default=argparse.SUPPRESS,
        metavar="SIZE",
        help="idle part of --max-memory that is kept for the next tensors: new memory costs more than a copy; "
        f"0 to keep none (default: {size_text(MAX_POOL_BYTES)})",
    )


def flag_of(name: str) -> str:
    """Return the flag of a limit."""
    return "--" + name.removesuffix("_bytes").replace("_", "-")
