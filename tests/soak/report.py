"""Report: what a soak has found, as promises that were kept or broken, as a table, and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, and what was found of it."""

    text: str
    found: str
    is_kept: bool


@dataclass(slots=True, kw_only=True)
class Report:
    """What a soak has found."""

    run: dict[str, Any]
    """How it was run."""
    figures: dict[str, Any] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    """What the connections did, and what came of it."""
    broken: list[str] = field(default_factory=list)
    """Some of what should not have happened, as the clients tell it."""
    promises: list[Promise] = field(default_factory=list)

    @property
    def is_kept(self) -> bool:
        """Whether all promises were kept."""
        return all(promise.is_kept for promise in self.promises)

    def promise(self, text: str, found: object, *, is_kept: bool) -> None:
        self.promises.append(Promise(text, str(found), is_kept))

    def document(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self) | {"counts": dict(sorted(self.counts.items())), "is_kept": self.is_kept}

    def table(self) -> str:
        """Return everything as text."""
        run = ", ".join(f"{name} {value}" for name, value in self.run.items())
        counts = [[name, f"{count:,}"] for name, count in sorted(self.counts.items())]
        figures = [[name, _shown(value)] for name, value in self.figures.items()]
        promises = [[p.text, p.found, "kept" if p.is_kept else "BROKEN"] for p in self.promises]
        return "\n\n".join(
            [
                f"soak: {run}",
                _table(["what connections did", "times"], counts),
                _table(["figure", "found"], figures),
                _table(["promise", "found", "verdict"], promises),
                *(["broken, among others:\n  " + "\n  ".join(self.broken)] if self.broken else []),
            ]
        )


def _shown(value: object) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _table(head: list[str], rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines
    )
