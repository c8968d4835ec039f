"""All benchmarks by one command: `python -m tests.benchmarks`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.benchmarks import report, results
from tests.benchmarks.comparing import OVERVIEW, OVERVIEW_TITLE, overview
from tests.benchmarks.figures import Figure, Options
from tests.benchmarks.peers import Peers
from tests.benchmarks.plots import draw, draw_bars
from tests.benchmarks.results import Part, Run
from tests.benchmarks.scenarios import SCENARIOS
from tests.benchmarks.units import with_unit

_OUTPUT: Final = Path("docs", "benchmarks")
_RESULTS: Final = "results.json"
_PAGE: Final = "index.md"
_INSTALL: Final = "pip install -e '.[test,bench]'"
_RENDER: Final = "python -m tests.benchmarks --render"

_DESCRIPTION = """\
Measure streamcodec next to its peers, and write a page with tables and plots.

The scenarios run one after the other. Each leaves its figures in results.json, from which the page and the plots are
drawn anew; what other scenarios have left there in earlier runs stays.
"""

_EPILOGUE = """\
peers:
  STREAMCODEC_TRITON_PYTHON   a Python that has nvidia-pytriton: the Triton server; gcc compiles its two models
  STREAMCODEC_KSERVE_PYTHON   a Python that has kserve
  wrk                         on the PATH: for small requests
  tritonclient, matplotlib    in this environment: pip install -e '.[test,bench]'
  A peer that is not there is named on the page, with the command that brings it.

examples:
  python -m tests.benchmarks --quick --output /tmp/bench    a first idea, in a few minutes, elsewhere
  python -m tests.benchmarks                                everything, in an hour and a half on a quiet machine
  python -m tests.benchmarks --only kinds refusal           these two again, and the page with them
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for; end with status 1 if a scenario failed."""
    options = _parser().parse_args(arguments)
    if options.list:
        for name, scenario in SCENARIOS.items():
            print(f"{name:10} {scenario.title}")
        return
    names = [] if options.render else options.only or list(SCENARIOS)
    failed = _run(names, options.output / _RESULTS, is_quick=options.quick)
    write_page(options.output)
    if failed:
        sys.exit(f"failed, so the page has not what they would have found: {', '.join(failed)}")


def _run(names: Iterable[str], file: Path, *, is_quick: bool) -> list[str]:
    """Run scenarios and keep what each finds; return the names of those that failed."""
    failed = []
    with tempfile.TemporaryDirectory() as work, Peers(Path(work)) as peers:
        for name in names:
            print(f"== {name}: {SCENARIOS[name].title}", flush=True)
            try:
                part = _measure(name, Options(peers=peers, work=Path(work), is_quick=is_quick))
            except Exception:  # noqa: BLE001 - what the others have found shall not be lost
                traceback.print_exc()
                failed.append(name)
            else:
                _print(part)
                results.write(file, _in_order(results.read(file) | {name: part}))
    return failed


def write_page(output: Path) -> None:
    """Draw the page and its plots from the results in a directory."""
    parts = results.read(output / _RESULTS)
    output.mkdir(parents=True, exist_ok=True)
    (output / _PAGE).write_text(report.render(SCENARIOS, parts))
    pictures = [picture for name, part in parts.items() for picture in report.pictures(name, part)]
    if pictures and find_spec("matplotlib") is None:
        sys.exit(f"plots need matplotlib: {_INSTALL}; then {_RENDER}")
    for path in output.glob("*.png"):
        path.unlink()
    for file, chart, figures in pictures:
        draw(chart, figures, output / file)
    if groups := overview(parts):
        draw_bars(OVERVIEW_TITLE, groups, output / OVERVIEW)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=_DESCRIPTION,
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=list(SCENARIOS), metavar="NAME", help="run these; see --list")
    parser.add_argument("--quick", action="store_true", help="few rounds, and not the largest sizes")
    parser.add_argument(
        "--output", type=Path, default=_OUTPUT, metavar="DIRECTORY", help="where results go (default: %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios, and run none")
    parser.add_argument("--render", action="store_true", help="draw page and plots anew from the results, run none")
    return parser


def _measure(name: str, options: Options) -> Part:
    began = time.monotonic()
    figures = SCENARIOS[name].run(options)
    run = Run(
        command=_command(name, options),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        seconds=round(time.monotonic() - began),
        is_quick=options.is_quick,
        machine=results.machine(),
        versions=results.versions(),
    )
    return Part(run=run, figures=figures)


def _command(name: str, options: Options) -> str:
    return f"python -m tests.benchmarks --only {name}{' --quick' if options.is_quick else ''}"


def _in_order(parts: Mapping[str, Part]) -> dict[str, Part]:
    return {name: parts[name] for name in SCENARIOS if name in parts}


def _print(part: Part) -> None:
    for figure in part.figures.figures:
        print(f"   {_line(figure)}")
    for reason in part.figures.missing:
        print(f"   not measured: {reason}")
    sys.stdout.flush()


def _line(figure: Figure) -> str:
    verdict = "" if figure.bound is None else f" ({'reached' if figure.is_reached else 'NOT REACHED'})"
    value = with_unit(figure.unit, figure.spread.median)
    return f"{figure.case}: {figure.quantity} of {figure.who}: {value}{verdict}"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that no server is left behind
    main()
