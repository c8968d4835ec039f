"""`streamcodec serve --reload`: what has changed is served, what is broken is told, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from streamcodec.cli import main
from streamcodec.cli.serving.loading import users_modules
from streamcodec.client import Client
from tests.processes import announced
from tests.server.programs import ROOT
from tests.server.wire import post

pytestmark = pytest.mark.slow

SOURCE = """
import part
from streamcodec.service import Model

def predict(request):
    if "late" in request.inputs:
        import late
    return {{"y": [{number}]}}

models = [Model(name="mine", predict=predict)]
"""


@dataclass(frozen=True, slots=True)
class Reloading:
    """A server that is started anew, in a process group of its own, as a terminal gives it one."""

    process: subprocess.Popen[str]

    def url(self) -> str:
        """Wait until it says where it listens."""
        assert self.process.stdout is not None
        return announced(iter(self.process.stdout.readline, ""))

    def answers(self) -> int:
        """Return what the model answers, when it is there."""
        with Client(self.url()) as client:
            return int(client.infer("mine", {"x": [1]})["y"][0])

    def complaints(self) -> str:
        """Wait until it waits for a change; return what it has complained."""
        assert self.process.stderr is not None
        lines = [self.process.stderr.readline()]
        while lines[-1] and not lines[-1].endswith("; waiting for a change\n"):
            lines.append(self.process.stderr.readline())
        return "".join(lines)

    def ends(self) -> tuple[int, str]:
        """Wait for the end; return the exit status, and what it has complained since."""
        _, complaints = self.process.communicate(timeout=30)
        return self.process.returncode, complaints


@contextmanager
def reloading(folder: Path, *arguments: str) -> Iterator[Reloading]:
    command = [sys.executable, "-W", "error", "-m", "streamcodec", "serve", "models", "--port", "0", "--reload"]
    process = subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    watchdog = threading.Timer(60, os.killpg, (process.pid, signal.SIGKILL))
    watchdog.start()
    with process:
        try:
            yield Reloading(process)
        finally:
            watchdog.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module that is to be served, and two that it imports: one at first and one later."""
    (tmp_path / "models.py").write_text(SOURCE.format(number=1))
    (tmp_path / "part.py").touch()
    (tmp_path / "late.py").touch()
    return tmp_path


@pytest.fixture
def _heeds_ctrl_c() -> Iterator[None]:
    """A shell lets what it starts in the background ignore it."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


def test_what_has_changed_is_served(folder: Path) -> None:
    with reloading(folder) as server:
        assert server.answers() == 1
        (folder / "models.py").write_text(SOURCE.format(number=2))  # of the same size, within a second
        assert server.answers() == 2
        (folder / "part.py").write_text("import models\n")
        url = server.url()
        with Client(url) as client:
            client.infer("mine", {"late": [1]})
        time.sleep(1)
        (folder / "late.py").write_text("x = 1\n")
        assert server.url() != url  # the port is picked anew, too


def test_what_is_broken_is_told_and_waited_for(folder: Path) -> None:
    with reloading(folder) as server:
        assert server.answers() == 1
        (folder / "part.py").write_text("def f(:\n")
        complaints = server.complaints()
        assert "SyntaxError: " in complaints
        assert complaints.endswith("streamcodec: 'models' cannot be imported; waiting for a change\n")
        (folder / "part.py").write_text("1 / 0\n")
        assert "ZeroDivisionError: division by zero" in server.complaints()
        (folder / "part.py").write_text("")
        assert server.answers() == 1
        (folder / "models.py").write_text("models = 7\n")
        assert "is int, not a Service" in server.complaints()
        (folder / "models.py").unlink()
        time.sleep(0.7)  # as some editors replace files
        (folder / "models.py").write_text(SOURCE.format(number=3))
        assert server.answers() == 3


def test_a_module_that_is_not_there_yet(folder: Path) -> None:
    (folder / "models.py").unlink()
    with reloading(folder) as server:
        assert "No module named 'models'; it was looked for in " in server.complaints()
        (folder / "models.py").write_text(SOURCE.format(number=1))
        assert server.answers() == 1


@pytest.mark.usefixtures("_heeds_ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kills", [os.kill, os.killpg])
def test_a_signal_ends_both_without_a_word(
    number: signal.Signals, kills: Callable[[int, int], None], folder: Path
) -> None:
    """Whether it is for the first process alone, or for both, as from a terminal."""
    with reloading(folder) as server:
        url = server.url()
        kills(server.process.pid, number)
        assert server.ends() == (130 if number is signal.SIGINT else 0, "")
        with pytest.raises(OSError, match="refused"), Client(url) as client:
            client.is_server_live()


@pytest.mark.usefixtures("_heeds_ctrl_c")
def test_ctrl_c_while_it_waits_for_a_change(folder: Path) -> None:
    (folder / "models.py").write_text("models = 7\n")
    with reloading(folder) as server:
        server.complaints()
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.ends() == (130, "")


def test_the_server_does_not_outlive_the_first_process(folder: Path) -> None:
    with reloading(folder) as server:
        url = server.url()
        server.process.kill()
        server.ends()  # it, too, has had our pipes
        with pytest.raises(OSError, match="refused"), Client(url) as client:
            client.is_server_live()


def test_a_server_that_ends_by_itself_is_not_started_anew(folder: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        reloading(folder, "--port", str(taken.getsockname()[1])) as it,
    ):
        status, complaints = it.ends()
    assert status == 1
    assert "is in use; " in complaints
    (folder / "models.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    with reloading(folder) as it:
        assert it.ends() == (137, "")


def test_a_request_under_way_that_never_ends_holds_nothing_up(folder: Path) -> None:
    source = SOURCE.replace("    return", "    import time\n    time.sleep({number})\n    return")
    (folder / "models.py").write_text(source.format(number=3600))
    with reloading(folder) as server:
        host, _, port = server.url().removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port))) as busy:
            busy.sendall(post(b'{"inputs":[]}', model="mine"))
            time.sleep(0.5)
            (folder / "models.py").write_text(source.format(number=0))
            assert server.answers() == 0


def test_there_must_be_something_that_can_change(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--reload"])
    assert ended.value.code == 2
    assert "--reload: the demo models do not change" in capsys.readouterr().err


def test_this_package_is_not_watched() -> None:
    assert not {name for name, _ in users_modules() if name.partition(".")[0] in {"streamcodec", "json", "numpy"}}
    assert __name__ in {name for name, _ in users_modules()}
