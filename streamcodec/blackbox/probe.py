"""Probe: one request, with a name, the rule that it tests, and the expected answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamcodec.blackbox.messages import RawRequest
from streamcodec.blackbox.target import Target
from streamcodec.blackbox.verdicts import Expectation

Make = Callable[[Target], RawRequest]
"""Makes the request for a model; raises `NotApplicableError` if it has no meaning for it."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One test of a server."""

    name: str
    """Its group, a slash and its own name."""
    expects: Expectation
    tests: str
    """A description of the request."""
    source: str
    """The source of the rule."""
    make: Make
    also: frozenset[int] = frozenset()
    """Statuses of the 500s that are right, too."""
    is_heavy: bool = False
    """Whether it is large, or has crashed servers before."""
    weaknesses: tuple[str, ...] = ()
    """What a finding is called by security databases, as `CWE-190`; see `weaknesses`."""

    @property
    def group(self) -> str:
        """The first part of its name."""
        return self.name.partition("/")[0]
