"""All scenarios, in the order of the page."""

from __future__ import annotations

from typing import Final

from tests.benchmarks import (
    attacks,
    batches,
    client,
    collected,
    costs,
    echo,
    endpoints,
    imports,
    ingest,
    jsonsizes,
    kinds,
    many,
    memory,
    mixed,
    per_request,
    refusal,
    sink,
    sweep,
    vshape,
    ways,
)
from tests.benchmarks.figures import Scenario

SCENARIOS: Final[dict[str, Scenario]] = {
    "sweep": sweep.SCENARIO,
    "ingest": ingest.SCENARIO,
    "sink": sink.SCENARIO,
    "echo": echo.SCENARIO,
    "vshape": vshape.SCENARIO,
    "kinds": kinds.SCENARIO,
    "jsonsizes": jsonsizes.SCENARIO,
    "ways": ways.SCENARIO,
    "mixed": mixed.SCENARIO,
    "per_request": per_request.SCENARIO,
    "batches": batches.SCENARIO,
    "endpoints": endpoints.SCENARIO,
    "refusal": refusal.SCENARIO,
    "attacks": attacks.SCENARIO,
    "codec": collected.CODEC,
    "elements": collected.ELEMENTS,
    "memory": memory.SCENARIO,
    "costs": costs.SCENARIO,
    "client": client.SCENARIO,
    "many": many.SCENARIO,
    "imports": imports.SCENARIO,
}
"""By the names of `--only`."""
