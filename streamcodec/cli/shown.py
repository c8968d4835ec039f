"""Words and figures that the text and the page of `inspect` have in common. Nothing here is escaped or styled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from streamcodec.inspection import HexView, TensorReport

_ROW_BYTES: Final = 16
_PRINTABLE: Final = range(0x20, 0x7F)


@dataclass(frozen=True, slots=True, kw_only=True)
class HexRow:
    """16 bytes of a hex view."""

    start: int
    """Offset of the first byte."""
    cells: tuple[str, ...]
    """Two digits for each byte; blanks where there is none."""
    text: str
    """The bytes as ASCII characters, `.` for all others."""
    marked: int | None
    """Number of the marked cell; None if it is in another row."""
    remark: str
    """What to say about the marked cell."""


def hex_rows(view: HexView) -> Iterator[HexRow]:
    """Yield the rows of a view, up to the last byte or to the mark."""
    end = max(view.start + len(view.data), view.marked + 1)
    for start in range(view.start, end, _ROW_BYTES):
        data = view.data[start - view.start : start - view.start + _ROW_BYTES]
        marked = view.marked - start if start <= view.marked < start + _ROW_BYTES else None
        if not data and marked is None:
            continue
        yield HexRow(
            start=start,
            cells=tuple([f"{octet:02x}" for octet in data] + ["  "] * (_ROW_BYTES - len(data))),
            text="".join(chr(octet) if octet in _PRINTABLE else "." for octet in data).ljust(_ROW_BYTES),
            marked=marked,
            remark="" if marked is None else _remark(view),
        )


def _remark(view: HexView) -> str:
    if not view.data:
        return "the bytes around it are not at hand: the input is a pipe" if view.marked else "there are no bytes"
    return "the input ends here" if view.marked >= view.start + len(view.data) else "this byte"


def figures(tensor: TensorReport) -> list[tuple[str, str]]:
    """Return the statistics of a tensor, as names and texts."""
    statistics = tensor.statistics
    if statistics is None:
        return []
    length = " length" if tensor.datatype == "BYTES" else ""
    figures = [
        (f"min{length}", _number(statistics.minimum)),
        (f"max{length}", _number(statistics.maximum)),
        (f"mean{length}", _number(statistics.mean)),
        ("NaN", f"{statistics.nan_count:,}"),
        ("infinite", f"{statistics.infinity_count:,}"),
    ]
    return [("elements", f"{statistics.count:,}"), *figures[: 3 if length else 5]]


def unread_text(tensor: TensorReport) -> str:
    """Say why a tensor has no statistics."""
    if 0 in tensor.shape:
        return "no values"
    return "no statistics" if tensor.first_values else "not read"


def place_text(tensor: TensorReport) -> str:
    """Say how large a tensor is and where it stands."""
    if tensor.offset is None:
        return "in the header, as JSON"
    return f"{size_text(tensor.nbytes)} at byte {tensor.offset:,}"


def alignment_text(tensor: TensorReport) -> str:
    """Say how a tensor is aligned in the body."""
    return f"aligned to {tensor.alignment:,} byte{'s' if tensor.alignment != 1 else ''}"


def shape_text(shape: tuple[int, ...]) -> str:
    """Write a shape."""
    return f"[{', '.join(map(str, shape))}]"


def size_text(nbytes: int) -> str:
    """Write a number of bytes, exactly."""
    return f"{nbytes:,} byte{'s' if nbytes != 1 else ''}"


def _number(value: float | None) -> str:
    return "none" if value is None else str(value) if isinstance(value, int) else f"{value:.6g}"
