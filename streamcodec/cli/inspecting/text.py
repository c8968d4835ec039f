"""The report of `inspect` as text: plain for files and pipes; with colours, bars and pictures for a terminal.

Everything from the message is escaped before colours are added, so the only escape sequences are those of this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from streamcodec.cli.shown import alignment_text, figures, hex_rows, place_text, shape_text, size_text, unread_text
from streamcodec.engine.errors import printable, shortened
from streamcodec.inspection import Failure, Histogram, Picture, Report, Segment, TensorReport

_MAP_WIDTH: Final = 40
_PICTURE_WIDTH: Final = 48
_HEADER_LINES: Final = 60
_MOST_TENSORS: Final = 100
_NAME_CHARACTERS: Final = 80
_LINE_CHARACTERS: Final = 200
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_PLAIN_BLOCKS: Final = ".:-=+*#@"
_BOLD, _DIM, _RED, _GREEN, _MARK, _END = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[30;43m", "\x1b[0m"


def text_lines(report: Report, *, is_styled: bool, has_blocks: bool) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        report: what to show.
        is_styled: whether to use colours.
        has_blocks: whether block characters can be shown; pictures need both.
    """
    yield from _Writer(is_styled=is_styled, has_blocks=has_blocks).report(report)


class _Writer:
    def __init__(self, *, is_styled: bool, has_blocks: bool) -> None:
        self._is_styled = is_styled
        self._has_blocks = has_blocks

    def report(self, report: Report) -> Iterator[str]:
        verdict = self._style("valid", _GREEN) if report.is_valid else self._style("refused", _RED)
        size = "" if report.nbytes is None else f", {size_text(report.nbytes)}"
        yield f"{self._style(printable(report.source), _BOLD)}: {report.form}{size}: {verdict}"
        yield from (f"note: {printable(note)}" for note in report.notes)
        if report.failure is not None:
            yield from self._failure(report.failure)
        if report.head is not None:
            yield from self._heading(f"head, {size_text(report.head.nbytes)}")
            yield f"  {_line(report.head.start_line)}"
            yield from (f"  {_line(f'{name}: {value}')}" for name, value in report.head.fields)
        if report.header is not None:
            yield from self._heading(f"header, {size_text(report.header.nbytes)}")
            lines = report.header.text.rstrip().split("\n")
            yield from (f"  {_line(line)}" for line in lines[:_HEADER_LINES])
            if report.header.is_cut or len(lines) > _HEADER_LINES:
                yield self._style("  ... (cut)", _DIM)
        if report.segments:
            yield from self._heading("bytes, to scale")
            yield from self._map(report.segments)
        for tensor in report.tensors[:_MOST_TENSORS]:
            yield from self._tensor(tensor)
        if len(report.tensors) > _MOST_TENSORS:
            yield from self._heading(f"and {len(report.tensors) - _MOST_TENSORS} more tensors, all of them with --json")

    def _failure(self, failure: Failure) -> Iterator[str]:
        yield from self._heading(f"{self._style(failure.code, _RED)}: {printable(failure.message)}")
        yield f"  see {failure.link}"
        if failure.path is not None:
            yield f"  at {printable(failure.path)}"
        if failure.offset is None:
            yield "  no single byte is wrong"
            return
        yield f"  at byte {failure.offset:,} (0x{failure.offset:x})"
        if failure.view is None:
            return
        for row in hex_rows(failure.view):
            cells = [self._style(cell, _MARK) if index == row.marked else cell for index, cell in enumerate(row.cells)]
            yield f"  {row.start:010x}  {' '.join(cells)}  |{row.text}|"
            if row.marked is not None:
                yield f"  {'':10}  {'   ' * row.marked}^^ {row.remark}"

    def _map(self, segments: Sequence[Segment]) -> Iterator[str]:
        end = max(each.start + each.nbytes for each in segments) or 1
        for each in segments[:_MOST_TENSORS]:
            first = min(each.start * _MAP_WIDTH // end, _MAP_WIDTH - 1)
            last = max(first + 1, -(-(each.start + each.nbytes) * _MAP_WIDTH // end)) if each.nbytes else first
            bar = f"{'.' * first}{'#' * (last - first)}{'.' * (_MAP_WIDTH - last)}"
            yield f"  {bar}  {each.start:>13,}  {each.nbytes:>13,}  {each.kind:<6}  {_name(each.name)}"
        if len(segments) > _MOST_TENSORS:
            yield f"  and {len(segments) - _MOST_TENSORS} more"

    def _tensor(self, tensor: TensorReport) -> Iterator[str]:
        name = self._style(_name(tensor.name), _BOLD)
        yield from self._heading(
            f"{name}: {printable(tensor.datatype)} {shape_text(tensor.shape)}, {place_text(tensor)}"
        )
        if tensor.alignment is not None:
            yield f"  {alignment_text(tensor)}"
        if tensor.statistics is None:
            yield f"  {unread_text(tensor)}"
        else:
            yield f"  {'  '.join(f'{name} {value}' for name, value in figures(tensor))}"
        if tensor.first_values:
            yield f"  first: {', '.join(map(printable, tensor.first_values))}"
        if tensor.statistics is not None and tensor.statistics.histogram is not None:
            yield f"  {self._histogram(tensor.statistics.histogram)}"
        if tensor.picture is not None and self._is_styled and self._has_blocks:
            yield from _pixels(tensor.picture)

    def _histogram(self, histogram: Histogram) -> str:
        blocks, most = _BLOCKS if self._has_blocks else _PLAIN_BLOCKS, max(histogram.counts)
        bars = "".join(
            blocks[(count * (len(blocks) - 1) + most - 1) // most] if count else " " for count in histogram.counts
        )
        return f"{histogram.start:.6g} |{bars}| {histogram.end:.6g}"

    def _heading(self, text: str) -> Iterator[str]:
        yield ""
        yield text

    def _style(self, text: str, code: str) -> str:
        return f"{code}{text}{_END}" if self._is_styled else text


def _name(name: str) -> str:
    return shortened(printable(name), _NAME_CHARACTERS)


def _line(text: str) -> str:
    return shortened(printable(text), _LINE_CHARACTERS)


def _pixels(picture: Picture) -> Iterator[str]:
    """Yield the lines of a picture: an upper half block for each two pixels above each other."""
    step = max(1.0, max(picture.width, picture.height) / _PICTURE_WIDTH)
    columns = [int(column * step) for column in range(int(picture.width / step))]
    rows = [int(row * step) for row in range(int(picture.height / step))]
    for upper, lower in zip(rows[::2], rows[1::2] + [None] * (len(rows) % 2), strict=True):
        cells = [_cell(picture, upper, lower, column) for column in columns]
        yield f"  {''.join(cells)}{_END}"


def _cell(picture: Picture, upper: int, lower: int | None, column: int) -> str:
    top = "38;2;{};{};{}".format(*_colour(picture, upper, column))
    bottom = "49" if lower is None else "48;2;{};{};{}".format(*_colour(picture, lower, column))
    return f"\x1b[{top};{bottom}m▀"


def _colour(picture: Picture, row: int, column: int) -> tuple[int, int, int]:
    start = (row * picture.width + column) * picture.channels
    levels = picture.data[start : start + picture.channels]
    return (levels[0],) * 3 if picture.channels == 1 else (levels[0], levels[1], levels[2])
