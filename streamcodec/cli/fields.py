"""Fields: fields of HTTP on the command line."""

from __future__ import annotations

import argparse
import re
from typing import Final

from streamcodec.client.fields import checked_headers
from streamcodec.engine.errors import LocalProtocolError

_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0-\x08\n-\x1f\x7f]*)")
"""A field of HTTP: a token, a colon, and a value without control characters (RFC 9110, 5.1 and 5.5)."""


def add_header(group: argparse._ArgumentGroup) -> None:
    """Add the option for fields of the request."""
    group.add_argument(
        "--header",
        dest="headers",
        action="append",
        default=[],
        type=_header,
        metavar="'NAME: VALUE'",
        help="a field for the request; give one for each",
    )


def _header(text: str) -> tuple[str, str]:
    """Read `Name: value`."""
    found = _HEADER.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not 'Name: value'")
    field = found[1], found[2].rstrip(" \t")
    try:
        checked_headers([field])
    except LocalProtocolError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return field
