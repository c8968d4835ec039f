"""The report of `inspect` as JSON: strict, ASCII alone, so that no text of the message reaches a terminal as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from streamcodec.inspection import Report


def json_lines(report: Report) -> Iterator[str]:
    """Yield the lines of a report. Pictures are left out."""
    members: dict[str, Any] = {"is_valid": report.is_valid, **asdict(report)}
    for tensor in members["tensors"]:
        del tensor["picture"]
    if members["failure"] is not None and members["failure"]["view"] is not None:
        view = members["failure"]["view"]
        view["data"] = view["data"].hex(" ")
    text = json.dumps(members, indent=2, allow_nan=False)
    yield from text.replace("\x7f", "\\u007f").split("\n")  # the one control character that JSON does not escape
