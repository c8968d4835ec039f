"""All scenarios, in the order of the page."""

from __future__ import annotations

from typing import Final

from tests.benchmarks import (
    attacks,
    client,
    collected,
    echo,
    imports,
    ingest,
    many,
    memory,
    refusal,
    sink,
    small,
    sweep,
)
from tests.benchmarks.figures import Scenario

SCENARIOS: Final[dict[str, Scenario]] = {
    "sweep": sweep.SCENARIO,
    "ingest": ingest.SCENARIO,
    "sink": sink.SCENARIO,
    "echo": echo.SCENARIO,
    "small": small.SCENARIO,
    "refusal": refusal.SCENARIO,
    "attacks": attacks.SCENARIO,
    "codec": collected.CODEC,
    "elements": collected.ELEMENTS,
    "memory": memory.SCENARIO,
    "client": client.SCENARIO,
    "many": many.SCENARIO,
    "imports": imports.SCENARIO,
}
"""By the names of `--only`."""
