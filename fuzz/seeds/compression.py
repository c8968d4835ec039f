"""Seeds of the compressed bodies: every form under every name, whole, repeated, changed and cut short."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from targets.compression import Case, Form, Source

from streamcodec import ENCODINGS

_TEXT = b'{"inputs":[]} and so on: "inputs", "outputs", ' + bytes(range(40))
_CHANGES: dict[str, dict[str, Any]] = {
    "": {"first_piece": 1},
    "-stored": {"level": 0, "piece": 7},
    "-cut": {"cut": 1, "piece": 9},
    "-cut-more": {"cut": 9},
    "-twice": {"members": 1, "piece": 30},
    "-changed": {"changed_at": 30, "change": 4, "piece": 1},
    "-head-changed": {"changed_at": 1, "change": 1},
    "-zeros": {"filling": 66_000, "first_piece": 20},
    "-bomb": {"filling": 132_000, "is_limited": True, "piece": 50},
    "-bomb-cut": {"filling": 132_000, "is_limited": True, "cut": 60},
}


def seeds() -> Iterator[tuple[str, Case]]:
    """Yield every seed with its name."""
    for encoding in ENCODINGS:
        for form in Form:
            case = Case(data=_TEXT, source=Source.ZLIB, encoding=encoding, form=form)
            name = f"{form.name.lower()}-as-{encoding}"
            for suffix, changes in _CHANGES.items():
                yield f"{name}{suffix}", replace(case, **changes)
            yield f"{name}-bytes", Case(data=case.body, encoding=encoding, piece=11)
            yield f"{name}-zero-behind", Case(data=case.body + b"\0", encoding=encoding)
        ours = Case(data=_TEXT * 3, source=Source.OURS, encoding=encoding, first_piece=20)
        yield f"ours-{encoding}", ours
        yield f"ours-{encoding}-zeros", replace(ours, filling=66_000)
        yield f"ours-{encoding}-short", replace(ours, data=b"ab")
        yield f"empty-{encoding}", Case(data=b"", encoding=encoding)
