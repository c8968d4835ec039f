"""Streams: what the targets of small formats share. A stream is delivered twice, cut differently on different faces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from streamcodec import Decoder, Limits
from streamcodec.testing import Outcome, first_difference, run_pull, run_push, run_scatter
from targets.case import SMALL_LIMITS, USUAL_LIMITS
from targets.choices import Choices, ChoicesWriter
from targets.cuts import cut, piece_sizes

Make: TypeAlias = Callable[[], Decoder[Any]]

_BOTH: Final = (False, True)
_PIECES: Final = 6
_RUNS: Final = (run_pull, run_push, run_scatter)
_RUN_NUMBERS: Final = range(len(_RUNS))
_SIZES: Final = range(256)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A stream, and how it is delivered."""

    stream: bytes
    kind: int = 0
    """For formats that have several."""
    has_length: bool = False
    is_limited: bool = False
    """Whether limits apply that small messages can exceed."""
    run: int = 0
    first_piece: int = 0
    piece: int = 0
    """Bytes of each piece after the first; 0 is all that there is."""

    @classmethod
    def read(cls, data: bytes) -> Case:
        """Take a case from an input."""
        choices = Choices(data)
        return cls(
            kind=choices.pick(_BOTH),
            has_length=choices.pick(_BOTH),
            is_limited=choices.pick(_BOTH),
            run=choices.pick(_RUN_NUMBERS),
            first_piece=choices.pick(_SIZES),
            piece=choices.pick(_SIZES),
            stream=choices.rest(),
        )

    def write(self) -> bytes:
        """Return the input that gives this case."""
        choices = ChoicesWriter()
        choices.pick(_BOTH, bool(self.kind))
        choices.pick(_BOTH, self.has_length)
        choices.pick(_BOTH, self.is_limited)
        choices.pick(_RUN_NUMBERS, self.run)
        choices.pick(_SIZES, self.first_piece)
        choices.pick(_SIZES, self.piece)
        return choices.finish(self.stream)

    @property
    def limits(self) -> Limits:
        """What applies."""
        return SMALL_LIMITS if self.is_limited else USUAL_LIMITS

    @property
    def length(self) -> int | None:
        """What the decoder is told."""
        return len(self.stream) if self.has_length else None

    @property
    def pieces(self) -> Iterator[bytes]:
        """The stream, cut."""
        return cut(self.stream, piece_sizes(self.first_piece, self.piece, len(self.stream), count=_PIECES))


def decode(case: Case, make: Make) -> Outcome:
    """Deliver a stream twice, and check that neither cuts nor faces show."""
    outcome = run_push(make, [case.stream])
    difference = first_difference(_RUNS[case.run](make, case.pieces).log, outcome.log)
    assert difference is None, difference
    assert (outcome.end is None) == (outcome.error is not None)
    return outcome


def same(one: Any, other: Any) -> bool:  # noqa: ANN401 - arrays
    """Whether two arrays have the same bits."""
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
