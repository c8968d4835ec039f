"""Bundles: one file, or one folder, that is the command line; built as the page about small devices says."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pytest

import streamcodec
from streamcodec.cli.pyinstaller import hook_dirs
from tests.processes import announced

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("anyio", "h11", "idna", "typing_extensions")
"""What the page has pip put into the file, besides streamcodec; numpy is the system's."""

_LIMIT_SECONDS = 480
"""Of one command. PyInstaller takes 16 s of the processor's time: 150 s where 17 programs share two processors."""

_PAGE = (_ROOT / "docs" / "howto" / "small-device.md").read_text()


def _documented(beginning: str) -> list[str]:
    """Return the command of the page that begins so, for this Python."""
    (line,) = re.findall(rf"^\$ (python {re.escape(beginning)} .*)$", _PAGE, re.MULTILINE)
    return [sys.executable, *shlex.split(line)[1:]]


def _run(*command: str | Path, cwd: Path) -> str:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=_LIMIT_SECONDS)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _serves(program: Sequence[str | Path], folder: Path) -> None:
    """Run the command line from elsewhere: its version, a server with demo models, and a request to it."""
    assert _run(*program, "--version", cwd=folder) == f"streamcodec {streamcodec.__version__}\n"
    np.save(folder / "x.npy", np.arange(6, dtype=np.float32))
    command = [*program, "serve", "--port", "0", "--no-access-log"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stderr is not None
            url = announced(server.stdout)
            _run(*program, "infer", url, "identity", "--input", "x=x.npy", "--output-dir", "out", cwd=folder)
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.stderr.read() == ""
    np.testing.assert_array_equal(np.load(folder / "out" / "x.npy"), np.arange(6, dtype=np.float32))


@pytest.mark.slow
def test_zipapp(tmp_path: Path) -> None:
    app = tmp_path / "app"
    for name in ("streamcodec", *_PACKAGES):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin)
        if spec.submodule_search_locations is None:
            shutil.copy(source, app / source.name)
        else:
            shutil.copytree(source.parent, app / name, ignore=shutil.ignore_patterns("__pycache__"))
    assert all(f" {name}" in shlex.join(_documented("-m pip")) for name in _PACKAGES)
    _run(*_documented("-m compileall"), cwd=tmp_path)
    _run(*_documented("-m zipapp"), cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # -I leaves PYTHONPATH out, so nothing of this checkout is found but what is in the file.
    _serves([sys.executable, "-I", tmp_path / "streamcodec.pyz"], elsewhere)


def _others() -> set[str]:
    """Return what an environment without extras and tests does not have; it doubles the time."""
    installed = {name for name in packages_distributions() if name.isidentifier()}
    return installed - {"streamcodec", "numpy", *_PACKAGES}


@pytest.mark.slow
def test_pyinstaller(tmp_path: Path) -> None:
    pytest.importorskip("PyInstaller", reason="PyInstaller is not installed: pip install pyinstaller")
    (main,) = re.findall(r"^\$ echo '(.*)' > main.py$", _PAGE, re.MULTILINE)
    (tmp_path / "main.py").write_text(main)
    # An installation that is older than the hook does not name it yet.
    options = ["--paths", str(_ROOT), "--additional-hooks-dir", *hook_dirs(), "--log-level", "ERROR"]
    options += [f"--exclude-module={name}" for name in _others()]
    _run(*_documented("-m PyInstaller"), *options, cwd=tmp_path)
    _serves([tmp_path / "dist" / "streamcodec" / f"streamcodec{sysconfig.get_config_var('EXE') or ''}"], tmp_path)


def test_pyinstaller_finds_the_hook() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pyinstaller40"] == {"hook-dirs": "streamcodec.cli.pyinstaller:hook_dirs"}
    (folder,) = map(Path, hook_dirs())
    hooked = [path.stem.removeprefix("hook-") for path in folder.glob("hook-*.py")]
    assert hooked == ["streamcodec.cli.commands"]
    assert all(importlib.util.find_spec(name) for name in hooked)
