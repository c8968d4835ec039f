"""systemd itself, with the unit of the guide: it runs in namespaces of its own, and the servers listen outside of them.

Root only. CI's machine may have no systemd; then the tests of `test_servicemanager` speak its protocol.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.server.asking import asking
from tests.server.programs import ROOT
from tests.server.wire import GET_LIVE, Wire, post
from tests.waiting import until

_SYSTEMD = Path("/lib/systemd/systemd")
_NAMESPACES = ("--pid", "--mount", "--cgroup", "--ipc", "--uts")


def _may_have_namespaces() -> bool:
    unshare = shutil.which("unshare")
    return (
        unshare is not None
        and not subprocess.run([unshare, "--fork", *_NAMESPACES, "true"], capture_output=True, check=False).returncode
    )


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _SYSTEMD.exists(), reason="systemd is not here"),
    pytest.mark.skipif(not _may_have_namespaces(), reason="this user may not make namespaces"),
]

RELOADS = 10
RESTARTS = 3
WORKERS = pytest.mark.parametrize("workers", [1, 2])
_UNIT = ROOT / "docs" / "examples" / "streamcodec@.service"
_GUIDE = ROOT / "docs" / "howto" / "systemd.md"
_ALONE = "[Unit]\nDefaultDependencies=no\n"
"""There is no other unit in these namespaces to depend on."""
_BEGIN = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/streamcodec /run/systemd/system
mount --bind "$1" /run/streamcodec
cp /run/streamcodec/units/* /run/systemd/system/
export container=lxc
exec "$2" --system --unit=nothing.target --log-target=console --show-status=no
"""
_REQUEST = post(b'{"inputs":[]}', model="version")


def _models(version: int) -> str:
    return f"""
import numpy as np
from streamcodec.service import Model
models = [Model(name="version", predict=lambda request: {{"v": np.full(2, {version})}})]
{"#" * version}
"""


class Systemd:
    """A manager, and one instance of the unit."""

    def __init__(self, folder: Path, port: int, pid: int) -> None:
        self._folder = folder
        self._instance = f"streamcodec@{port}"
        self._pid = pid
        self.address = ("127.0.0.1", port)

    def does(self, verb: str, kind: str = "service", *options: str) -> str:
        """Have systemctl do something with the instance; return what it says."""
        enter = ["nsenter", "--target", str(self._pid), *_NAMESPACES]
        done = subprocess.run(
            [*enter, "systemctl", verb, f"{self._instance}.{kind}", *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr + (self._folder / "log").read_text()
        return done.stdout.strip()

    def shows(self, name: str) -> str:
        """Return a property of the service."""
        return self.does("show", "service", "--value", "--property", name)

    def signals_server(self, number: signal.Signals) -> None:
        """Send a signal to its first process."""
        self.does("kill", "service", "--kill-who=main", f"--signal={number.name}")

    def offers(self, version: int) -> bool:
        """Whether new connections are served by those who have read this version."""
        for _ in range(16):
            with Wire(self.address) as wire:
                if b"[%d,%d]" % (version, version) not in wire.send(_REQUEST).response().body:
                    return False
        return True

    def reads(self, version: int) -> None:
        """Put models in the place of others."""
        (self._folder / "new.py").write_text(_models(version))
        (self._folder / "new.py").replace(self._folder / "my_models.py")


def _unit(*options: str) -> str:
    """Return the guide's unit, with paths of here, which may be at home or in /tmp, and as this user."""
    text = re.sub(r"^(DynamicUser|ProtectHome|PrivateTmp)=.*\n", "", _UNIT.read_text(), flags=re.MULTILINE)
    program = "/opt/models/.venv/bin/streamcodec"
    assert program in text
    text = text.replace(program, f"{sys.executable} -m streamcodec").replace("/opt/models", "/run/streamcodec")
    text = text.replace("--drain-delay 6", " ".join(("--drain-delay 1", *options))).replace("=20\n", "=3\n")
    text = text.replace("[Unit]\n", _ALONE)
    return text.replace(
        "[Service]\n", f"[Service]\nStandardError=append:/run/streamcodec/log\nEnvironment=PYTHONPATH={ROOT}\n"
    )


@contextmanager
def _managed(folder: Path, workers: int, *, has_socket: bool = False) -> Iterator[Systemd]:
    units = folder / "units"
    units.mkdir()
    unit = _unit("--workers", str(workers))
    if has_socket:
        unit = unit.replace(" --host 127.0.0.1 --port %i", "")
        (found,) = re.findall(r"^```ini\n(\[Socket\].*?)^```$", _GUIDE.read_text(), re.MULTILINE | re.DOTALL)
        (units / "streamcodec@.socket").write_text(_ALONE + found)
    (units / _UNIT.name).write_text(unit)
    (units / "nothing.target").write_text(_ALONE)
    (folder / "my_models.py").write_text(_models(0))
    port = free_port()
    command = ["unshare", "--fork", "--kill-child", "--mount-proc", *_NAMESPACES]
    with subprocess.Popen([*command, "sh", "-c", _BEGIN, "sh", str(folder), str(_SYSTEMD)]) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            until(lambda: children.read_text() != "")
            pid = int(children.read_text())
            until(lambda: Path("/proc", str(pid), "root", "run/systemd/private").exists())
            yield Systemd(folder, port, pid)
        finally:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


@WORKERS
def test_reloads_under_load_lose_nothing(workers: int, tmp_path: Path) -> None:
    with _managed(tmp_path, workers) as systemd:
        systemd.does("start")
        with asking(partial(Wire, systemd.address), _REQUEST, is_kept=False) as asked:
            for version in range(1, RELOADS + 1):
                systemd.reads(version)
                systemd.does("reload")
                until(partial(systemd.offers, version))
        assert {answer.status for answer in asked.answered} == {200}
        assert not asked.lost
        systemd.does("stop")
        found = [systemd.shows(name) for name in ("ActiveState", "Result", "ExecMainStatus", "NRestarts")]
        assert found == ["inactive", "success", "0", "0"]


@WORKERS
def test_restarts_behind_its_socket_lose_nothing(workers: int, tmp_path: Path) -> None:
    """Who comes between two servers waits at the socket, which systemd keeps."""
    with _managed(tmp_path, workers, has_socket=True) as systemd:
        systemd.does("start", "socket")
        with asking(partial(Wire, systemd.address), _REQUEST, is_kept=False) as asked:
            for _ in range(RESTARTS):
                count = len(asked.answered)
                until(lambda count=count: len(asked.answered) > count + 100)  # type: ignore[misc]
                systemd.does("restart")
        assert {answer.status for answer in asked.answered} == {200}
        assert not asked.lost


@WORKERS
def test_a_server_that_stands_still_is_replaced(workers: int, tmp_path: Path) -> None:
    """The watchdog's time is over, and systemd kills it: a stopped process hears no other signal."""
    with _managed(tmp_path, workers) as systemd:
        systemd.does("start")
        systemd.signals_server(signal.SIGSTOP)
        until(lambda: systemd.shows("NRestarts") == "1")
        until(lambda: systemd.shows("ActiveState") == "active")
        with Wire(systemd.address) as wire:
            assert wire.send(GET_LIVE).response().status == 200
