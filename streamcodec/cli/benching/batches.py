"""Batches: how many rows the calls of a model had during a run, from the statistics that Triton's extension offers.

A server without them is measured all the same.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from urllib.parse import quote

from streamcodec.client import Client
from streamcodec.engine.errors import MessageError
from streamcodec.http import Collector

_MAX_BYTES = 1 << 20


def batch_sizes(client: Client, model: str, version: str | None) -> Counter[int]:
    """Return how many calls of a model have had so many rows, since its server began; nothing if that is not known."""
    path = f"/v2/models/{quote(model, safe='')}" + ("" if version is None else f"/versions/{quote(version, safe='')}")
    answer = Collector(_MAX_BYTES)
    sizes: Counter[int] = Counter()
    try:
        client.request("GET", f"{path}/stats", lambda *_: answer)
        document: Any = json.loads(answer.data)
        for counted in document["model_stats"]:
            for batch in counted["batch_stats"]:
                sizes[int(batch["batch_size"])] += int(batch["compute_infer"]["count"])
    except (OSError, MessageError, ValueError, KeyError, TypeError, RecursionError):
        sizes.clear()
    return sizes


def shown_sizes(sizes: Counter[int]) -> str:
    """Return the mean, and how often the most frequent ones came."""
    calls = sizes.total()
    mean = sum(rows * count for rows, count in sizes.items()) / calls
    most = ", ".join(f"{count / calls:.0%} of {rows}" for rows, count in sizes.most_common(3))
    return f"batches of {mean:.1f} rows on average; {most}"
