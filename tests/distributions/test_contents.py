"""The check of the distributions finds what is missing and what is too much."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.distributions.contents import complaints
from tests.distributions.quick_start import run

_INFO = "streamcodec-0.1.0.dist-info"
_WHEEL = [
    *("streamcodec/__init__.py", "streamcodec/engine/json/text.py", "streamcodec/py.typed"),
    "streamcodec/cli/pyinstaller/hook-streamcodec.cli.commands.py",
    *(f"{_INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")),
]
_SOURCE = [
    *("LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "CITATION.cff", "CHANGELOG.md", ".ci/run"),
    *("streamcodec/py.typed", "docs/conf.py", "tests/conftest.py", "fuzz/run.py", "fuzz/corpus/npy/some-input"),
]


def _wheel(folder: Path, names: list[str]) -> Path:
    path = folder / "streamcodec-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


def _source(folder: Path, names: list[str]) -> Path:
    path = folder / "streamcodec-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"streamcodec-0.1.0/{name}"), io.BytesIO())
    return path


def test_what_should_be_there(tmp_path: Path) -> None:
    assert list(complaints(_wheel(tmp_path, _WHEEL))) == []
    assert list(complaints(_source(tmp_path, _SOURCE))) == []


@pytest.mark.parametrize("name", _WHEEL[2:])
def test_what_is_missing_in_a_wheel(name: str, tmp_path: Path) -> None:
    (found,) = complaints(_wheel(tmp_path, [each for each in _WHEEL if each != name]))
    assert found.endswith(f"{name.replace(_INFO, '*.dist-info')} is missing")


@pytest.mark.parametrize("name", _SOURCE[:-1])
def test_what_is_missing_in_a_source_distribution(name: str, tmp_path: Path) -> None:
    (found,) = complaints(_source(tmp_path, [each for each in _SOURCE if each != name]))
    assert found.endswith(f"{name} is missing")


@pytest.mark.parametrize(
    "name", ["tests/test_x.py", "streamcodec/x.so", "streamcodec/a b.py", f"{_INFO}/notes.txt", "x.pth"]
)
def test_what_does_not_belong_in_a_wheel(name: str, tmp_path: Path) -> None:
    (found,) = complaints(_wheel(tmp_path, [*_WHEEL, name]))
    assert found.endswith(f"{name} does not belong there")


@pytest.mark.parametrize(
    "name", ["notes.txt", "tests/x.pyc", "streamcodec/__pycache__/x.cpython-311.pyc", ".venv/x.py"]
)
def test_what_does_not_belong_in_a_source_distribution(name: str, tmp_path: Path) -> None:
    (found,) = complaints(_source(tmp_path, [*_SOURCE, name]))
    assert found.endswith(f"{name} does not belong there")


def test_a_page_that_shows_what_is_not_printed() -> None:
    page = "```python\nx = 1\n```\n\n```python\nprint(x)\n```\n\n```text\n{}\n```\n"
    assert run(page.format(1)) == 2
    with pytest.raises(ValueError, match="README shows '2"):
        run(page.format(2))
