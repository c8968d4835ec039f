"""Logs of `streamcodec serve`: the server's messages, and a line for each request, both on standard error.

Standard output has only the lines about the server itself, which programs read.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from streamcodec.server import AccessLog, to_descriptor, to_logger

_STDERR: Final = 2
_LEVELS: Final = ("debug", "info", "warning", "error", "critical")


def add_logging(parser: argparse.ArgumentParser, *, has_statistics: bool = True) -> None:
    """Add the options; say what they mean for model statistics, if there are any."""
    counted = "; without it, --metrics or --statistics, statistics of models are neither counted nor offered"
    group = parser.add_argument_group("logs")
    group.add_argument(
        "--log-level",
        choices=_LEVELS,
        default="info",
        help="the lowest level of messages that are logged; the access log has level info (default: %(default)s)",
    )
    group.add_argument(
        "--access-log",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="log a line for each request to standard error: time, client, method, path, model, version, id, "
        "status, bytes in and out, seconds, and the code of a refusal"
        + counted * has_statistics
        + " (default: --access-log)",
    )
    group.add_argument(
        "--access-log-format",
        choices=("text", "json"),
        help="form of these lines; json writes one document per line (default: text)",
    )


def set_up_logging(options: argparse.Namespace) -> None:
    """Set up logging, before anything is logged."""
    if options.access_log_format is not None and not options.access_log:
        options.fail("--access-log-format: there is no log with --no-access-log")
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s: %(message)s")
    logging.getLogger("streamcodec").setLevel(options.log_level.upper())


@contextmanager
def access_log(options: argparse.Namespace) -> Iterator[list[AccessLog]]:
    """Return the access log, if it is enabled; its last lines are written at the end.

    If a module has added a handler to the logger `streamcodec.access`, the lines go to that logger.
    """
    logger = logging.getLogger("streamcodec.access")
    if not options.access_log or not logger.isEnabledFor(logging.INFO):
        yield []
        return
    write = to_logger if logger.handlers else to_descriptor(_STDERR)
    is_encrypted = options.ssl_certfile is not None
    with closing(AccessLog(form=options.access_log_format or "text", write=write, is_encrypted=is_encrypted)) as log:
        yield [log]
