"""Run the fuzz targets for a given time, several at once, and say what was found.

Each target gets a corpus of its own in a work folder: the committed one, and what is made of the cases and captures of
the tests. The checkout is only read. A target is a process, `fuzz_TARGET.py`. One that ends before its time, because it
has found something or has grown too large, is started again on what is left of the corpus and of the time: a finding
hides no other one, and no other target's.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Final

from make_corpus import TARGETS, fill

FUZZ: Final = Path(__file__).resolve().parent
_DICTIONARIES: Final = {"header": "json", "decoder": "json", "oracle": "json", "frame": "json"}
"""Where a dictionary is not called like its target."""
_SLICE_SECONDS: Final = 300
"""Then a process is replaced. Atheris 3.0 never frees the results of array comparisons that it has instrumented: some
400 MB per million executions."""
_MAX_RSS_MB: Final = 3000
_MAX_SECONDS_OF_ONE: Final = 20
"""An input that takes longer is a finding."""
_MAX_FINDINGS: Final = 20
"""Of one target; it need not fill the disk with one bug."""
_ACCOUNT_LINES: Final = 60
_EXECUTIONS: Final = re.compile(r"^stat::number_of_executed_units: +([0-9]+)|^#([0-9]+)\t", re.MULTILINE)
_REASON: Final = re.compile(r"=== Uncaught Python exception: ===\n(.*)|SUMMARY: libFuzzer: (.*)|ERROR: libFuzzer: (.*)")


@dataclass(frozen=True)
class Finding:
    """An input that a target has complained of, or a process that ended by itself."""

    path: Path
    """The input; the log where there is none."""
    reason: str
    """The first line of what the target said."""
    account: str = ""
    """All that it said: where it was, and the input as Base64. So a log is enough, wherever the input is left."""


@dataclass
class Campaign:
    """One target's run."""

    target: str
    seconds: float
    folder: Path
    """For corpus, findings and logs; of this target alone."""
    program: Sequence[str]
    """The command, to which libFuzzer's options are added."""
    executions: int = 0
    run_seconds: float = 0.0
    processor_seconds: float = 0.0
    peak_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def corpus(self) -> Path:
        """Where the inputs are."""
        return self.folder / "corpus"

    @property
    def dictionary(self) -> Path | None:
        """Words that libFuzzer is to try; None where inputs have none."""
        path = FUZZ / f"{_DICTIONARIES.get(self.target, self.target)}.dict"
        return path if path.exists() else None

    def run(self) -> None:
        """Fuzz until the time is over."""
        self.corpus.mkdir(parents=True, exist_ok=True)
        (self.folder / "findings").mkdir(exist_ok=True)
        began = time.monotonic()
        while (left := self.seconds - self.run_seconds) >= 1 and len(self.findings) < _MAX_FINDINGS:
            known = len(self.findings)
            self._run_once(min(left, _SLICE_SECONDS))
            has_failed_to_start = len(self.findings) > known and self.findings[-1].path.suffix == ".log"
            self.run_seconds = time.monotonic() - began
            if has_failed_to_start:
                break

    def _run_once(self, seconds: float) -> None:
        log = self.folder / f"{len([*self.folder.glob('*.log')])}.log"
        before = set((self.folder / "findings").iterdir())
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [*self.program, str(self.corpus), *self._options(seconds)], stdout=output, stderr=subprocess.STDOUT
            )
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.processor_seconds += usage.ru_utime + usage.ru_stime
        self.peak_bytes = max(self.peak_bytes, usage.ru_maxrss << 10)
        words = log.read_text("utf-8", errors="replace")
        executions = executions_of(words)
        self.executions += executions
        reason = reason_of(words) if process.returncode or executions else "nothing was executed"
        new = sorted(set((self.folder / "findings").iterdir()) - before)
        has_failed = process.returncode or not executions
        if has_failed and not new and reason not in {finding.reason for finding in self.findings}:
            self.findings.append(Finding(log, reason))
        self.findings += [Finding(path, reason, account_of(words)) for path in new]
        self._leave_out(new)

    def _leave_out(self, found: Sequence[Path]) -> None:
        """Take what was found out of the corpus, if it comes from there: each process begins with all of that."""
        contents = {path.read_bytes() for path in found}
        for path in self.corpus.iterdir() if contents else ():
            if path.read_bytes() in contents:
                path.unlink()

    def _options(self, seconds: float) -> list[str]:
        options = [
            f"-max_total_time={max(1, round(seconds))}",
            f"-artifact_prefix={self.folder / 'findings'}{os.sep}",
            f"-rss_limit_mb={_MAX_RSS_MB}",
            f"-timeout={_MAX_SECONDS_OF_ONE}",
            "-print_final_stats=1",
        ]
        return [*options, f"-dict={self.dictionary}"] if self.dictionary else options


