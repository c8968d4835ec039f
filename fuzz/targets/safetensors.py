"""safetensors under any bytes: what is accepted is what the format's own package reads, and can be written again.

A file that is refused by that implementation has to be refused here, too, but for numbers that it reads otherwise.
"""

from __future__ import annotations

import re
from typing import Any, Final

from safetensors import SafetensorError, deserialize

from streamcodec.formats import safetensors
from streamcodec.testing import Outcome, run_push
from targets.stream import Case, decode, same

__all__ = ["LAXER", "Case", "check", "explain", "test_one_input"]

LAXER: Final = re.compile(rb"-0|[0-9]{19}|[eE]\+?[0-9]{3}|[0-9]{3}[eE]\+?[0-9]{2}")
"""What a text has in which numbers are read otherwise: -0 is no integer there; too large a float is refused there."""


def test_one_input(data: bytes) -> None:
    """Read one file and check everything that can be said of the result."""
    check(Case.read(data))


def check(case: Case) -> None:
    """Read one file and check everything that can be said of the result."""
    outcome = read(case)
    if outcome.error is not None:
        return
    found = {
        event.spec.name: (event.spec.datatype.name, list(event.array.shape), event.array.tobytes())
        for event in outcome.tensors
    }
    try:
        views: list[tuple[str, dict[str, Any]]] = deserialize(case.stream)  # type: ignore[no-untyped-call] # no types
    except SafetensorError:
        if not LAXER.search(case.stream):
            raise
    else:
        assert found == {name: (view["dtype"], view["shape"], bytes(view["data"])) for name, view in views}
    _check_written(outcome)


def _check_written(outcome: Outcome) -> None:
    arrays = {event.spec.name: event.array for event in outcome.tensors}
    written = safetensors.encode(arrays, outcome.header.metadata)
    again = run_push(safetensors.decoder, [b"".join(written.buffers)])
    assert again.end is not None, again.error
    assert dict(again.header.metadata) == dict(outcome.header.metadata)
    assert len(again.tensors) == len(arrays)
    assert all(same(event.array, arrays[event.spec.name]) for event in again.tensors)


def read(case: Case) -> Outcome:
    """Return what comes of a case."""
    return decode(case, lambda: safetensors.decoder(length=case.length, limits=case.limits))


def explain(data: bytes) -> str:
    """Say what an input means, and what comes of it."""
    case = Case.read(data)
    return f"{case}\n{read(case)}"
