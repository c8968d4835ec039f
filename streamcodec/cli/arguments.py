"""Arguments: types that several commands share."""

from __future__ import annotations

import argparse
import threading
from typing import Any, Protocol


class Commands(Protocol):
    """What a command adds its parser to; argparse has no public name for it."""

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser:  # noqa: ANN401 - argparse's own
        """Add a parser for one command."""
        ...


def port(text: str) -> int:
    """Read a port number."""
    highest = 65535
    if not (text.isascii() and text.isdigit() and int(text) <= highest):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a number from 0 to {highest}")
    return int(text)


def seconds(text: str) -> float:
    """Read a time that sockets can wait."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value <= threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value
