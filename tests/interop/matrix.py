"""The matrix: writes the page `docs/interop.md` from the record of the last run.

Features that a system cannot have are declared here with the reason, so that no cell of the page is empty. Text that
does not come from a run is in `page.md`, with places for the text that does.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path
from string import Template

from tests.interop.record import CLIENTS, FEATURES, RECORD, SERVERS, SYSTEMS, Outcome, Place, Record, read_record

PAGE = Path(__file__).parents[2] / "docs" / "interop.md"
_WORDS = Path(__file__).with_name("page.md")

_TRITON_CLIENTS = ("tritonclient sync", "tritonclient aio")

_ABSENT: dict[str, list[Place]] = {
    "the client writes every request itself, with a JSON header and its length": [
        (system, feature) for system in _TRITON_CLIENTS for feature in ("raw binary request", "headerless form")
    ],
    "CORS is a rule for browsers; this client is not a browser, and ignores it": [
        (system, "CORS") for system in CLIENTS if system != "Chromium fetch"
    ],
    "CORS is for servers and browsers, and our clients are not browsers": [(system, "CORS") for system in SERVERS],
}
ABSENT: dict[Place, str] = {place: reason for reason, places in _ABSENT.items() for place in places}
"""Cells that do not exist, with the reason."""

_ABSENCES_ANCHOR = "interop-absent"
_Notes = dict[tuple[str, str], int]
"""Numbers of notes, by system and text. The reasons for absent features have no system."""


def render(record: Record) -> str:
    """Return the page for a record."""
    notes = _number_notes(record)
    return Template(_WORDS.read_text()).substitute(
        clients=_grid(CLIENTS, record, notes),
        servers=_grid(SERVERS, record, notes),
        versions=_versions(record),
        deviations_of_clients=_deviations(CLIENTS, record, notes),
        deviations_of_servers=_deviations(SERVERS, record, notes),
        absences=_absences(notes),
        absences_anchor=_ABSENCES_ANCHOR,
    )


def _number_notes(record: Record) -> _Notes:
    """Number the deviations, system by system, and then the reasons for features that do not exist."""
    deviations = (
        (system, text) for system in SYSTEMS for feature in FEATURES for text in _texts(record, (system, feature))
    )
    numbers = count(1)
    notes: _Notes = {}
    for note in chain(deviations, (("", reason) for reason in _ABSENT)):
        if note not in notes:
            notes[note] = next(numbers)
    return notes


def _texts(record: Record, place: Place) -> Iterable[str]:
    """Return the deviations of a cell."""
    system, feature = place
    cell = record[system].cells.get(feature) if system in record else None
    return cell.deviations if cell is not None and cell.outcome is Outcome.YES else ()


def _grid(systems: Sequence[str], record: Record, notes: _Notes) -> str:
    rows = [[feature, *(_cell(record, notes, (system, feature)) for system in systems)] for feature in FEATURES]
    return _table(["", *(f"[{system}](#{_anchor(system)})" for system in systems)], rows)


def _cell(record: Record, notes: _Notes, place: Place) -> str:
    system, feature = place
    if (reason := ABSENT.get(place)) is not None:
        return f"- [{notes['', reason]}](#{_ABSENCES_ANCHOR})"
    cell = record[system].cells.get(feature) if system in record else None
    outcome = Outcome.NOT_RUN if cell is None else cell.outcome
    if outcome is not Outcome.YES:
        return f"**{outcome}**"
    numbers = [notes[system, text] for text in _texts(record, place)]
    return " ".join(["deviates", *(f"[{number}](#{_anchor(system)})" for number in numbers)]) if numbers else "yes"


def _versions(record: Record) -> str:
    rows = [
        [
            system,
            _listed(record[system].versions),
            _listed(record[system].ours),
            str(sum(cell.tests for cell in record[system].cells.values())),
            record[system].date,
        ]
        for system in SYSTEMS
        if system in record
    ]
    return _table(["System", "Its versions", "Ours", "Tests", "Run on"], rows)


def _deviations(systems: Iterable[str], record: Record, notes: _Notes) -> str:
    return "\n\n".join(_deviations_of(system, record, notes) for system in systems)


def _deviations_of(system: str, record: Record, notes: _Notes) -> str:
    rows = [
        [str(number), _features_of(system, text, record), *text.split("; ", 1)]
        for (owner, text), number in notes.items()
        if owner == system
    ]
    table = _table(["", "Feature", "What the system does", "What streamcodec does"], rows) if rows else "None."
    return f"({_anchor(system)})=\n\n### {system}\n\n{table}"


def _features_of(system: str, text: str, record: Record) -> str:
    return ", ".join(feature for feature in FEATURES if text in _texts(record, (system, feature)))


def _absences(notes: _Notes) -> str:
    rows = [[str(notes["", reason]), _places(places), reason] for reason, places in _ABSENT.items()]
    return _table(["", "Cells", "Why"], rows)


def _places(places: Iterable[Place]) -> str:
    by_system: dict[str, list[str]] = {}
    for system, feature in places:
        by_system.setdefault(system, []).append(feature)
    return "; ".join(f"{system}: {', '.join(features)}" for system, features in by_system.items())


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _anchor(system: str) -> str:
    return "interop-" + re.sub(r"\W+", "-", system).lower()


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.matrix",
        description="Write the page on interoperability from the record of the last run of tests/interop.",
    )
    parser.add_argument("--record", type=Path, default=RECORD, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="default: %(default)s")
    options = parser.parse_args()
    options.page.write_text(render(read_record(options.record)))


if __name__ == "__main__":
    main()
