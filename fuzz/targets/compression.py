"""Compressed bodies: bounded output, one verdict for every cut, and equal to what zlib makes of the whole.

The bytes of an input are a compressed body as they are, or something to be compressed first: by zlib in one of its
ways, with a few bytes changed or cut off, or by our own `compress_message`. Ours then decompresses them whole and in
pieces, which must give the same bytes, the same error, and never more than a piece at a time. `zlib` decompresses them
whole, member by member. Where both accept, the bytes are the same; what zlib refuses must be refused; and where zlib
alone accepts, the reason is the ratio, or what Python's `gzip` would let pass.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Final

from streamcodec import (
    ENCODINGS,
    EncodedMessage,
    Inflater,
    LimitExceededError,
    Limits,
    MessageError,
    compress_message,
)
from streamcodec.testing import describe_error
from targets.choices import Choices, ChoicesWriter
from targets.cuts import cut, piece_sizes

MAX_OUTPUT_BYTES: Final = 1 << 20
"""More is not compared: the time would be zlib's."""
_BOTH = (False, True)
_SIZES = range(256)
_PIECES: Final = 40
_MAX_PIECE_BYTES: Final = 64 << 10
_FREE_BYTES: Final = 64 << 10
"""Of output, for which no ratio counts."""
_SMALL_RATIO: Final = 2
_FILLINGS: Final = (0, 1, 100, 1000, 66_000, 132_000)
"""Zeros: the larger ones are more than is free of the ratio, and more than two pieces."""


class Source(Enum):
    """What the bytes of an input are."""

    COMPRESSED = auto()
    """The body, as it comes over the wire."""
    ZLIB = auto()
    """Something that zlib compresses; the body is that, with changes."""
    OURS = auto()
    """Something that our encoder compresses."""


class Form(Enum):
    """What zlib is to write."""

    GZIP = 16 + zlib.MAX_WBITS
    ZLIB = zlib.MAX_WBITS
    RAW = -zlib.MAX_WBITS


