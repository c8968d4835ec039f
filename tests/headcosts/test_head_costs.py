"""No field of a head costs much more than a field that means nothing, whatever its value is."""

from __future__ import annotations

import pytest

from streamcodec.http.heads.parsed import READ_FIELDS
from tests import effort
from tests.cputime import cpu_seconds
from tests.headcosts.costs import BOUND_SECONDS, BOUND_STEPS, Row, beyond, rows, steps
from tests.headcosts.doors import ANSWER_DOORS, REQUEST_DOORS
from tests.headcosts.heads import ANSWER_FIELDS, KINDS, REQUEST_FIELDS, SIZES, UNKNOWN

PLACES = [(door, nbytes) for nbytes in SIZES for door in (*REQUEST_DOORS, *ANSWER_DOORS)]
_TRIES = 3
_KINDS = 3
"""Of values in the ordinary round, besides those that are taken apart most."""

_SOME = {
    UNKNOWN,
    "Content-Length",
    "Inference-Header-Content-Length",
    "Tensor-Memory",
    "Upload-Complete",
    "Upload-Offset",
    "X-Forwarded-For",
    "(target, method, name)",
    "(reason)",
    *(name for name in (*REQUEST_FIELDS, *ANSWER_FIELDS) if name.lower().encode() in READ_FIELDS),
}


def test_every_field_that_is_taken_apart_is_measured() -> None:
    assert {name.lower().encode() for name in REQUEST_FIELDS} >= READ_FIELDS


@pytest.mark.slow
@pytest.mark.parametrize(("door", "nbytes"), PLACES)
def test_steps(door: str, nbytes: int) -> None:
    """A loop of Python over the characters of a value is found by counting its steps, which needs no clock."""
    names = [*KINDS]
    kinds = [";;;", ",,,", "a,a,", *(names[index] for index in effort.places(range(len(names)), _KINDS))]
    unknown, *others = rows(door, nbytes, steps, tries=1, kinds=kinds, only=_SOME)
    assert [words for row in others for words in beyond(row, unknown, BOUND_STEPS)] == []


@pytest.mark.quiet
@pytest.mark.parametrize(("door", "nbytes"), PLACES)
def test_processor_time(door: str, nbytes: int) -> None:
    """What is done in C, as a search that goes back and tries again, takes time and no steps."""
    wrong: list[str] = []
    for _ in range(_TRIES):
        unknown, *others = rows(door, nbytes, cpu_seconds)
        wrong = [words for row in others for words in beyond(row, unknown, BOUND_SECONDS)]
        if not wrong:
            return
    pytest.fail("\n".join(wrong))


def test_what_is_dear_is_found() -> None:
    unknown = Row(door="server", field=UNKNOWN, costs={"aaa": 100.0})
    assert beyond(Row(door="server", field="Host", costs={"aaa": 1200.0}), unknown, 1000) == []
    assert beyond(Row(door="server", field="Host", costs={"aaa": 1201.0}), unknown, 1000) != []
