"""The unit of systemd, and the pages about installing and running a service."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamcodec.cli.commands import parse
from streamcodec.client import Client
from tests.processes import announced
from tests.server.programs import ROOT
from tests.waiting import until

_UNIT = ROOT / "docs" / "examples" / "streamcodec@.service"
_INSTALL = ROOT / "docs" / "howto" / "install.md"
_SYSTEMD = shutil.which("systemd-analyze")


def _setting(name: str) -> str:
    (value,) = re.findall(rf"^{name}=(.*)$", _UNIT.read_text(), re.MULTILINE)
    return str(value)


def test_the_unit_starts_the_server_and_gives_it_time_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, _, arguments = _setting("ExecStart").replace("%i", "8000").partition(" ")
    assert program == "/opt/models/.venv/bin/streamcodec"
    (tmp_path / "my_models.py").touch()
    monkeypatch.chdir(tmp_path)
    options = parse(shlex.split(arguments))
    assert options.port == 8000
    assert int(_setting("TimeoutStopSec")) > options.shutdown_timeout
    assert "ExecReload" not in _UNIT.read_text() or _setting("ExecReload") == "/bin/kill -HUP $MAINPID"


@pytest.mark.skipif(_SYSTEMD is None, reason="systemd is not here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = _UNIT.read_text().replace("/opt/models/.venv/bin/streamcodec", sys.executable)
    (tmp_path / _UNIT.name).write_text(text)
    command = [str(_SYSTEMD), "verify", str(tmp_path / "streamcodec@8000.service")]
    (tmp_path / "streamcodec@8000.service").symlink_to(tmp_path / _UNIT.name)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_wheel_is_found_in_a_folder_with_its_extras(tmp_path: Path) -> None:
    """The commands of the page, without a network: the build's tools and the dependencies are those of the tests."""
    blocks = "".join(re.findall(r"^```console\n(.*?)^```$", _INSTALL.read_text(), re.MULTILINE | re.DOTALL))
    build = "python -m pip wheel --no-deps --wheel-dir dist ."
    install = "pip install --find-links dist 'streamcodec[prometheus]'"
    assert f"$ {build}\n" in blocks
    assert f"$ {install}\n" in blocks
    source = tmp_path / "source"
    source.mkdir()
    for name in ("streamcodec", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    _run(build, "--no-build-isolation", "--no-index", cwd=source)
    (wheel,) = (source / "dist").iterdir()
    assert f"dist/{wheel.name}[prometheus,speed]" in blocks, "the page names the file"
    said = _run(install, "--dry-run", "--ignore-installed", "--no-deps", "--no-index", cwd=source)
    assert "Would install streamcodec-" in said


def _run(command: str, *more: str, cwd: Path) -> str:
    words = [*shlex.split(command.removeprefix("python -m ")), *more]
    done = subprocess.run([sys.executable, "-m", *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_log_that_is_copied_and_truncated_goes_on_at_its_beginning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamcodec", "serve", "streamcodec.service:demo_models", "--port", "0"]
    log = tmp_path / "log"
    with (
        log.open("ab") as appended,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=appended, text=True) as process,
    ):
        try:
            with Client(announced(process.stdout or ())) as client:
                _ask(client, log, "/v2/health/live")
                log.write_bytes(b"")
                _ask(client, log, "/v2/health/ready")
        finally:
            process.send_signal(signal.SIGTERM)
    lines = log.read_text().splitlines()
    assert len(lines) == 1
    assert " GET /v2/health/ready " in lines[0]


def _ask(client: Client, log: Path, path: str) -> None:
    """Ask, and wait for the line."""
    client.is_server_ready() if path.endswith("ready") else client.is_server_live()
    until(lambda: path in log.read_text())
