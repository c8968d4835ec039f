"""`streamcodec inspect`: shows what a message holds, and where it breaks a rule. Three writers show the same report."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from pathlib import Path
from typing import Final

from streamcodec.cli.arguments import number
from streamcodec.cli.files import check_writable, write
from streamcodec.cli.inspecting.html import html_page
from streamcodec.cli.inspecting.json import json_lines
from streamcodec.cli.inspecting.text import text_lines
from streamcodec.cli.output import say, say_escaped
from streamcodec.inspection import Form, examine

_DESCRIPTION = """\
Show what a message holds: its head, its header, a map of its bytes, and of each tensor its datatype, shape and place,
statistics, first values and a histogram; on a terminal also a small picture, if it has the shape of an image. If the
message is refused, show the rule, the member of the header, and the bytes around the wrong one.

FILE is a captured HTTP message, the body of a request or a response, a frame, a .safetensors, .npy or .npz file. A file
of any size takes the same memory; only a BYTES tensor, and tensors inside of the JSON header, are held as a whole.
"""

_EPILOG: Final = """\
examples:
  streamcodec inspect request.bin
  streamcodec inspect body.bin --header-length 152
  curl -si --raw http://127.0.0.1:8000/v2/models/x/infer ... | streamcodec inspect -
  streamcodec inspect model.safetensors --html report.html

The exit status is 0 if the message is valid, 1 if it is refused, 2 for wrong arguments.
"""

_FORMS: Final = {form.value.lower().replace(" ", "-").removesuffix("-body"): form for form in Form}


_O_BINARY: Final = getattr(os, "O_BINARY", 0)
"""Only Windows has other files than binary ones."""

_BODIES: Final = {None, "request", "response"}


class _File:
    """A file or a pipe, as the source of an examination."""

    def __init__(self, path: str) -> None:
        """Open a file; `-` is standard input.

        Raises:
            OSError: it cannot be opened.
        """
        self.name: str = "standard input" if path == "-" else path
        self._file = os.dup(sys.stdin.fileno()) if path == "-" else os.open(path, os.O_RDONLY | _O_BINARY)
        status = os.fstat(self._file)
        if stat.S_ISDIR(status.st_mode):
            os.close(self._file)
            raise IsADirectoryError(f"{path} is a directory")
        is_regular = stat.S_ISREG(status.st_mode) and path != "-"  # standard input may have been read in part
        self.nbytes: int | None = status.st_size if is_regular else None

    def read(self, size: int) -> bytes:
        """Return the next bytes; none at the end."""
        return os.read(self._file, size)

    def read_at(self, start: int, size: int) -> bytes:
        """Return bytes from anywhere; none if this is a pipe."""
        if self.nbytes is None:
            return b""
        position = os.lseek(self._file, 0, os.SEEK_CUR)  # Windows has no `pread`
        os.lseek(self._file, start, os.SEEK_SET)
        data = os.read(self._file, size)
        os.lseek(self._file, position, os.SEEK_SET)
        return data

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make the command's parser."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE", type=_opened, help="what to inspect; - for standard input")
    parser.add_argument(
        "--header-length",
        type=number,
        metavar="N",
        help="bytes of the JSON header, if FILE is a body (default: search for the end of its JSON object)",
    )
    parser.add_argument("--form", choices=_FORMS, help="what FILE is (default: recognise it by its first bytes)")
    parser.add_argument("--json", dest="is_json", action="store_true", help="print the report as JSON")
    parser.add_argument("--html", type=Path, metavar="PAGE", help="write the report to a page that needs no other file")
    parser.add_argument("--force", action="store_true", help="replace PAGE if it exists already")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Inspect the file, and show the report.

    Raises:
        SystemExit: with status 1, the message is refused.
    """
    if options.header_length is not None and options.form not in _BODIES:
        options.fail("--header-length is for bodies; other forms declare the length of their header themselves")
    if options.html is not None:
        check_writable(options.html, replaces=options.force)
    try:
        report = examine(options.file, form=_FORMS.get(options.form), header_length=options.header_length)
    finally:
        options.file.close()
    if options.html is not None:
        page = html_page(report).encode()
        write(options.html, lambda file: file.write(page), replaces=options.force)
    if options.is_json:
        say(*json_lines(report))
    elif options.html is not None:
        say(f"{report.source}: {'valid' if report.is_valid else 'refused'} -> {options.html}")
    else:
        encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "")
        say_escaped(*text_lines(report, is_styled=_is_terminal(), has_blocks=_is_terminal() and encoding == "utf8"))
    if not report.is_valid:
        raise SystemExit(1)


def _opened(path: str) -> _File:
    try:
        return _File(path)
    except (OSError, ValueError, AttributeError) as error:  # standard input may be closed, or no file
        raise argparse.ArgumentTypeError(f"cannot read {path!r}: {error}") from None


def _is_terminal() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
