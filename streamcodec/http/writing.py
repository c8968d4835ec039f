"""Writing: turns a message into the parts that are sent, for requests and responses. h11 writes the head only.

h11 counts the body against `Content-Length`, and needs only lengths for this. So a part that does not exist yet (a
tensor given as `Rows`) is counted like any other. The sender makes it when it is its turn. The sender also compares the
windows with the declared length, and breaks off if they differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

import h11

from streamcodec.engine.errors import LocalProtocolError, shown
from streamcodec.engine.message import Part
from streamcodec.engine.rows import Rows

PartT = TypeVar("PartT", bound=Part)

NOT_HTTP: Final = (h11.LocalProtocolError, UnicodeEncodeError)
"""The errors of h11 for a head with fields that are not valid HTTP."""


class _Counted:
    """Stands for `Rows` where h11 asks for a length."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows.nbytes


def write_message(
    connection: h11.Connection, head: h11.Request | h11.Response, parts: Iterable[PartT]
) -> list[bytes | PartT]:
    """Return head and body as the parts to be sent. Nothing is joined or copied.

    Args:
        connection: the h11 connection of this cycle.
        head: with the `Content-Length` of the parts.
        parts: byte views or bytes, and `Rows`.

    Raises:
        LocalProtocolError: the connection is in the wrong state, or the parts do not fill the declared length.
    """
    sent: list[bytes | PartT] = []
    try:
        sent.append(connection.send(head) or b"")
        for part in parts:
            sent += _passed(connection, part)
        sent += connection.send_with_data_passthrough(h11.EndOfMessage()) or []
    except h11.LocalProtocolError as error:
        raise LocalProtocolError(str(error)) from None
    return sent


def write_piece(connection: h11.Connection, part: PartT) -> list[bytes | PartT]:
    """Return a piece of a body whose head was sent before, with its framing.

    Raises:
        LocalProtocolError: no body is being sent, or it becomes longer than its `Content-Length`.
    """
    try:
        return _passed(connection, part)
    except h11.LocalProtocolError as error:
        raise LocalProtocolError(str(error)) from None


def write_end(connection: h11.Connection) -> bytes:
    """Return the end of a body that was sent in pieces.

    Raises:
        LocalProtocolError: it is shorter than its `Content-Length`.
    """
    try:
        return connection.send(h11.EndOfMessage()) or b""
    except h11.LocalProtocolError as error:
        raise LocalProtocolError(str(error)) from None


def _passed(connection: h11.Connection, part: PartT) -> list[bytes | PartT]:
    """Let h11 count a part, and frame it if the body is chunked."""
    data: Any = _Counted(part) if isinstance(part, Rows) else part  # h11 documents that any sized object passes
    passed: Any = connection.send_with_data_passthrough(h11.Data(data=data))
    return [part if item is data else item for item in passed]


def check_field(name: str, value: str) -> None:
    """Refuse an invalid field, without quoting its value, which may be a secret.

    Raises:
        LocalProtocolError: the name is not a token; or the value has a line end, another control character, a character
            outside ASCII, or white space at its start or end.
    """
    try:
        h11.InformationalResponse(status_code=100, headers=[(name, "")])
    except NOT_HTTP:
        msg = f"{shown(name)} cannot be the name of a field"
        raise LocalProtocolError(msg) from None
    if not _is_value(name, value):
        msg = f"the value of the field {shown(name)} is not allowed: it has a line end (perhaps its last character), "
        msg += "another control character, white space at its start or end, or a character outside ASCII"
        raise LocalProtocolError(msg)


def _is_value(name: str, value: str) -> bool:
    try:
        h11.InformationalResponse(status_code=100, headers=[(name, value)])
    except NOT_HTTP:
        return False
    return value.replace("\t", " ").isprintable()  # h11 lets most control characters pass


def length_of(parts: Iterable[Part]) -> int:
    """Return the bytes of the parts of a body, including parts that do not exist yet."""
    return sum(part.nbytes if isinstance(part, Rows | memoryview) else len(part) for part in parts)
