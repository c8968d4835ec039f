"""Statuses: what an answer may have, by its status (RFC 9110, section 15; RFC 9112, section 6.3).

All who send answers ask here: the connections of the bundled server and of the guard, the service, and the adapters to
other servers. Only the status of a final answer can be sent. Some of them have no content. The end of an answer with
204 or 304 is the end of its head, whatever its fields say: bytes after it would be taken for the next answer. An answer
with 205 has a body like others, which must be empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from streamcodec.engine.errors import FINAL_STATUSES, LocalProtocolError

_ENDS_WITH_HEAD: Final = frozenset({204, 304})
_WITHOUT_CONTENT: Final = _ENDS_WITH_HEAD | {205}

Field = tuple[str, str] | tuple[bytes, bytes]
"""A field of an answer: its name and its value."""

_LENGTH: Final = frozenset[str | bytes]({"content-length", b"content-length"})
_NAMES: Final = ("content-encoding", "content-type", "inference-header-content-length", "transfer-encoding")
_CONTENT_FIELDS: Final = _LENGTH | {*_NAMES, *map(str.encode, _NAMES)}
"""Names in lower case of the fields about content. Answers without it have none of them, but for a 205's length 0."""

_PHRASES: Final = {int(status): status.phrase for status in HTTPStatus}
_CLASSES: Final = {2: "Success", 3: "Redirection", 4: "Client Error", 5: "Server Error"}


def checked_status(status: int) -> int:
    """Return the status of a final answer.

    Raises:
        LocalProtocolError: it is not 200 to 599.
    """
    if status not in FINAL_STATUSES:
        msg = f"the status of an answer is 200 to 599, not {status!r}"
        raise LocalProtocolError(msg)
    return int(status)


def ends_with_head(status: int) -> bool:
    """Whether an answer ends with its head, so that no field and no byte of a body follow."""
    return status in _ENDS_WITH_HEAD


def has_content(status: int) -> bool:
    """Whether an answer may have content: a body that is not empty."""
    return status not in _WITHOUT_CONTENT


def phrase_of(status: int) -> str:
    """Return the reason phrase of a final answer; empty if the status has none, as 499."""
    return _PHRASES.get(status, "")


def line_of(status: int) -> str:
    """Return the status of a final answer with its reason phrase, for those who demand one, as PEP 3333."""
    return f"{status} {phrase_of(status) or _CLASSES[status // 100]}"


def fields_for(status: int, fields: Iterable[Field], length: int | None) -> list[Field]:
    """Return the fields of an answer as its status and its body allow them.

    Args:
        status: of the answer.
        fields: those that its owner gives. Without content, those that tell about content are left out.
        length: bytes of the body, for a `Content-Length` if there is none; None to add none.
    """
    found = [*fields]
    if not has_content(status):
        found = [(name, value) for name, value in found if name.lower() not in _CONTENT_FIELDS]  # type: ignore[misc]  # of one kind
        return found if ends_with_head(status) else [*found, ("Content-Length", "0")]
    if length is not None:
        for name, _ in reversed(found):
            if name.lower() in _LENGTH:
                return found
        found.append(("Content-Length", str(length)))
    return found
