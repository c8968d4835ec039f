"""The programs around the targets: running for a time, making corpora, replaying."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import make_corpus
import pytest
import replay
import run
from targets import header

FUZZER = """
import pathlib, sys
corpus, *options = sys.argv[1:]
options = dict(option.lstrip("-").split("=", 1) for option in options)
assert "print_final_stats" in options and pathlib.Path(corpus).is_dir()
print("#1024\\tNEW    cov: 1", flush=True)
runs = pathlib.Path(corpus) / "runs"
count = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (count + 1))
"""
"""What is there of libFuzzer for these tests: it writes down that it ran, and then does what a test adds."""

CRASH = """
pathlib.Path(options["artifact_prefix"] + f"crash-{count}").write_bytes(b"input")
print("\\n === Uncaught Python exception: ===\\nAssertionError: a cut shows\\nBase64: aW5wdXQ=")
print("stat::number_of_executed_units: 2000")
sys.exit(77)
"""


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process takes a second, by a clock that is asked before the first one and behind each."""
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=count().__next__))


def campaign(folder: Path, rest: str, seconds: float = 3) -> run.Campaign:
    return run.Campaign("header", seconds, folder, [sys.executable, "-c", FUZZER + rest])


def test_a_run_without_findings(tmp_path: Path) -> None:
    quiet = campaign(tmp_path, "print('stat::number_of_executed_units: 5000')", seconds=1)
    said: list[str] = []
    assert run.run([quiet], 1, said.append) == 0
    assert quiet.executions == 5000
    assert quiet.peak_bytes > 1 << 20
    assert said == [run.table([quiet])]
    assert "header" in said[0]
    assert "5,000" in said[0]


def test_a_finding_hides_no_other_one(tmp_path: Path) -> None:
    crashing = campaign(tmp_path, CRASH)
    said: list[str] = []
    assert run.run([crashing], 1, said.append) == len(crashing.findings) == 3
    assert crashing.executions == 3 * 2000
    assert {finding.reason for finding in crashing.findings} == {"AssertionError: a cut shows"}
    assert crashing.findings[0].path.read_bytes() == b"input"
    assert f"replay.py header {crashing.findings[0].path}" in said[1]
    # A log of CI is all that is left of it.
    assert "    AssertionError: a cut shows\n    Base64: aW5wdXQ=\n" in said[2]
    assert "#1024" not in said[2]


def test_a_finding_that_comes_from_the_corpus_is_left_out_of_it(tmp_path: Path) -> None:
    crashing = campaign(tmp_path, CRASH)
    crashing.corpus.mkdir()
    (crashing.corpus / "seed").write_bytes(b"input")
    (crashing.corpus / "other").write_bytes(b"other input")
    crashing.run()
    assert {path.name for path in crashing.corpus.iterdir()} == {"other", "runs"}


def test_the_same_input_again_is_no_other_finding(tmp_path: Path) -> None:
    crashing = campaign(tmp_path, CRASH.replace("{count}", "same"))
    crashing.run()
    assert crashing.executions == 3 * 2000
    assert [finding.path.name for finding in crashing.findings] == ["crash-same"]


def test_findings_end_when_there_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_MAX_FINDINGS", 2)
    crashing = campaign(tmp_path, CRASH, seconds=1000)
    crashing.run()
    assert len(crashing.findings) == 2


def test_a_program_that_cannot_start_is_a_finding_and_is_not_tried_again(tmp_path: Path) -> None:
    broken = campaign(tmp_path, "raise SystemExit('no module named atheris')", seconds=1000)
    said: list[str] = []
    assert run.run([broken], 1, said.append) == 1
    assert broken.findings[0].reason == "no module named atheris"
    assert str(broken.findings[0].path) in said[1]


def test_a_program_that_executes_nothing_is_a_finding_although_it_is_content(tmp_path: Path) -> None:
    idle = run.Campaign("header", 1000, tmp_path, [sys.executable, "-c", "print('Done 0 runs')"])
    said: list[str] = []
    assert run.run([idle], 1, said.append) == 1
    assert idle.findings == [run.Finding(tmp_path / "0.log", "nothing was executed")]


def test_several_at_once_are_all_in_the_table(tmp_path: Path) -> None:
    campaigns = [campaign(tmp_path / str(index), "", seconds=1) for index in range(3)]
    said: list[str] = []
    run.run(campaigns, 3, said.append)
    rows = said[0].splitlines()
    assert [row.split()[0] for row in rows] == ["target", "header", "header", "header", "all"]
    assert all(one.executions >= 1024 for one in campaigns)


