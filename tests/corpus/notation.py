"""Notation: the text of a message as it stands in the corpus, to bytes and places; see README.md."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIGN = re.compile(r"⟨([0-9a-f ]*)(?:\*([0-9]+))?⟩|([‖‸])")


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes, and the places that were marked in them."""

    data: bytes
    header_end: int | None
    error: int | None


def read_bytes(text: str) -> Bytes:
    """Read a message; its signs are none of it."""
    parts: list[bytes] = []
    marks: dict[str, int] = {}
    position = 0
    for sign in _SIGN.finditer(text):
        parts.append(text[position : sign.start()].encode())
        position = sign.end()
        if sign[3]:
            assert sign[3] not in marks, f"{sign[3]} stands twice in a message"
            marks[sign[3]] = sum(map(len, parts))
        else:
            parts.append(bytes.fromhex(sign[1]) * int(sign[2] or 1))
    parts.append(text[position:].encode())
    assert not set("⟨⟩") & set(_SIGN.sub("", text)), "a ⟨ without its ⟩, or what is no hexadecimal in between"
    return Bytes(b"".join(parts), marks.get("‖"), marks.get("‸"))


def read_elements(text: str) -> list[bytes]:
    """Read a list of elements, `⟨01⟩ ⟨⟩`."""
    return [read_bytes(element).data for element in re.findall(r"⟨[^⟩]*⟩", text)]
