"""Report: the findings, as a table for people, as JSON for programs, and as JUnit XML for test runners."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final
from xml.sax.saxutils import quoteattr

from streamcodec.blackbox.examination import ProbeState, Result
from streamcodec.blackbox.probe import Probe

_WIDTHS: Final = (28, 24, 12)
_MAX_REQUEST_BYTES: Final = 64 << 10
"""Largest number of bytes of a request in a report."""

HEADING: Final = ("probe", "should be", "found", "details")


def row(cells: Sequence[str]) -> str:
    """Return a row of the table, whose last cell has any width."""
    *first, last = cells
    return f"| {' | '.join([*(cell.ljust(width) for cell, width in zip(first, _WIDTHS, strict=False)), last])} |"


def rule() -> str:
    """Return the line under the heading."""
    return row(["-" * width for width in _WIDTHS] + ["---"])


def result_row(result: Result) -> str:
    """Return the row of a probe."""
    finding = result.finding
    found = result.state.value if finding is None else finding.kind.value
    detail = result.note if finding is None else f"{result.probe.tests}: {finding.detail}{_weaknesses(result.probe)}"
    return row([result.probe.name, result.probe.expects.value, found, detail.replace("|", "\\|")])


def groups_table(results: Sequence[Result]) -> list[str]:
    """Return a table with the number of probes by group and result."""
    counts = Counter((result.probe.group, result.state) for result in results)
    groups = list(dict.fromkeys(result.probe.group for result in results))
    rows = [[group, *(str(counts[group, state]) for state in ProbeState)] for group in groups]
    totals = ["all", *(str(sum(counts[group, state] for group in groups)) for state in ProbeState)]
    heading = ["group", *(state.value for state in ProbeState)]
    return _aligned([heading, *rows, totals])


def probes_table(probes: Iterable[Probe]) -> list[str]:
    """Return a table of all probes, with their rules, the sources of the rules, and the names of findings."""
    heading = ["probe", "should be", "the server is given", "source of the rule", "weakness"]
    rows = [[each.name, each.expects.value, each.tests, each.source, " ".join(each.weaknesses)] for each in probes]
    return _aligned([heading, *rows], numbers=False)


def as_json(results: Iterable[Result], **about: object) -> dict[str, Any]:
    """Return the report for programs; `about` describes the server and the options."""
    return {**about, "probes": [_entry(result) for result in results]}


def as_junit(results: Sequence[Result], name: str) -> str:
    """Return the report for test runners: each probe is a test of the class that is its group."""
    failed = sum(result.finding is not None for result in results)
    skipped = sum(result.state in {ProbeState.NOT_APPLICABLE, ProbeState.NOT_RUN} for result in results)
    head = (
        f"<testsuite name={_attribute(name)} tests='{len(results)}' failures='{failed}' skipped='{skipped}' errors='0'>"
    )
    return "\n".join(["<?xml version='1.0' encoding='UTF-8'?>", head, *map(_test_case, results), "</testsuite>", ""])


def _aligned(rows: Sequence[Sequence[str]], *, numbers: bool = True) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for cells in (rows[0], ["-" * width for width in widths], *rows[1:]):
        rest = (
            cell.rjust(width) if numbers else cell.ljust(width)
            for cell, width in zip(cells[1:], widths[1:], strict=True)
        )
        lines.append(f"| {' | '.join([cells[0].ljust(widths[0]), *rest])} |")
    return lines


def _entry(result: Result) -> dict[str, Any]:
    probe, finding = result.probe, result.finding
    entry: dict[str, Any] = {
        "name": probe.name,
        "expected": probe.expects.value,
        "tests": probe.tests,
        "source": probe.source,
        "weaknesses": list(probe.weaknesses),
        "state": result.state.value,
        "observed": result.note,
        "seconds": round(result.seconds, 4),
    }
    if finding is not None:
        request = result.request
        entry |= {
            "finding": finding.kind.value,
            "detail": finding.detail,
            # The request can be repeated without this program: its bytes and its pieces.
            "request_bytes": len(request.data),
            "request_base64": base64.b64encode(request.data[:_MAX_REQUEST_BYTES]).decode(),
            "request_pieces": [len(piece) for piece in request.pieces],
            "request_ending": request.ending.name.lower(),
        }
    return entry


def _test_case(result: Result) -> str:
    probe = result.probe
    group, _, name = probe.name.partition("/")
    start = f"<testcase classname={_attribute(group)} name={_attribute(name)} time='{result.seconds:.4f}'>"
    if result.finding is not None:
        expected = probe.expects.value
        said = f"{probe.tests}: should be {expected}; {result.finding.detail}{_weaknesses(probe)}"
        inner = f"<failure type={_attribute(result.finding.kind)} message={_attribute(said)}/>"
    elif result.state is ProbeState.PASSED:
        inner = ""
    else:
        inner = f"<skipped message={_attribute(f'{result.state.value}: {result.note}')}/>"
    return f"{start}{inner}</testcase>"


def _weaknesses(probe: Probe) -> str:
    return f" ({', '.join(probe.weaknesses)})" if probe.weaknesses else ""


def _attribute(text: str) -> str:
    """Quote text for XML 1.0, which cannot hold control characters, not even escaped."""
    return quoteattr("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text))