def test_what_a_log_says() -> None:
    assert run.executions_of("") == 0
    assert run.executions_of("#512\tpulse\n#1024\tREDUCE\n") == 1024
    assert run.executions_of("#1024\tREDUCE\nstat::number_of_executed_units: 1500\n") == 1500
    assert run.reason_of("") == "no output"
    assert run.account_of("#1\n === Timeout: 4s ===\n  File x, line 3\n") == "=== Timeout: 4s ===\n  File x, line 3"
    assert run.account_of("\n".join(map(str, range(99)))) == "\n".join(map(str, range(39, 99)))
    assert run.reason_of("==1== ERROR: libFuzzer: timeout after 20 seconds\n#1\n") == "timeout after 20 seconds"


def test_every_target_has_a_dictionary_or_needs_none() -> None:
    options = {target: run.Campaign(target, 1, Path(), []).dictionary for target in make_corpus.TARGETS}
    assert {target for target, dictionary in options.items() if dictionary is None} == {"round_trip"}


def test_a_corpus_for_a_run_has_the_committed_inputs_and_those_of_the_repository(tmp_path: Path) -> None:
    file_count = make_corpus.fill(tmp_path / "http", "http")
    names = {path.name for path in (tmp_path / "http").iterdir()}
    assert file_count == len(names)
    assert {path.name for path in make_corpus.corpus_of("http").iterdir()} < names
    assert sum(name.startswith("repository-") for name in names) > 200


def test_replay_tells_a_finding_from_what_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = header.Case(text=b'{"inputs":[]}').write()
    words, finding = replay.replay("header", data)
    assert finding is None
    assert "Case(text=" in words
    monkeypatch.setattr(header, "read_strictly", lambda _: 1 / 0)
    words, finding = replay.replay("header", data)
    assert words.startswith("cannot be explained")
    assert finding is not None
    assert "ZeroDivisionError" in finding


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ((run, "--help"), 0, "--seconds 60 --jobs 9"),
        ((run, "nothing"), 2, "no such target: nothing; there are header, decoder"),
        ((run, "--seconds", "0.9"), 2, "--seconds must be at least 1"),
        ((run, "--seconds", "nan"), 2, "--seconds must be at least 1"),
        ((run, "--jobs", "0"), 2, "--jobs must be at least 1"),
        ((replay, "--help"), 0, "fuzz/corpus/http/request-chunked"),
        ((replay, "header", str(make_corpus.CORPUS / "header" / "plain")), 0, "-- passes"),
        ((make_corpus, "--help"), 0, "--into /tmp/seeds http"),
        ((make_corpus, "http"), 2, "targets can be chosen with --into only"),
        ((make_corpus, "--into", "nowhere", "nothing"), 2, "no such target: nothing; there are header, decoder"),
    ],
)
def test_programs_say_what_they_do(
    command: tuple[Any, ...],
    status: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, *arguments = command
    monkeypatch.setattr(sys, "argv", [f"{program.__name__}.py", *arguments])
    try:
        returned = program.main()
    except SystemExit as end:
        returned = end.code
    assert returned == status
    said = capsys.readouterr()
    assert words in " ".join((said.out + said.err).split())


def test_replay_of_a_finding_says_so_by_its_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "input").write_bytes(header.Case(text=b"{}").write())
    monkeypatch.setattr(header, "check", lambda _: 1 / 0)
    monkeypatch.setattr(sys, "argv", ["replay.py", "header", str(tmp_path / "input")])
    assert replay.main() == 1


def test_corpora_are_written_where_they_are_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["make_corpus.py", "--into", str(tmp_path), "compression", "oracle"])
    make_corpus.main()
    assert {path.name for path in tmp_path.iterdir()} == {"compression", "oracle"}
    assert (tmp_path / "oracle" / "tensor-scalar").read_bytes() == make_corpus.corpus_of("decoder").joinpath(
        "tensor-scalar"
    ).read_bytes()


def test_the_whole_command_returns_1_for_a_finding_and_leaves_it_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "FUZZ", tmp_path)
    (tmp_path / "fuzz_compression.py").write_text(FUZZER + CRASH)
    monkeypatch.setattr(sys, "argv", ["run.py", "--seconds", "1", "--work", str(tmp_path / "work"), "compression"])
    assert run.main() == 1
    findings = [*(tmp_path / "work" / "compression" / "findings").iterdir()]
    assert [path.read_bytes() for path in findings] == [b"input"]
