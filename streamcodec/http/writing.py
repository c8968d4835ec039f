"""Writing: a message to the parts that are sent, for requests and responses alike. h11 writes the head; payload passes.

h11 counts what passes against `Content-Length`, and for that it needs lengths only. So a part that does not exist yet,
a tensor given as `Rows`, is counted like any other, and whoever sends has it made when it is its turn. It cannot come
out at another length: the sender holds its windows against what was declared, and breaks off if they differ.
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
"""What h11 raises when a head is made of fields that are not HTTP."""


class _Counted:
    """Stands for `Rows` where h11 asks for a length."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows.nbytes


def write_message(
    connection: h11.Connection, head: h11.Request | h11.Response, parts: Iterable[PartT]
) -> list[bytes | PartT]:
    """Return head and body as the parts to be sent; nothing is joined, copied or asked for.

    Args:
        connection: of this cycle.
        head: with the `Content-Length` of the parts.
        parts: byte views or bytes, and `Rows`.

    Raises:
        LocalProtocolError: not the time for this message, or the parts do not fill the declared length.
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


def _passed(connection: h11.Connection, part: PartT) -> list[bytes | PartT]:
    """Let h11 count a part, and frame it where the body is chunked."""
    data: Any = _Counted(part) if isinstance(part, Rows) else part  # h11 documents that any sized object passes
    passed: Any = connection.send_with_data_passthrough(h11.Data(data=data))
    return [part if item is data else item for item in passed]


def check_field(name: str, value: str) -> None:
    """Refuse a field that no head can have, without quoting its value, which may be a secret.

    Raises:
        LocalProtocolError: the name is no token, or the value has a line end, another control character, a character
            beyond ASCII, or white space at one of its ends.
    """
    try:
        h11.InformationalResponse(status_code=100, headers=[(name, "")])
    except NOT_HTTP:
        msg = f"{shown(name)} cannot be the name of a field"
        raise LocalProtocolError(msg) from None
    if not _is_value(name, value):
        msg = f"the value of the field {shown(name)} has what none may have: a line end, perhaps its last character, "
        msg += "another control character, white space at an end, or a character beyond ASCII"
        raise LocalProtocolError(msg)


def _is_value(name: str, value: str) -> bool:
    try:
        h11.InformationalResponse(status_code=100, headers=[(name, value)])
    except NOT_HTTP:
        return False
    return value.replace("\t", " ").isprintable()  # h11 lets most control characters pass


def length_of(parts: Iterable[Part]) -> int:
    """Return how many bytes the parts of a body have, also those that do not exist yet."""
    return sum(part.nbytes if isinstance(part, Rows | memoryview) else len(part) for part in parts)
