"""Placing by the embedding program: what the system has not got is refused, and everything else is the program's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamcodec import DATATYPES, ErrorCode, LocalProtocolError, OutOfMemoryError, RemoteProtocolError
from streamcodec.engine.memory.placement import NewArray, Placement, Slab
from streamcodec.engine.spec import TensorSpec
from streamcodec.service.memory.placing import guarded

SPEC = TensorSpec(name="x", datatype=DATATYPES["UINT8"], shape=(3,), nbytes=3)
LACKS = pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), MemoryError()], ids=["disk", "memory"]
)


class Failing:
    """A placement that cannot be had."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def slabs(self, _: TensorSpec) -> Iterator[Slab]:
        raise self._error


def _placed(error: Exception) -> Placement:
    raise error


def test_what_can_be_had_is_passed_on() -> None:
    (slab,) = guarded(lambda _: NewArray())(SPEC).slabs(SPEC)
    assert len(slab.buffer) == 3


@LACKS
def test_what_cannot_be_had_when_it_is_made_is_refused(error: Exception) -> None:
    with pytest.raises(OutOfMemoryError, match="'x' of 3 bytes") as caught:
        list(guarded(lambda _: Failing(error))(SPEC).slabs(SPEC))
    assert (caught.value.code, caught.value.status_hint) == (ErrorCode.OUT_OF_MEMORY, 503)


@LACKS
def test_what_cannot_be_had_when_it_is_decided_is_refused(error: Exception) -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        guarded(lambda _: _placed(error))(SPEC)
    assert caught.value.code is ErrorCode.OUT_OF_MEMORY


def test_mistakes_and_refusals_of_the_program_stay_what_they_are() -> None:
    for error in (LocalProtocolError("wrong"), RemoteProtocolError("no", code=ErrorCode.MODEL_MISMATCH)):
        with pytest.raises(type(error)):
            guarded(lambda _, error=error: _placed(error))(SPEC)  # type: ignore[misc] # of a lambda with a default
