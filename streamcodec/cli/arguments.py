"""Arguments: types that several commands share."""

from __future__ import annotations

import argparse
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

from streamcodec.engine.errors import LocalProtocolError

_UNITS: Final = {"K": 10, "M": 20, "G": 30, "T": 40}
_SIZE: Final = re.compile("([0-9]+)(|[KMGT](?:iB?)?)", re.ASCII | re.IGNORECASE)
UNITS: Final = "K, M, G or T (as 4G or 4GiB)"
"""How messages and help name the units of a size."""
_MAX_DIGITS: Final = 12
_ALL_PERMISSIONS: Final = 0o777
_LOWEST_RATE: Final = 0.001


T = TypeVar("T")

_PARAMETER: Final = re.compile("[a-z]+(?:_[a-z]+)+")
"""Names of options in Python."""


class Parser(argparse.ArgumentParser):
    """A parser whose complaints name options as the command line does, also where the library says what is wrong."""

    def in_flags(self, words: str) -> str:
        """Put the flags of options in the place of their names in Python."""
        actions = self._actions  # argparse has no other list of them
        flags = {action.dest: action.option_strings[-1] for action in actions if action.option_strings}
        return _PARAMETER.sub(lambda name: flags.get(name[0], name[0]), words)

    def error(self, message: str) -> NoReturn:
        """End with status 2, the usage and the message: the command line alone shows what is wrong."""
        super().error(self.in_flags(message))


class Once(argparse.Action):
    """An option that has one value: a second one would replace the first silently."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - the signature of argparse
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """Take the value."""
        if getattr(namespace, self.dest, None) is not None:
            raise argparse.ArgumentError(self, "it can be given once only")
        setattr(namespace, self.dest, values)


def given(options: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return those of the options that were given."""
    return {name: value for name in names if (value := getattr(options, name, None)) is not None}


@contextmanager
def judged(options: argparse.Namespace) -> Iterator[None]:
    """Refuse the command line where the library refuses the values of its options."""
    try:
        yield
    except LocalProtocolError as error:
        options.fail(str(error))


def by_name(options: argparse.Namespace, flag: str, pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Return the values of an option that is given once for each name."""
    found: dict[str, T] = {}
    for name, value in pairs:
        if name in found:
            options.fail(f"{flag}: {name!r} is given twice")
        found[name] = value
    return found


def checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return a type whose values are checked by what they are for, which refuses them with `LocalProtocolError`."""

    def read(text: str) -> str:
        try:
            check(text)
        except LocalProtocolError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return read


def port(text: str) -> int:
    """Read a port number."""
    highest = 65535
    if not (text.isascii() and text.isdigit() and int(text) <= highest):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a number from 0 to {highest}")
    return int(text)


def permissions(text: str) -> int:
    """Read the permissions of a file, in octal."""
    if not re.fullmatch("[0-7]{3,4}", text, re.ASCII) or int(text, 8) > _ALL_PERMISSIONS:
        raise argparse.ArgumentTypeError(f"{text!r} is not the permissions of a file: three octal digits, as 660")
    return int(text, 8)


def count(text: str) -> int:
    """Read a number of things."""
    if not (_is_number(text) and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer above 0")
    return int(text)


def number(text: str) -> int:
    """Read an integer that may be 0."""
    if not _is_number(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of 0 or more")
    return int(text)


def size(text: str) -> int:
    """Read a number of bytes, in units of 1024."""
    if not (nbytes := size_or_0(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: an integer above 0, optionally with {UNITS}")
    return nbytes


def size_or_0(text: str) -> int:
    """Read a number of bytes that may be 0, in units of 1024; `4G`, `4Gi` and `4GiB` are the same.

    `4GB` is refused: to some people it is 4,000,000,000 bytes.
    """
    found = _SIZE.fullmatch(text)
    if found is None or not _is_number(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: an integer, optionally with {UNITS}")
    return int(found[1]) << _UNITS.get(found[2][:1].upper(), 0)


def size_text(nbytes: int) -> str:
    """Write a number of bytes in the form that `size` reads."""
    for unit, power in reversed(_UNITS.items()):
        if nbytes % (1 << power) == 0:
            return f"{nbytes >> power}{unit}"
    return str(nbytes)


_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """Read a time in seconds that sockets can wait."""
    value = _real(text)
    if not 0 < value <= threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def seconds_or_0(text: str) -> float:
    """Read a time in seconds that may be 0."""
    return 0.0 if _real(text) == 0 else seconds(text)


def duration(text: str) -> float:
    """Read a time in seconds, or with its unit: 90, 90s, 10m, 2h."""
    unit = _SECONDS.get(text[-1:], None)
    value = _real(text if unit is None else text[:-1]) * (unit or 1)
    if not 0 < value <= threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time above 0, as 90, 90s, 10m or 2h")
    return value


def rate(text: str) -> float:
    """Read a rate per second; very low rates are refused because of their long pauses."""
    value = _real(text)
    if not _LOWEST_RATE <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: a number per second, {_LOWEST_RATE} or more")
    return value


def rate_or_0(text: str) -> float:
    """Read a rate per second that may be 0."""
    return 0.0 if _real(text) == 0 else rate(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
