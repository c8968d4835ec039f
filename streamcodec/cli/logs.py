"""Logs of `streamcodec serve`: its own messages, and a line for each request, both on standard error.

Standard output has what the command says of itself, which programs read.
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


def add_logging(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("logs")
    group.add_argument(
        "--log-level",
        choices=_LEVELS,
        default="info",
        help="the least important messages that are logged; the access log is of level info (default: %(default)s)",
    )
    group.add_argument(
        "--access-log",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="log a line for each request to standard error: time, client, method, path, model, version, id, "
        "status, bytes in and out, seconds, and the code of a refusal; without it, the statistics of models are not "
        "counted either",
    )
    group.add_argument(
        "--access-log-format",
        choices=("text", "json"),
        default="text",
        help="form of these lines; json has one document a line (default: %(default)s)",
    )


def set_up_logging(options: argparse.Namespace) -> None:
    """Set up what is logged, before anything is."""
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s: %(message)s")
    logging.getLogger("streamcodec").setLevel(options.log_level.upper())


@contextmanager
def access_log(options: argparse.Namespace) -> Iterator[list[AccessLog]]:
    """Return the access log, if there is to be one, whose last lines are written at the end.

    A module that has given the logger `streamcodec.access` a handler gets the lines there.
    """
    logger = logging.getLogger("streamcodec.access")
    if not options.access_log or not logger.isEnabledFor(logging.INFO):
        yield []
        return
    write = to_logger if logger.handlers else to_descriptor(_STDERR)
    with closing(AccessLog(form=options.access_log_format, write=write)) as log:
        yield [log]