def executions_of(log: str) -> int:
    """Return how many executions a log tells of: the final figure, or else the last one on the way."""
    return max((int(total or current) for total, current in _EXECUTIONS.findall(log)), default=0)


def reason_of(log: str) -> str:
    """Return in one line why a process has ended."""
    found = _REASON.search(log)
    lines = log.strip().splitlines()
    return next(filter(None, found.groups()), "") if found else lines[-1] if lines else "no output"


def account_of(log: str) -> str:
    """Return the end of a log, from where a process says why it has ended; at most `_ACCOUNT_LINES` lines of it."""
    account = log[max(log.rfind("\n === "), 0) :].strip().splitlines()
    return "\n".join(account[-_ACCOUNT_LINES:])


def table(campaigns: Sequence[Campaign]) -> str:
    """Return the figures of several campaigns as a table."""
    rows: list[tuple[str, ...]] = [
        ("target", "executions", "per second", "per CPU second", "corpus", "findings", "peak RSS")
    ]
    rows += map(_row, campaigns)
    rows.append(("all", f"{sum(campaign.executions for campaign in campaigns):,}", "", "", "", "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(_cells(row, widths)).rstrip() for row in rows)


def _row(campaign: Campaign) -> tuple[str, ...]:
    return (
        campaign.target,
        f"{campaign.executions:,}",
        f"{campaign.executions / max(campaign.run_seconds, 1e-9):,.0f}",
        f"{campaign.executions / max(campaign.processor_seconds, 1e-9):,.0f}",
        f"{sum(1 for _ in campaign.corpus.iterdir()):,}",
        str(len(campaign.findings)),
        f"{campaign.peak_bytes / (1 << 20):,.0f} MiB",
    )


def _cells(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]


def run(campaigns: Sequence[Campaign], jobs: int, say: Callable[[str], object]) -> int:
    """Run campaigns, so many at once; tell what comes of them, and return how many findings there are."""
    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(Campaign.run, campaigns):
            pass
    say(table(campaigns))
    for campaign in campaigns:
        for finding in campaign.findings:
            say(f"\n{campaign.target}: {finding.reason}\n    {_what_to_do(campaign.target, finding.path)}")
            if finding.account:
                say(indent(finding.account, "    "))
    return sum(len(campaign.findings) for campaign in campaigns)


def _what_to_do(target: str, path: Path) -> str:
    return f"see {path}" if path.suffix == ".log" else f"python {Path(__file__).with_name('replay.py')} {target} {path}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="""examples:
  python fuzz/run.py                               every target for 60 seconds, one after the other
  python fuzz/run.py --seconds 60 --jobs 9         all nine at once; on two processors each gets two ninths of one
  python fuzz/run.py --seconds 3600 decoder http   two targets for an hour each
  python fuzz/run.py --work ~/fuzzing              go on with the corpora of the last run

The table counts executions, per second of the clock and of the processor; the latter does not depend on what else the
machine has to do. The exit status is 1 if there are findings: the inputs lie in WORK/TARGET/findings, and replay.py
says what they mean. Other options of libFuzzer: run `python fuzz/fuzz_TARGET.py CORPUS -help=1`.""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"which ones; all without: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=60, help="of the clock, for each target (default: 60)")
    parser.add_argument("--jobs", type=int, default=1, help="targets that run at once (default: 1)")
    parser.add_argument(
        "--work",
        type=Path,
        metavar="FOLDER",
        help="for corpora, logs and findings; what it holds is gone on with (default: a new temporary one, which is "
        "left there if something was found)",
    )
    return parser


def main() -> int:
    """Run what the command line asks for; 1 if something was found."""
    parser = _parser()
    arguments = parser.parse_args()
    targets = arguments.targets or list(TARGETS)
    if unknown := set(targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if not arguments.seconds >= 1:  # nor is NaN
        parser.error("--seconds must be at least 1")
    if arguments.jobs < 1:
        parser.error("--jobs must be at least 1")
    work = arguments.work or Path(tempfile.mkdtemp(prefix="fuzz-"))
    campaigns = [_campaign(target, arguments.seconds, work / target) for target in targets]
    count = run(campaigns, arguments.jobs, lambda words: sys.stdout.write(f"{words}\n"))
    if arguments.work is None and not count:
        shutil.rmtree(work)
    return int(count > 0)


def _campaign(target: str, seconds: float, folder: Path) -> Campaign:
    campaign = Campaign(target, seconds, folder, [sys.executable, str(FUZZ / f"fuzz_{target}.py")])
    fill(campaign.corpus, target)
    return campaign


if __name__ == "__main__":
    sys.exit(main())
