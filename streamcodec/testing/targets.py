"""Targets: the definition of a mutation, and the places in a draft where it can be applied.

A mutation has *targets* in a draft: its tensors, the tensors of some kind, or the draft itself. Without a target it
does not apply. `headermutations` and `wiremutations` use these definitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from streamcodec.engine.datatypes import DATATYPES
from streamcodec.engine.errors import ErrorCode
from streamcodec.testing.samples import Draft, Members

_T = TypeVar("_T")

Codes = Iterable[ErrorCode]
"""Codes that a message may be refused with; none if it is valid."""


class Choose(Protocol):
    """Chooses one of several things: `random.choice`, or a draw of Hypothesis."""

    def __call__(self, choices: Sequence[_T], /) -> _T:
        """Return one of the choices."""
        ...


Targets = Callable[[Draft], Sequence[Any]]
Change = Callable[[Draft, Any, Choose], Codes]


@dataclass(frozen=True)
class Mutation:
    """One thing that can be changed in a draft."""

    targets: Callable[[Draft], Sequence[Any]]
    """Finds the targets in a draft."""
    change: Callable[[Draft, Any, Choose], Iterable[ErrorCode]]
    """Changes a draft at one of its targets; returns the codes that the message may now be refused with, none if it is
    still valid."""


Catalogue = dict[str, Mutation]
"""Mutations by their names."""


def entered(catalogue: Catalogue) -> Callable[[str, Targets], Callable[[Change], Change]]:
    """Return a decorator that adds mutations to a catalogue, with their names and targets."""

    def mutation(name: str, targets: Targets) -> Callable[[Change], Change]:
        def enter(change: Change) -> Change:
            catalogue[name] = Mutation(targets, change)
            return change

        return enter

    return mutation


def everything(draft: Draft) -> Sequence[Draft]:
    """Return the draft itself."""
    return [draft]


def tensors(draft: Draft) -> Sequence[int]:
    """Return all tensors, as their numbers."""
    return range(len(draft.entries))


def with_payload(draft: Draft) -> Sequence[int]:
    """Return the tensors that have bytes behind the header."""
    return [index for index, payload in enumerate(draft.payloads) if payload]


def is_binary(entry: Members) -> bool:
    """Tell whether a tensor's values stand behind the header."""
    return entry.get("data") is None


def element_count(entry: Members) -> int:
    """Return the product of a tensor's shape."""
    return math.prod(entry["shape"])


def such(fits: Callable[[Members], object]) -> Targets:
    """Return the tensors whose entries fit."""
    return lambda draft: [index for index, entry in enumerate(draft.entries) if fits(entry)]


def of(targets: Targets, datatypes: Iterable[str]) -> Targets:
    """Return the targets that are tensors of some datatypes."""
    return lambda draft: [index for index in targets(draft) if draft.entries[index]["datatype"] in datatypes]


binary: Final = such(is_binary)
jsonic: Final = such(lambda entry: not is_binary(entry))
jsonic_values: Final = such(lambda entry: not is_binary(entry) and element_count(entry))

NUMBERS: Final = frozenset(DATATYPES) - {"BOOL", "BYTES"}
INTEGERS: Final = frozenset(name for name in NUMBERS if "INT" in name)
