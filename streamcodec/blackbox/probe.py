"""Probe: one request with a name, the rule it is about and what a careful server does with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamcodec.blackbox.messages import Request
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation

Make = Callable[[Target], Request]
"""Makes the request for a model; raises `NotApplicableError` if it has no meaning for it."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that is tried."""

    name: str
    """Its group, a slash and its own name."""
    expects: Expectation
    tests: str
    """What the server is given."""
    source: str
    """Where it is written that it must be so."""
    make: Make
    also: frozenset[int] = frozenset()
    """Statuses of the 500s that are right as well."""
    is_heavy: bool = False
    """Whether it is large, or known to have brought servers down."""

    @property
    def group(self) -> str:
        """The first part of its name."""
        return self.name.partition("/")[0]
