"""What it costs to read heads: in steps of the interpreter, which are always the same, and in processor time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from tests.headcosts.doors import ANSWER_DOORS, REQUEST_DOORS, Door, Read
from tests.headcosts.heads import (
    ANSWER_FIELDS,
    KINDS,
    REQUEST_FIELDS,
    UNKNOWN,
    answers,
    reasons,
    requests,
    targets,
)

BOUND: Final = 2.0
"""A field costs at most so many times the unknown one of the same size and kind, and what follows."""

BOUND_SECONDS: Final = 0.001
"""What may be added."""

BOUND_STEPS: Final = 250_000
"""The same in steps: a millisecond has more. h11 takes so many for a `Content-Length` of commas alone."""

Cost = Callable[[Read], float]
_TRIES: Final = 3


def steps(read: Read) -> float:
    """Return how many steps the interpreter does. What is done within one call of C is one step."""
    count = 0

    def step(frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401 - as `sys.settrace` has it
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return step

    with _traced(step):
        read()
    return count


@contextmanager
def _traced(step: Callable[[FrameType, str, Any], Any]) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(step)
    try:
        yield
    finally:
        sys.settrace(before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The costs of a field."""

    door: str
    field: str
    costs: dict[str, float]
    """By kind of value: of the dearest head of this kind."""


def rows(
    door: str,
    nbytes: int,
    cost: Cost,
    *,
    tries: int = _TRIES,
    kinds: Iterable[str] = KINDS,
    only: Collection[str] | None = None,
) -> list[Row]:
    """Measure fields and kinds at one door, all or `only` some; the first row is the unknown field's."""
    found = []
    for name, heads in _fields(door).items():
        if only is not None and name not in only:
            continue
        costs = {}
        for kind in kinds:
            made = [least(_DOORS[door], head, cost, tries) for head in heads(kind, nbytes)]
            if made:
                costs[kind] = max(made)
        found.append(Row(door=door, field=name, costs=costs))
    return found


def least(door: Door, head: bytes, cost: Cost, tries: int) -> float:
    """Return the least cost of several times."""
    return min(cost(door(head)) for _ in range(tries))


def beyond(row: Row, unknown: Row, most: float) -> list[str]:
    """Return what a field costs too much, in words; `most` may be added to the multiple of the unknown field's cost."""
    return [
        f"{row.door}: {row.field} of {kind}: {cost:.4g}, and {unknown.costs[kind]:.4g} for {UNKNOWN}"
        for kind, cost in row.costs.items()
        if cost > BOUND * unknown.costs[kind] + most
    ]


_DOORS: Final = {**REQUEST_DOORS, **ANSWER_DOORS}
_Heads = Callable[[str, int], Iterator[bytes]]


def _fields(door: str) -> dict[str, _Heads]:
    """Return the heads of each field at a door, and of what is no field."""
    if door in ANSWER_DOORS:
        return {name: _of(answers, name) for name in ANSWER_FIELDS} | {"(reason)": reasons}
    return {name: _of(requests, name) for name in REQUEST_FIELDS} | {"(target, method, name)": targets}


def _of(heads: Callable[[str, str, int], Iterator[bytes]], name: str) -> _Heads:
    return lambda kind, nbytes: heads(name, kind, nbytes)
