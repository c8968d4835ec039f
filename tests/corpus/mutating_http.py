"""Mutating HTTP: accepted HTTP messages of the corpus with one byte of their framing changed.

Framing is the head, the lines around chunks, and all of a compressed body, which has a checksum. None of it is a part
of the tensors. So whatever is changed there, the message is refused, or exactly the same inference arrives: never other
tensors, and never one of them cut short. What was changed is the kind, as in `mutating.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from streamcodec.testing import describe_array, describe_header
from streamcodec.testing.descriptions import ArrayDescription, HeaderDescription
from tests.corpus.mutating import Change, others
from tests.corpus.reading import Case
from tests.corpus.running import deliver, http_parts

_OK: Final = 200
_UNPACKED: Final = "name of Content-Encoding"
_CHECKED: Final = frozenset({"gzip", "gzip-members", "deflate"})
"""Compressions with a checksum. Of a bare deflate stream another body may come out, as good as the one sent."""

_DECISIVE: Final = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"inference-header-content-length"}
)
"""Fields that say what the body is; and `Host`, which must be there."""


def is_for_connection(case: Case) -> bool:
    """Tell whether a case is an HTTP message that carries an accepted inference, with nothing before it."""
    is_accepted = case.kind in {"http-request", "http-response"} and case.outcome == "accepted"
    return is_accepted and not case.is_refused and not case.message.startswith("HTTP/1.1 1")


def framing_changes(case: Case) -> list[Change]:
    """Return places of the framing, and telling bytes to put there."""
    message = b"".join(http_parts(case))
    return [(place, other) for place in _framing(case) for other in others(message[place], is_whole=False)]


def _framing(case: Case) -> Iterator[int]:
    head, body = http_parts(case)
    yield from range(len(head))
    if "chunked" in case.options:
        yield from (len(head) + place for place in _around_chunks(body))
    elif _CHECKED & case.options.keys():
        yield from range(len(head), len(head) + len(body))


def _around_chunks(body: bytes) -> Iterator[int]:
    """Yield the places of the lines with sizes, and of the line ends behind the data."""
    start, size = 0, -1
    while size:
        line_end = body.index(b"\r\n", start) + 2
        size = int(body[start:line_end], 16)
        yield from range(start, line_end)
        start = line_end + size
        yield from range(start, start + 2)
        start += 2


Inference = tuple[HeaderDescription, list[tuple[str, ArrayDescription]]]
"""What has arrived, to be compared."""


def inference_of(case: Case, message: bytes) -> Inference | None:
    """Bring a message to the connection of a case; return what was accepted, if it was."""
    seen = deliver(case, message)
    is_answered = seen.reply is None or seen.reply.status == _OK
    if seen.error is not None or seen.header is None or not is_answered:
        return None
    return describe_header(seen.header), [(spec.name, describe_array(array)) for spec, array in seen.tensors]


def accepted_framing(case: Case, change: Change, wanted: Inference | None) -> str | None:
    """Bring a message with one byte changed to a connection, and find out what kind of change was accepted.

    Args:
        case: whose message is changed.
        change: the place, and the byte to put there.
        wanted: what arrives without the change.

    Returns:
        The kind; None if the message was refused.

    Raises:
        AssertionError: another inference has arrived.
    """
    message = b"".join(http_parts(case))
    place, other = change
    found = inference_of(case, message[:place] + bytes([other]) + message[place + 1 :])
    if found is None:
        return None
    kind = _kind(message, place, other)
    if found != wanted:
        is_packed = kind == _UNPACKED and _is_raw(found) and _bits(found[1][0][1]) == message.partition(b"\r\n\r\n")[2]
        is_as_good = is_packed or _is_beginning(found, wanted)
        assert is_as_good, f"{case}: byte {place} as {other:#x} makes another inference"
        return f"{kind}, of a raw body"
    return kind


def _is_raw(found: Inference) -> bool:
    return len(found[1]) == 1 and found[0].tensors[0].offset == 0


def _is_beginning(found: Inference, wanted: Inference | None) -> bool:
    """Tell whether a raw body, whose tensor is as long as it is, has become the beginning of itself."""
    if wanted is None or not _is_raw(found):
        return False
    (_, shorter), (_, longer) = *found[1], *wanted[1]
    return _bits(longer).startswith(_bits(shorter))


def _bits(array: ArrayDescription) -> bytes:
    values = array.values
    return b"".join(values) if isinstance(values, list) else bytes(values)


def _kind(message: bytes, place: int, other: int) -> str:
    """Name the part of the framing that a byte belongs to."""
    head_end = message.index(b"\r\n\r\n") + 4
    if place >= head_end:
        return "framing of the body"
    start = message.rfind(b"\n", 0, place) + 1
    line = message[start : message.index(b"\n", place) + 1]
    if message[place : place + 1].lower() == bytes([other]).lower():
        return "letter case"
    if place - start >= len(line) - 2:
        return "line end"
    name, colon, _ = line.partition(b":")
    if start == 0 or not colon:
        return "start line"
    field = name.decode().title() if name.lower() in _DECISIVE else "a field that decides nothing"
    return f"{'name' if place - start <= len(name) else 'value'} of {field}"
