"""Service manager: what it is told, and the socket that it gives."""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.server.processes.servicemanager import ServiceManager, given_listener
from tests.processes import announced
from tests.server.asking import asking
from tests.server.programs import Program
from tests.server.supervised import MODELS
from tests.server.wire import Wire, post
from tests.waiting import SECONDS, until

NAMES = ("path", pytest.param("abstract", marks=pytest.mark.skipif(sys.platform != "linux", reason="of Linux")))
_GIVES = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""What a service manager does before it starts a program."""

REQUEST = post(b'{"inputs":[]}', model="pid")


@contextmanager
def _manager(path: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path.replace("@", "\0", 1))
        manager.settimeout(SECONDS)
        yield manager


@pytest.mark.parametrize("kind", NAMES)
def test_it_is_told(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / "n") if kind == "path" else f"@streamcodec-{os.getpid()}"
    with _manager(path) as manager:
        server = ServiceManager({"NOTIFY_SOCKET": path})
        server.is_ready()
        assert manager.recv(99) == b"READY=1"
        server.is_reloading()
        assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=[0-9]+", manager.recv(99))
        server.works()
        assert manager.recv(99) == b"WATCHDOG=1"
        server.is_stopping()
        assert manager.recv(99) == b"STOPPING=1"
    server.is_ready()  # it has gone, and that is no error


def test_nobody_is_told_who_does_not_ask() -> None:
    ServiceManager({}).is_ready()
    pid = str(os.getpid())
    asks = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000"}
    assert ServiceManager({}).beat_seconds == math.inf
    assert ServiceManager(asks).beat_seconds == 1.5
    assert ServiceManager({**asks, "WATCHDOG_PID": pid}).beat_seconds == 1.5
    assert ServiceManager({**asks, "WATCHDOG_PID": "1"}).beat_seconds == math.inf
    assert ServiceManager({**asks, "WATCHDOG_USEC": "0"}).beat_seconds == math.inf
    assert ServiceManager({**asks, "WATCHDOG_USEC": "x"}).beat_seconds == math.inf


def test_sockets_that_are_for_somebody_else_or_too_many() -> None:
    pid = str(os.getpid())
    assert given_listener({}) is None
    assert given_listener({"LISTEN_FDS": "1", "LISTEN_PID": "1"}) is None
    assert given_listener({"LISTEN_FDS": "0", "LISTEN_PID": pid}) is None
    with pytest.raises(LocalProtocolError, match="gives 2 sockets, and a server listens at one"):
        given_listener({"LISTEN_FDS": "2", "LISTEN_PID": pid})


@contextmanager
def _served(tmp_path: Path, given: int, *arguments: str, **environment: str) -> Iterator[Program]:
    """Serve as a service manager does: with a descriptor as number 3, if it is not 0."""
    (tmp_path / "mine.py").write_text(MODELS)
    command = [sys.executable, "-m", "streamcodec", "serve", "mine", "--no-access-log", *arguments]
    if given:
        command = [sys.executable, "-c", _GIVES, str(given), *command]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, **environment},
        pass_fds=[given] if given else [],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield Program(process, announced(process.stdout))
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_tells_it_what_happens(workers: str, tmp_path: Path) -> None:
    path = str(tmp_path / "n")
    with (
        _manager(path) as manager,
        _served(
            tmp_path, 0, "--port", "0", "--workers", workers, NOTIFY_SOCKET=path, WATCHDOG_USEC="200000"
        ) as program,
    ):

        def told() -> str:
            """Return what is told next, but for the watchdog."""
            while (said := manager.recv(99).decode()) == "WATCHDOG=1":
                pass
            return said

        assert told() == "READY=1"
        for _ in range(3):
            assert manager.recv(99) == b"WATCHDOG=1"
        program.kill(signal.SIGHUP)
        assert told().startswith("RELOADING=1\n")
        assert told() == "READY=1"
        program.kill(signal.SIGTERM)
        assert told() == "STOPPING=1"
        assert program.ends() == 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("kind", ["port", "path"])
def test_servers_after_each_other_lose_nothing_at_a_socket_that_is_given(
    kind: str, workers: str, tmp_path: Path
) -> None:
    """Clients that come while nobody serves wait at the socket for the next server."""
    path = str(tmp_path / "s")
    family = socket.AF_INET if kind == "port" else socket.AF_UNIX
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0) if kind == "port" else path)
        listener.listen(128)
        address = listener.getsockname()
        url = f"http+unix://{quote(path, safe='')}" if kind == "path" else f"http://127.0.0.1:{address[1]}"
        pids = set()
        with asking(lambda: Wire(address), REQUEST, is_kept=False) as asked:
            for _ in range(2):
                with _served(tmp_path, listener.fileno(), "--workers", workers) as program:
                    assert program.url == url
                    count = len(asked.answered)
                    until(lambda count=count: len(asked.answered) > count + 50)  # type: ignore[misc]
                    program.kill(signal.SIGTERM)
                    assert program.ends() == 0
                    assert program.complaints() == ""
                    pids |= {answer.body for answer in asked.answered if answer.status == 200}
            listener.close()
            Path(path).unlink(missing_ok=True)
    assert {answer.status for answer in asked.answered} == {200}
    assert len(pids) >= 2
    assert not [error for error in asked.lost if not isinstance(error, ConnectionResetError)]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--port", "0"), ("--host", "::1"), ("--uds", "x"), ("--reuse-port",)])
def test_a_socket_that_is_given_and_another_place_contradict_each_other(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        _served(tmp_path, listener.fileno(), *arguments) as program,
    ):
        assert program.ends() == 2
        assert f"{arguments[0]}: the service manager gives the socket (LISTEN_FDS)" in program.complaints()


@pytest.mark.slow
def test_what_is_given_is_no_listening_socket(tmp_path: Path) -> None:
    with socket.socket() as sock, _served(tmp_path, sock.fileno()) as program:
        assert program.ends() == 1
        assert "is no listening stream socket (LISTEN_FDS)" in program.complaints()
    with (tmp_path / "f").open("wb") as file, _served(tmp_path, file.fileno()) as program:
        assert program.ends() == 1
        assert "is no socket (LISTEN_FDS)" in program.complaints()
