"""A second reader of frames, written from `docs/frame.md` alone, with nothing but `struct` and `json`.

It has a whole stream in memory, and returns which parts were accepted and which were skipped.
"""

from __future__ import annotations

import json
import struct
from typing import Any

Read = tuple[Any, ...]
"""`("frame", kind, JSON header, bytes of each tensor)` or `("skipped", offset, bytes, code)`."""


def crc32(data: bytes) -> int:
    """Compute it bit by bit, as the page says."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)  # 04C11DB7, reflected
    return value ^ 0xFFFFFFFF


class Wrong(Exception):  # noqa: N818 - not our program's error
    """A rule does not hold."""


def head(data: bytes) -> tuple[int, int, int, int] | None:
    """Return kind, checksum, H and B of a right head."""
    if len(data) < 24 or data[:4] != bytes.fromhex("89563246"):
        return None
    check, version, kind, checksum, reserved, header_length, body_length = struct.unpack("<I4BIQ", data[4:24])
    if check != crc32(data[8:24]) or version != 1 or kind > 1 or checksum > 1 or reserved:
        return None
    return (kind, checksum, header_length, body_length) if 1 <= header_length <= body_length else None


def body(data: bytes, header_length: int, kind: int) -> tuple[Any, list[bytes]]:
    """Split a body."""
    try:
        root = json.loads(data[:header_length])
        position = header_length
        tensors = []
        for entry in root["outputs" if kind else "inputs"]:
            size = (entry.get("parameters") or {}).get("binary_data_size", 0)
            tensors.append(data[position : position + size])
            position += size
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Wrong("header") from None
    if position != len(data):
        raise Wrong("body-length-mismatch")
    return root, tensors


def frame(data: bytes, fields: tuple[int, int, int, int], expected_kind: int, length: int) -> Read:
    """Read a frame whose head is right."""
    kind, checksum, header_length, body_length = fields
    if kind != expected_kind:
        raise Wrong("kind")
    if len(data) < length:
        raise Wrong("truncated")
    if checksum and struct.unpack("<I", data[-4:])[0] != crc32(data[:-4]):
        raise Wrong("invalid-checksum")
    return kind, *body(data[24 : 24 + body_length], header_length, kind)


def read_stream(data: bytes, expected_kind: int) -> list[Read]:
    """Read all of a stream."""
    found: list[Read] = []
    position = searched_from = 0
    while position < len(data):
        fields = head(data[position : position + 24])
        if fields is None:
            position += 1
            continue
        if searched_from < position:
            found.append(("skipped", searched_from, position - searched_from, "no head"))
        end = position + 24 + fields[3] + 4 * fields[1]
        try:
            found.append(("frame", *frame(data[position:end], fields, expected_kind, end - position)))
        except Wrong as wrong:
            found.append(("skipped", position, min(end, len(data)) - position, str(wrong)))
        position = searched_from = min(end, len(data))
    if searched_from < len(data):
        found.append(("skipped", searched_from, len(data) - searched_from, "no head"))
    return found
