"""Commands: the list of commands, and the exit status for each way in which they end.

Each command is a module with `add_arguments` and `run`. Only the called command is imported. A failure prints one line,
with a link if the error has a code, and gives an exit status of 1. What the command line alone shows to be wrong is
the matter of the command's parser (`arguments.Parser`), which gives 2. Commands have its `error` as `options.fail`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Final

from streamcodec import __version__
from streamcodec.cli.arguments import Parser
from streamcodec.cli.output import complain, flush, is_read
from streamcodec.cli.statuses import BROKEN_PIPE, INTERRUPTED
from streamcodec.engine.errors import LocalProtocolError, MessageError, ProtocolError

_COMMANDS: Final = {
    "serve": ("serving.serve", "serve models over HTTP"),
    "infer": ("inferring.infer", "send arrays to a model"),
    "encode": ("inferring.encode", "write a request to a file, for other programs to send"),
    "bench": ("bench", "measure how quickly a server answers"),
    "guard": ("serving.guard", "check requests on their way to a server that does not check them"),
    "demo": ("demo", "show what streaming a tensor costs, on this machine"),
    "fuzz": ("fuzz", "examine a server with malformed requests"),
    "inspect": ("inspecting.inspect", "show what a message or a file of tensors holds, or which byte is wrong"),
}
"""The module of each command, and its description."""

_EPILOG: Final = """\
examples:
  streamcodec demo
  streamcodec serve my_models.py --port 8000
  streamcodec infer http://127.0.0.1:8000 identity --input x=x.npy
  streamcodec bench http://127.0.0.1:8000 --model net --concurrency 1,4,16
  streamcodec guard --upstream http://127.0.0.1:8001
  streamcodec fuzz http://127.0.0.1:8000 --model identity
  streamcodec inspect request.bin

Each command has its own --help. The exit status is 0 for success, 1 for a failure, 2 for a wrong command line, 130
after Ctrl-C, and 141 if the output is a pipe that nobody reads any more.
"""


_FAILED: Final = 500

_UNPRINTED: Final = partial(argparse.RawDescriptionHelpFormatter, width=80)
"""Formats a parser's texts before its help is wanted. `argparse` checks each option with a new formatter, and one that
has to find the width of the terminal imports `shutil`. That takes 0.4 MiB, which a server would keep."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments, and import the called command.

    Args:
        arguments: None for those of the process.

    Raises:
        SystemExit: help was requested, or the arguments are wrong.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = Parser(
        prog="streamcodec",
        description="Move tensors over HTTP by the Binary Tensor Data Extension of the V2 inference protocol.",
        epilog=_EPILOG,
        formatter_class=_UNPRINTED,
    )
    parser.add_argument("--version", action="version", version=f"streamcodec {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    called = next((word for word in arguments if not word.startswith("-")), None)
    for name, (module, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, formatter_class=_UNPRINTED)
        if name == called:
            import_module(f"streamcodec.cli.{module}").add_arguments(command)
            command.set_defaults(fail=command.error, in_flags=command.in_flags)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Run a command; return the exit status."""
    try:
        options.run(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ProtocolError, OSError) as error:
        if isinstance(error, BrokenPipeError) and not is_read(sys.stdout):
            return BROKEN_PIPE
        link = f"; see {error.code.link} in the project's sources" if isinstance(error, MessageError) else ""
        log = "; the server's log may say more" if getattr(error, "status", None) == _FAILED else ""
        told = getattr(options, "told", str)  # how the command words an error, if not as it is
        words = options.in_flags(told(error)) if isinstance(error, LocalProtocolError) else told(error)
        complain("; ".join([words or type(error).__name__, *getattr(error, "__notes__", ())]) + log + link)
        return 1
    return 0


def status_of(end: SystemExit) -> int:
    """Return the exit status; print the message, if the exception has one instead of a status."""
    if isinstance(end.code, str):
        complain(end.code)
        return 1
    return end.code or 0


def finished(status: int) -> int:
    """Flush the output; return the exit status, which changes if only the flush fails."""
    try:
        flush(sys.stdout)
    except BrokenPipeError:
        status = status or BROKEN_PIPE
    except OSError as error:
        if not status:  # else an error has been printed already
            complain(str(error))
        status = status or 1
    with suppress(OSError):  # there is no output left to report it
        flush(sys.stderr)
    return status
