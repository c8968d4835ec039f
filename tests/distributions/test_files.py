"""The files around the package are what their readers expect, and name what exists."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import streamcodec

yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extra docs: pip install -e '.[test,docs]'")

_ROOT = Path(__file__).parents[2]
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
_WORKFLOWS = sorted((_ROOT / ".github" / "workflows").glob("*.yml"))
_FORMS = sorted(path for path in (_ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


def _load(path: Path) -> Any:  # noqa: ANN401 - any YAML
    return yaml.safe_load(path.read_text())


def test_workflow_runs_steps_that_exist() -> None:
    steps = subprocess.run([_ROOT / ".ci" / "run", "--list"], capture_output=True, text=True, check=True).stdout.split()
    matrix = _load(_ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["checks"]["strategy"]["matrix"]
    named = [*matrix["steps"], *(each["steps"] for each in matrix["include"])]
    run = {step for group in named for step in group.split()}
    assert run <= {*steps}
    assert {*steps} - run == {"newest"}, "the matrix has the newest Python"


def test_a_step_that_does_not_exist() -> None:
    result = subprocess.run([_ROOT / ".ci" / "run", "nonsense"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (2, "nonsense is not a step; --list prints the steps\n")


def test_workflow_has_every_python_that_the_project_names() -> None:
    matrix = _load(_ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["checks"]["strategy"]["matrix"]
    versions = {*matrix["python"], *(each["python"] for each in matrix["include"])}
    assert versions == {found[1] for each in _PROJECT["classifiers"] if (found := re.search(r":: (3\.\d+)$", each))}


@pytest.mark.parametrize("path", _WORKFLOWS, ids=lambda path: path.stem)
def test_actions_have_a_major_version_and_no_more_rights_than_to_read(path: Path) -> None:
    workflow = _load(path)
    assert workflow["permissions"] == {"contents": "read"}
    actions = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert actions
    assert all(re.fullmatch(r"[\w./-]+@v\d+", action) for action in actions)


@pytest.mark.parametrize("path", _FORMS, ids=lambda path: path.stem)
def test_issue_forms(path: Path) -> None:
    form = _load(path)
    assert form["name"]
    assert form["description"]
    parts = [part for part in form["body"] if part["type"] != "markdown"]
    assert parts
    assert len({part["id"] for part in parts}) == len(parts)
    assert all(part["type"] in {"input", "textarea"} and part["attributes"]["label"] for part in parts)
    named = re.findall(r"\b[\w/]+\.md\b", path.read_text())
    assert all((_ROOT / name).is_file() for name in named)


def test_citation() -> None:
    citation = _load(_ROOT / "CITATION.cff")
    assert (citation["title"], citation["license"]) == (_PROJECT["name"], _PROJECT["license"])
    assert citation["authors"] == _PROJECT["authors"]
    assert "version" not in citation, "the version stands in the package alone"


def test_changelog_has_the_version() -> None:
    changelog = (_ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(streamcodec.__version__)} - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)
    assert "version" in _PROJECT["dynamic"]


def test_clusterfuzzlite_builds_the_targets() -> None:
    folder = _ROOT / ".clusterfuzzlite"
    assert _load(folder / "project.yaml") == {"language": "python"}
    (script,) = re.findall(r"\$SRC/streamcodec/(\S+)\"", (folder / "build.sh").read_text())
    assert (_ROOT / script).is_file()
    copied = re.findall(r"^COPY (\S+) ", (folder / "Dockerfile").read_text(), re.MULTILINE)
    assert all((_ROOT / source).exists() for source in copied)
