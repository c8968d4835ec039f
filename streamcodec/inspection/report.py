"""The report about one message: plain data, as its writers get it.

Texts are those of the message, and are not escaped: names and header fields may hold anything. A writer escapes them
for its own medium. Sizes are bounded: texts are cut, and pictures are small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """How many values are in each of some equal ranges."""

    start: float
    """Where the first range begins."""
    width: float
    """Of each range; 0 if all values are `start`."""
    counts: tuple[int, ...]
    """Number of values in each range."""

    @property
    def end(self) -> float:
        """Where the last range ends."""
        return self.start + self.width * len(self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What the values of a tensor are like; of BYTES, the lengths of its elements."""

    count: int
    """Values that were seen: all, unless the message was refused within the tensor."""
    minimum: int | float | None
    """Of the finite values; None if there is none."""
    maximum: int | float | None
    """Of the finite values; None if there is none."""
    mean: float | None
    """Of the finite values; None if there is none, or if their sum is beyond FP64."""
    nan_count: int
    """Values that are NaN."""
    infinity_count: int
    """Values that are infinite, of either sign."""
    histogram: Histogram | None
    """Of the finite values; None if there is none, or if their range is beyond FP64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A tensor as a small image: every pixel is one of its values, chosen at equal distances."""

    width: int
    """Pixels in a row."""
    height: int
    """Number of rows."""
    channels: int
    """1 for grey, 3 for RGB, 4 for RGBA."""
    data: bytes
    """A byte for each channel of each pixel, row by row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReport:
    """One tensor."""

    name: str
    """As sent."""
    datatype: str
    """As the format calls it."""
    shape: tuple[int, ...]
    """Sizes of the dimensions."""
    nbytes: int
    """Bytes of the binary form; 0 for a JSON tensor."""
    offset: int | None
    """Where the binary form starts in the body; None for a JSON tensor."""
    alignment: int | None
    """The largest power of two, up to 4,096, that divides the offset; None for a JSON tensor."""
    statistics: Statistics | None
    """None if no value was read, or if the values have no order."""
    first_values: tuple[str, ...]
    """The first values as text."""
    picture: Picture | None
    """None if the tensor does not have the shape of an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of the message, in the order of its bytes."""

    name: str
    """Of the tensor, or what the part is."""
    kind: Literal["head", "header", "tensor", "other"]
    """What the bytes are."""
    start: int
    """Bytes of the message before it; a compressed or chunked body counts as decoded."""
    nbytes: int
    """Its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HexView:
    """The bytes around a place."""

    start: int
    """Offset of the first byte."""
    data: bytes
    """The bytes; empty if they are not at hand any more."""
    marked: int
    """Offset of the marked byte; the end of the data if the message ends there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a message is refused."""

    code: str
    """The `ErrorCode`."""
    link: str
    """Where the documentation explains the code."""
    message: str
    """What was found and what was expected."""
    path: str | None
    """Member of the header; None if the failure is not about a member."""
    offset: int | None
    """Byte of the body, of the frame or of the file: from the decoder, or the place of the member; None if unknown."""
    view: HexView | None
    """The bytes around the offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of an HTTP message."""

    start_line: str
    """Request line or status line."""
    fields: tuple[tuple[str, str], ...]
    """Names and values, as sent."""
    nbytes: int
    """Length, including the empty line, and interim responses before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderText:
    """The header that describes the tensors: of most formats JSON."""

    text: str
    """Indented if it is JSON of moderate length and depth; else as it is."""
    nbytes: int
    """Length in the message."""
    is_cut: bool
    """Whether the text is only the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found in one message."""

    source: str
    """Name of the file."""
    form: str
    """What the message is."""
    nbytes: int | None
    """Length of the file; None if it is a pipe."""
    head: Head | None
    """None if there is none."""
    header: HeaderText | None
    """None if there is none, or if its end was not found."""
    segments: tuple[Segment, ...]
    """The parts of the message, in order."""
    tensors: tuple[TensorReport, ...]
    """All tensors of the header, if the header is valid."""
    failure: Failure | None
    """None if the message is valid."""
    notes: tuple[str, ...]
    """What else a reader should know."""

    @property
    def is_valid(self) -> bool:
        """Whether the message is accepted."""
        return self.failure is None
