"""The recorder writes down what came of the tests of a run: of those systems that it ran, and of no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.record import Cell, Outcome, Record, SystemRecord, read_record, write_record

_ROOT = Path(__file__).parents[2]
_CONFTEST = "from tests.interop.conftest import *"
_TESTS = """
import pytest

pytestmark = pytest.mark.interop(system="Node fetch", feature="BYTES")

def test_of_the_modules_cell():
    pass

@pytest.mark.interop(feature="BOOL")
def test_nearest_mark_wins(deviation, peer_version):
    deviation("hums; we too")
    deviation("hums; we too")
    peer_version("Node fetch", "node 1.2, a thing 3")

@pytest.mark.interop(feature="BOOL")
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.interop(feature="BF16"))])
def test_mark_of_a_parameter_is_nearest(n):
    pass

@pytest.mark.interop(feature="FP16")
@pytest.mark.parametrize("skips", [False, True])
def test_that_is_left_out_for_one_parameter(skips):
    if skips:
        pytest.skip("so it is")

@pytest.fixture
def broken():
    yield
    raise OSError

@pytest.mark.interop(feature="errors")
def test_that_fails_at_its_end(broken):
    pass

@pytest.mark.interop(feature="errors")
def test_beside_one_that_fails():
    pass

@pytest.mark.interop(feature="CORS")
@pytest.mark.xfail
def test_that_is_expected_to_fail():
    assert False

@pytest.mark.interop(system="Go net/http")
def test_of_a_system_that_is_not_here():
    pytest.skip("so it is")
"""


def run(folder: Path, source: str) -> tuple[int, str]:
    """Run tests with the recorder, and return the status and what was printed."""
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "test_some.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not quiet", "-p", "no:cacheprovider", f"--rootdir={folder}"]
    command += [f"--config-file={_ROOT / 'pyproject.toml'}", f"--interop-record={folder / 'record.json'}", str(folder)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def old_record() -> Record:
    cells = {"scalars": Cell(tests=7)}
    return {
        name: SystemRecord(date="2000-01-01", versions={"it": "0"}, ours={}, cells=cells)
        for name in ("Go net/http", "Node fetch")
    }


@pytest.mark.slow
def test_a_run_replaces_the_systems_that_it_ran_and_no_others(tmp_path: Path) -> None:
    write_record(tmp_path / "record.json", old_record())
    status, printed = run(tmp_path, _TESTS)
    assert status == pytest.ExitCode.TESTS_FAILED, printed
    record = read_record(tmp_path / "record.json")
    assert record["Go net/http"] == old_record()["Go net/http"]
    assert list(record) == ["Node fetch", "Go net/http"]
    node = record["Node fetch"]
    assert node.versions == {"node": "1.2", "a thing": "3"}
    assert node.date > "2000-01-01"
    assert node.cells == {
        "BYTES": Cell(tests=1),
        "BOOL": Cell(tests=2, deviations=["hums; we too"]),
        "BF16": Cell(tests=1),
        "FP16": Cell(outcome=Outcome.NOT_RUN, tests=2),
        "errors": Cell(outcome=Outcome.FAILED, tests=2),
        "CORS": Cell(outcome=Outcome.FAILED, tests=1),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "complaint"),
    [
        ("system='Node', feature='BYTES'", "system='Node'"),
        ("system='Node fetch', feature='bytes'", "feature='bytes'"),
        ("system='Node fetch'", "no feature"),
        ("'Node fetch', 'BYTES'", "no system, no feature"),
        ("system='Node fetch', feature='BYTES', more=1", "more=1"),
    ],
)
def test_marks_that_name_no_cell_end_the_run(tmp_path: Path, mark: str, complaint: str) -> None:
    status, printed = run(tmp_path, f"import pytest\n@pytest.mark.interop({mark})\ndef test_it(): pass\n")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert f"names no cell: {complaint}" in printed
    assert not (tmp_path / "record.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ("deviation('hums')", "what the peer does; what we do about it"),
        ("peer_version('Node', 'node 1')", "there is no system 'Node'"),
        ("peer_version('Node fetch', 'node')", "'node' is no name and version"),
        ("[peer_version('Node fetch', f'node {n}') for n in (1, 2)]", "more than one version of node"),
    ],
)
def test_what_cannot_be_recorded_fails_the_test(tmp_path: Path, call: str, complaint: str) -> None:
    mark = "@pytest.mark.interop(system='Node fetch', feature='BYTES')"
    status, printed = run(tmp_path, f"import pytest\n{mark}\ndef test_it(deviation, peer_version): {call}\n")
    assert status == pytest.ExitCode.TESTS_FAILED
    assert complaint in printed
    assert read_record(tmp_path / "record.json")["Node fetch"].cells == {"BYTES": Cell(outcome=Outcome.FAILED, tests=1)}


@pytest.mark.slow
def test_a_run_that_is_broken_off_records_nothing(tmp_path: Path) -> None:
    mark = "@pytest.mark.interop(system='Node fetch', feature='BYTES')"
    status, _ = run(tmp_path, f"import pytest\n{mark}\ndef test_it(): raise KeyboardInterrupt\n")
    assert status == pytest.ExitCode.INTERRUPTED
    assert not (tmp_path / "record.json").exists()
