"""Command line: `streamcodec serve`, `streamcodec infer`, `streamcodec demo`, `streamcodec fuzz`.

Each command is a module with `add_parser` and `run`; this one puts them together and turns what went wrong into one
line and an exit status: 1 for a failure, 2 for wrong arguments, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from streamcodec import ProtocolError, __version__
from streamcodec.cli import demo, fuzz, infer, serve
from streamcodec.cli.output import complain

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="streamcodec",
        description="Move tensors over HTTP by the Binary Tensor Data Extension of the V2 inference protocol.",
    )
    parser.add_argument("--version", action="version", version=f"streamcodec {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (serve, infer, demo, fuzz):
        command.add_parser(commands)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (ProtocolError, OSError) as error:
        complain(str(error) or type(error).__name__)
        return 1
    return 0