_SOURCES = tuple(Source)
_FORMS = tuple(Form)
_LEVELS = range(10)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A compressed body and how it arrives."""

    data: bytes
    source: Source = Source.COMPRESSED
    encoding: str = "gzip"
    """What the body claims to be."""
    form: Form = Form.GZIP
    """What it is, where zlib writes it."""
    level: int = 6
    filling: int = 0
    """Zeros behind the data before they are compressed."""
    members: int = 0
    """How often the body is repeated."""
    cut: int = 0
    """Bytes that are missing at the end."""
    changed_at: int = 0
    """Which byte is changed, if `change` is not 0."""
    change: int = 0
    is_limited: bool = False
    """Whether a low ratio is too much."""
    first_piece: int = 0
    """Bytes of the first piece of the second run; 0 leaves it out."""
    piece: int = 0
    """Bytes of each of the next pieces; 0 is all that there is, as is the last piece."""

    @classmethod
    def read(cls, data: bytes) -> Case:
        """Take a case from an input."""
        choices = Choices(data)
        return cls(
            source=choices.pick(_SOURCES),
            encoding=choices.pick(ENCODINGS),
            form=choices.pick(_FORMS),
            level=choices.pick(_LEVELS),
            filling=choices.pick(_FILLINGS),
            members=choices.pick(range(3)),
            cut=choices.pick(_SIZES),
            changed_at=choices.number(),
            change=choices.pick(_SIZES),
            is_limited=choices.pick(_BOTH),
            first_piece=choices.number(),
            piece=choices.pick(_SIZES),
            data=choices.rest(),
        )

    def write(self) -> bytes:
        """Return the input that gives this case."""
        choices = ChoicesWriter()
        choices.pick(_SOURCES, self.source)
        choices.pick(ENCODINGS, self.encoding)
        choices.pick(_FORMS, self.form)
        choices.pick(_LEVELS, self.level)
        choices.pick(_FILLINGS, self.filling)
        choices.pick(range(3), self.members)
        choices.pick(_SIZES, self.cut)
        choices.number(self.changed_at)
        choices.pick(_SIZES, self.change)
        choices.pick(_BOTH, self.is_limited)
        choices.number(self.first_piece)
        choices.pick(_SIZES, self.piece)
        return choices.finish(self.data)

    @cached_property
    def plain(self) -> bytes:
        """What is compressed, unless the data are that already."""
        return self.data + bytes(self.filling)

    @cached_property
    def body(self) -> bytes:
        """The bytes on the wire."""
        if self.source is Source.COMPRESSED:
            return self.data
        if self.source is Source.OURS:
            return b"".join(self.encoded.buffers)
        stream = zlib.compressobj(self.level, wbits=self.form.value)
        body = bytearray((stream.compress(self.plain) + stream.flush()) * (self.members + 1))
        body[self.changed_at % len(body)] ^= self.change
        return bytes(body[: len(body) - self.cut % len(body)])

    @cached_property
    def encoded(self) -> EncodedMessage:
        """What our encoder writes; the plain message, if that is no shorter."""
        middle = min(self.first_piece, len(self.plain))
        parts = (self.plain[:middle], memoryview(self.plain)[middle:])
        message = EncodedMessage(parts=parts, header_length=None, body_length=len(self.plain))
        return compress_message(message, self.encoding)

    @property
    def limits(self) -> Limits:
        """What applies."""
        return Limits(max_compression_ratio=_SMALL_RATIO) if self.is_limited else Limits()

    @property
    def chunks(self) -> Iterator[bytes]:
        """The body as it is cut for the second run."""
        yield from cut(self.body, piece_sizes(self.first_piece, self.piece, len(self.body), count=_PIECES))
        yield b""  # which says nothing


@dataclass(frozen=True, slots=True)
class Outcome:
    """What decompressing came to."""

    output: bytes
    """Up to the error, if there was one."""
    error: MessageError | None
    is_cut_off: bool = False
    """Whether there was more output than is looked at."""


def test_one_input(data: bytes) -> None:
    """Decompress one body in several ways and compare."""
    check(Case.read(data))


def check(case: Case) -> None:
    """Decompress one body in several ways and compare."""
    if case.source is Source.OURS:
        _check_ours(case)
        if case.encoded.content_encoding is None:
            return
    whole = inflate(case, [case.body])
    pieces = inflate(case, case.chunks)
    assert whole.output == pieces.output, "a cut shows in the output"
    assert _error_parts(whole) == _error_parts(pieces), "a cut shows in the error"
    expected = ask_zlib(case.body, case.encoding)
    if whole.is_cut_off or (expected is not None and len(expected) > MAX_OUTPUT_BYTES):
        return
    if whole.error is None:
        bound = _FREE_BYTES + case.limits.max_compression_ratio * len(case.body)
        assert len(whole.output) <= bound, "a body decompresses to more than it may"
        assert whole.output == expected, "zlib refuses what is accepted, or reads it differently"
    elif expected is not None:
        assert isinstance(whole.error, LimitExceededError), f"zlib accepts what is refused: {whole.error}"
        assert case.is_limited, "deflate cannot do better than the usual limit"
        assert len(expected) > _FREE_BYTES, "a body this small may compress as well as it can"


def inflate(case: Case, chunks: Iterable[bytes]) -> Outcome:
    """Decompress a body by our own `Inflater`, as far as anybody would look."""
    inflater, output = Inflater(case.encoding, case.limits), bytearray()
    try:
        for chunk in chunks:
            for piece in inflater.inflate(chunk):
                assert len(piece) <= _MAX_PIECE_BYTES, "a piece is larger than it may be"
                output += piece
                if len(output) > MAX_OUTPUT_BYTES:
                    return Outcome(bytes(output[:MAX_OUTPUT_BYTES]), None, is_cut_off=True)
        inflater.finish()
    except MessageError as error:  # damaged, or a bomb: the one answer to bad bytes
        return Outcome(bytes(output), error)
    return Outcome(bytes(output), None)


def ask_zlib(body: bytes, encoding: str) -> bytes | None:
    """Decompress a body by zlib, whole; None if it refuses. Not more than would be looked at, and a little."""
    is_zlib = len(body) > 1 and body[0] & 15 == 8 and int.from_bytes(body[:2]) % 31 == 0  # noqa: PLR2004 - RFC 1950
    form = Form.GZIP if encoding == "gzip" else Form.ZLIB if is_zlib else Form.RAW
    output = b""
    try:
        while len(output) <= MAX_OUTPUT_BYTES:
            stream = zlib.decompressobj(form.value)
            output += stream.decompress(body, MAX_OUTPUT_BYTES + 1)
            body = stream.unused_data
            if not stream.eof:
                return output if len(output) > MAX_OUTPUT_BYTES else None
            if not body:
                return output
            if form is not Form.GZIP:
                return None
    except zlib.error:
        return None
    return output


def explain(data: bytes) -> str:
    """Say what an input means, and what both make of it."""
    case = Case.read(data)
    return (
        f"{case}\nbody: {case.body!r}\nours: {inflate(case, case.chunks)}\nzlib: {ask_zlib(case.body, case.encoding)!r}"
    )


def _check_ours(case: Case) -> None:
    message = case.encoded
    assert message.body_length == len(case.body)
    if message.content_encoding is None:
        assert case.body == case.plain
        return
    assert message.body_length < len(case.plain)
    assert ask_zlib(case.body, case.encoding) == case.plain, "what we have compressed is something else"


def _error_parts(outcome: Outcome) -> object:
    return outcome.error and describe_error(outcome.error)
