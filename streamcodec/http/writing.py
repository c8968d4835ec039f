"""Writing: the heads of messages line by line, and the framing of their bodies, for requests and responses.

The bytes are those that h11 would write, which the tests compare. Names and values are checked by its rules. What the
owner of a connection sends again and again is checked once. A value that is a number needs no check, so it costs no
more if it is new. What may be a secret is not remembered: fields in bytes, which are passed on for somebody else, and
those with credentials.

Nothing in a body is copied. Its parts are only counted, so a part that does not exist yet (a tensor given as `Rows`) is
counted like any other. The sender makes it when it is its turn. The sender also compares the windows with the declared
length, and breaks off if they differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, Protocol, TypeVar

from streamcodec.engine.errors import LocalProtocolError, shown
from streamcodec.http.heads.statuses import Field

_K = TypeVar("_K")
_V = TypeVar("_V")


class Counted(Protocol):
    """A part of a body whose length is known: a byte view, or `Rows`, which are made while they are sent."""

    @property
    def nbytes(self) -> int:
        """Bytes of the part."""
        ...


PartT = TypeVar("PartT", bound=bytes | Counted)

CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(rb"(?:[^\x00\s]++(?:[ \t]++[^\x00\s]++)*+)?")
"""As h11, which lets most control characters pass. `check_field` is stricter, where a user gives fields."""

_LENGTH: Final = b"content-length"
_CODING: Final = b"transfer-encoding"
_CONNECTION: Final = b"connection"
_SPECIAL: Final = {_LENGTH, _CODING, _CONNECTION, b"host"}
_SECRET: Final = {b"authorization: ", b"cookie: ", b"proxy-authorization: ", b"set-cookie: "}
_LAST_CHUNK: Final = b"0\r\n\r\n"
_OTHER_LENGTHS: Final = "conflicting Content-Length headers"
_MAX_DIGITS: Final = 20

_Line = tuple[bytes, bytes, bytes]
"""A field: the whole line; the name in lower case if it means something here, else nothing; and the value."""

_MAX_KNOWN: Final = 512
_MAX_KNOWN_BYTES: Final = 256
_known_names: Final[dict[str | bytes, tuple[bytes, bytes]]] = {}
_known_lines: Final[dict[Field, _Line]] = {}
"""What has been checked. A dictionary that is full is cleared."""


def head_lines(
    start: bytes, fields: Iterable[Field], *, leaves_options: bool = True
) -> tuple[list[bytes], bytes, int, bool, list[bytes], int]:
    """Return the lines of a head: the start line, and those of the owner's fields, with `Host` first.

    Args:
        start: the start line.
        fields: of the owner. `Transfer-Encoding` is left out: its line comes last.
        leaves_options: whether the lines of `Connection` are not left out, too.

    Returns:
        The lines; the value of `Content-Length`, empty if there is none, and the place of its line; whether there is a
        `Transfer-Encoding`; the options of `Connection`, in lower case; how many `Host` there are.

    Raises:
        LocalProtocolError: the fields are not valid HTTP.
    """
    lines, options = [start], list[bytes]()
    declared, place, hosts, is_chunked = b"", 0, 0, False
    for field in fields:
        line, special, value = _known_lines.get(field) or _line(*field)
        if not special:
            lines.append(line)
        elif special == _LENGTH:
            if declared and declared != value:
                raise LocalProtocolError(_OTHER_LENGTHS)
            if not declared:
                declared, place = value, len(lines)
                lines.append(line)
        elif special == _CONNECTION:
            options += [option.strip() for option in value.lower().split(b",")]
            if leaves_options:
                lines.append(line)
        elif special == _CODING:
            if is_chunked:
                msg = "multiple Transfer-Encoding headers"
                raise LocalProtocolError(msg)
            is_chunked = True
        else:
            hosts += 1
            place += 1
            lines.insert(hosts, line)
    return lines, declared, place, is_chunked, options, hosts


class Framing:
    """How the body of one message is framed, and how much of it is missing."""

    __slots__ = ("_is_chunked", "_left")

    def __init__(self, length: int | None, *, is_chunked: bool) -> None:
        """Begin before the body.

        Args:
            length: bytes of the body; None if it ends with the last chunk, or with the connection.
            is_chunked: whether it is sent in chunks.
        """
        self._left = length
        self._is_chunked = is_chunked

    def piece(self, part: PartT) -> list[bytes | PartT]:
        """Return a part of the body with its framing.

        Raises:
            LocalProtocolError: the body becomes longer than its `Content-Length`.
        """
        nbytes = length_of([part])
        if self._left is not None:
            self._left -= nbytes
            if self._left < 0:
                msg = "Too much data for declared Content-Length"
                raise LocalProtocolError(msg)
        if not self._is_chunked:
            return [part]
        return [b"%x\r\n" % nbytes, part, b"\r\n"] if nbytes else []

    def end(self) -> bytes:
        """Return the end of the body.

        Raises:
            LocalProtocolError: it is shorter than its `Content-Length`.
        """
        if self._left:
            msg = "Too little data for declared Content-Length"
            raise LocalProtocolError(msg)
        return _LAST_CHUNK if self._is_chunked else b""

    def whole(self, parts: Sequence[PartT], length: int) -> list[bytes | PartT]:
        """Return the whole body, after which there is nothing to be framed.

        Args:
            parts: of the body.
            length: their bytes.

        Raises:
            LocalProtocolError: they are not those of the `Content-Length`.
        """
        if self._left is not None and length != self._left:
            msg = f"Too {'much' if length > self._left else 'little'} data for declared Content-Length"
            raise LocalProtocolError(msg)
        sent: list[bytes | PartT] = [*parts]
        if self._is_chunked:
            sent = [*chain.from_iterable(map(self.piece, parts)), _LAST_CHUNK]
        self._left, self._is_chunked = 0, False
        return sent


def length_of(parts: Iterable[bytes | Counted]) -> int:
    """Return the bytes of the parts of a body, including parts that do not exist yet."""
    return sum([len(part) if isinstance(part, bytes) else part.nbytes for part in parts])


def is_made_while_sent(parts: Iterable[object]) -> bool:
    """Tell whether a body has parts that do not exist yet."""
    return not _EXISTING.issuperset(map(type, parts))


_EXISTING: Final = frozenset((bytes, memoryview))
"""The types of parts that are there."""


def encoded_fields(fields: Iterable[Field]) -> bytes:
    """Return the lines of fields that mean nothing to the framing.

    Raises:
        LocalProtocolError: they are not valid HTTP.
    """
    return b"".join([_line(*field)[0] for field in fields])


def check_field(name: str, value: str) -> None:
    """Refuse an invalid field, without quoting its value, which may be a secret.

    Raises:
        LocalProtocolError: the name is not a token; or the value has a line end, another control character, a character
            outside ASCII, or white space at its start or end.
    """
    try:
        _named(name)
    except LocalProtocolError:
        msg = f"{shown(name)} cannot be the name of a field"
        raise LocalProtocolError(msg) from None
    try:
        _line(name, value)
        is_value = value.replace("\t", " ").isprintable()
    except LocalProtocolError:
        is_value = False
    if not is_value:
        msg = f"the value of the field {shown(name)} is not allowed: it has a line end (perhaps its last character), "
        msg += "another control character, white space at its start or end, or a character outside ASCII"
        raise LocalProtocolError(msg)


def _line(name: str | bytes, value: str | bytes) -> _Line:
    """Check a field, and return its line."""
    beginning, special = _known_names.get(name) or _named(name)
    encoded = encoded_text(value)
    is_number = encoded.isdigit()
    if not (is_number or _VALUE.fullmatch(encoded)):
        msg = f"the value of the field {shown(beginning.decode().removesuffix(': '))} is not allowed"
        raise LocalProtocolError(msg)
    if special == _LENGTH:
        encoded = _length_in(encoded)
    elif special == _CODING and encoded.lower() != b"chunked":
        msg = "Only Transfer-Encoding: chunked is supported"
        raise LocalProtocolError(msg)
    line = b"%b%b\r\n" % (beginning, encoded), special, encoded
    if is_number or len(encoded) > _MAX_KNOWN_BYTES or beginning.lower() in _SECRET:
        return line
    if isinstance(name, str) and isinstance(value, str):
        _remember(_known_lines, (name, value), line)
    return line


def _named(name: str | bytes) -> tuple[bytes, bytes]:
    """Check the name of a field; return how its line begins, and the name in lower case if it means something."""
    encoded = encoded_text(name)
    if not _NAME.fullmatch(encoded):
        msg = f"{shown(encoded.decode('latin-1'))} cannot be the name of a field"
        raise LocalProtocolError(msg)
    lower = encoded.lower()
    known = encoded + b": ", lower if lower in _SPECIAL else b""
    if len(encoded) <= _MAX_KNOWN_BYTES:
        _remember(_known_names, name, known)
    return known


def encoded_text(text: str | bytes) -> bytes:
    """Return text as ASCII.

    Raises:
        LocalProtocolError: it has other characters.
    """
    try:
        return text.encode("ascii") if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise LocalProtocolError(str(error)) from None


def _length_in(value: bytes) -> bytes:
    """Return the one length in a `Content-Length`, which may be given several times."""
    lengths = {length.strip() for length in value.split(b",")}
    if len(lengths) != 1:
        raise LocalProtocolError(_OTHER_LENGTHS)
    length = lengths.pop()
    if not length.isdigit() or len(length) > _MAX_DIGITS:
        msg = "bad Content-Length"
        raise LocalProtocolError(msg)
    return length


def _remember(known: dict[_K, _V], key: _K, value: _V) -> None:
    if len(known) >= _MAX_KNOWN:
        known.clear()
    known[key] = value
