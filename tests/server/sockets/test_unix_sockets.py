"""Unix sockets: who may connect, what becomes of a file that is there, and that no request is lost at the end."""

from __future__ import annotations

import fcntl
import os
import socket
import ssl
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.server import Server, ServerOptions, UnixListener, open_unix_listener, run, run_workers
from streamcodec.server.sockets import unixsocket
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Observer, RequestRecord, Service
from streamcodec.transports.sockets.unix import MAX_PATH_BYTES
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Wire, floats, head, infer_request

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


# Serving


@BACKENDS
def test_requests_of_several_sizes(backend: str, path: Path) -> None:
    listener = open_unix_listener(path)
    with server_here(models(), listener=listener, backend=backend), Wire(str(path)) as wire:
        assert wire.send(GET_LIVE).response().status == 200
        for count in (1, 10_000, 100_000):
            assert floats(wire.send(infer_request(count=count)).response()) == list(range(count))
        for _ in range(3):
            wire.send(GET_LIVE * 2, infer_request())
            assert [wire.response().status for _ in range(3)] == [200, 200, 200]
    assert not path.exists()


class _Clients(Observer):
    def __init__(self) -> None:
        self.found: list[str] = []

    def request_ended(self, request: RequestRecord) -> None:
        self.found.append(request.client)


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="only Linux tells who has connected")
def test_records_say_which_user_and_process_has_connected(path: Path) -> None:
    observer = _Clients()
    with server_here(models(), listener=open_unix_listener(path), observer=observer), Wire(str(path)) as wire:
        wire.send(GET_LIVE).response()
        wire.send(b"nonsense\r\n\r\n").response()
    assert observer.found == [f"unix:uid={os.getuid()},pid={os.getpid()}"] * 2


def test_hosts_are_checked_as_on_a_port(path: Path) -> None:
    """A proxy may pass on what browsers ask for."""
    service = Service(models(), allowed_hosts=["localhost"])
    with server_here(service, listener=open_unix_listener(path)), Wire(str(path)) as wire:
        assert wire.send(head("/v2", method="GET").replace(b"Host: x", b"Host: localhost")).response().status == 200
        assert wire.send(head("/v2", method="GET")).response().status == 421


# The file


@pytest.mark.parametrize("permissions", [0o600, 0o660, 0o666])
def test_permissions_do_not_depend_on_the_umask(permissions: int, path: Path) -> None:
    before = os.umask(0o077)
    try:
        with open_unix_listener(path, permissions=permissions):
            assert stat.S_IMODE(path.stat().st_mode) == permissions
    finally:
        os.umask(before)
    with open_unix_listener(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nobody_can_connect_before_the_permissions_are_set(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, tried = Path.chmod, []

    def chmod(self: Path, mode: int) -> None:
        with socket.socket(socket.AF_UNIX) as sock, pytest.raises(ConnectionRefusedError):
            sock.connect(str(self))
        tried.append(mode)
        before(self, mode)

    monkeypatch.setattr(Path, "chmod", chmod)
    with open_unix_listener(path):
        assert tried == [0o600]


@pytest.mark.parametrize("permissions", [-1, 0o1000, 660])
def test_permissions_that_are_none(permissions: int, path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="from 0 to 0o777"):
        open_unix_listener(path, permissions=permissions)
    assert not path.exists()


def test_a_socket_that_was_left_behind_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
        left.listen()
    assert path.is_socket()
    with open_unix_listener(path) as listener, Wire(str(path)):
        listener.accept()[0].close()


@pytest.mark.parametrize("is_full", [False, True])
def test_a_socket_of_a_live_server_is_not_replaced(path: Path, is_full: bool) -> None:
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(path))
        live.listen(0)
        waiting = []
        with suppress(BlockingIOError):
            while is_full:
                waiting.append(socket.socket(socket.AF_UNIX))
                waiting[-1].setblocking(False)
                waiting[-1].connect(str(path))
        with pytest.raises(OSError, match="another server listens there"):
            open_unix_listener(path)
        for sock in waiting:
            sock.close()
        assert path.is_socket()


def test_of_servers_that_start_together_one_listens(path: Path) -> None:
    """Each finds the same socket that was left behind, or the new one of another, which does not listen yet."""
    for _ in range(10):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        found: list[UnixListener | OSError] = []
        start = threading.Barrier(4)

        def listen(found: list[UnixListener | OSError] = found, start: threading.Barrier = start) -> None:
            start.wait()
            try:
                found.append(open_unix_listener(path))
            except OSError as error:
                found.append(error)

        threads = [threading.Thread(target=listen) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (listener,) = (each for each in found if isinstance(each, UnixListener))
        with listener, Wire(str(path)):
            listener.accept()[0].close()


@pytest.mark.parametrize("kind", ["file", "directory", "link", "link to nothing", "datagrams"])
def test_what_is_no_socket_of_a_server_is_not_replaced(kind: str, path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        if kind == "directory":
            path.mkdir()
        elif kind.startswith("link"):
            path.symlink_to(other)
            if kind == "link":
                other.touch()
        elif kind == "file":
            path.touch()
        else:
            datagrams.bind(str(path))
        before = path.lstat()
        with pytest.raises(OSError, match=f"cannot listen at {path}: ") as caught:
            open_unix_listener(path)
        assert ("not a socket" in str(caught.value)) == (kind != "datagrams")
        assert path.lstat().st_ino == before.st_ino


def test_the_file_is_removed_once_and_no_other_one_instead(path: Path) -> None:
    listener = open_unix_listener(path)
    path.unlink()
    with open_unix_listener(path) as second:
        listener.close()
        assert path.is_socket()
        second.remove()
        assert not path.exists()
        path.touch()
        second.remove()
    assert path.exists()


def test_a_relative_path_stays_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listener = open_unix_listener("socket")
    assert listener.path == str(tmp_path / "socket")
    monkeypatch.chdir("/")
    listener.close()
    assert not (tmp_path / "socket").exists()


# Where nobody can listen


@contextmanager
def _without_rights() -> Iterator[Path]:
    """Be an ordinary user; yield a directory where that one may not write."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o555)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            if is_root:
                os.seteuid(0)
            Path(name).chmod(0o755)


def test_a_directory_where_one_may_not_write() -> None:
    with _without_rights() as folder, pytest.raises(PermissionError, match=f"{folder}/s: Permission denied"):
        open_unix_listener(folder / "s")


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"the directory {tmp_path}/no: No such file"):
        open_unix_listener(tmp_path / "no" / "s")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=f"the directory {tmp_path}/file: Not a directory"):
        open_unix_listener(tmp_path / "file" / "s")


def test_a_directory_that_another_program_keeps_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unixsocket, "_LOCK_SECONDS", 0.05)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="locked"):
            open_unix_listener(path)
    finally:
        os.close(descriptor)
    open_unix_listener(path).close()


def test_the_longest_path(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        longest = Path(name) / ("x" * (MAX_PATH_BYTES - len(name) - 1))
        with open_unix_listener(longest), Wire(str(longest)):
            pass
        with pytest.raises(
            LocalProtocolError, match=f"at most {MAX_PATH_BYTES} bytes here, and .* has {MAX_PATH_BYTES + 1}"
        ):
            open_unix_listener(f"{longest}x")
        with pytest.raises(LocalProtocolError, match="at most"):
            open_unix_listener(Path(name) / ("ä" * 53))  # in characters it would fit
    with pytest.raises(LocalProtocolError, match="NUL"):
        open_unix_listener(tmp_path / "a\0b")


def test_there_is_no_tls(path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    service = Service(models())
    with pytest.raises(LocalProtocolError, match="no TLS on a Unix socket"):
        run(service, uds=path, ssl_context=context)
    with pytest.raises(LocalProtocolError, match="no TLS on a Unix socket"):
        run_workers(lambda: service, 2, uds=path, ssl_context=context)
    assert not path.exists()


# The end


class _Running:
    """A server that a test stops, from outside of its event loop."""

    def __init__(self, portal: BlockingPortal, server: Server) -> None:
        self._stopping = threading.Thread(target=portal.call, args=(server.stop,))

    def stop(self) -> None:
        """Have the event loop stop the server, when it comes to that."""
        self._stopping.start()

    def has_stopped(self) -> None:
        """Wait until it has come to that."""
        self._stopping.join()


@contextmanager
def _server(
    backend: str, listener: socket.socket, served: ModelRegistry, options: ServerOptions | None = None
) -> Iterator[_Running]:
    settings = {"use_uvloop": True} if backend == "uvloop" else None
    with start_blocking_portal("asyncio" if settings else backend, settings) as portal:
        server = portal.call(partial(Server, Service(served), options))
        task = portal.start_task_soon(server.serve, listener)
        running = _Running(portal, server)
        try:
            yield running
        finally:
            if not server.is_stopping:
                portal.call(server.stop)
            task.result(60)


@BACKENDS
def test_who_has_connected_before_the_end_is_answered(backend: str, path: Path) -> None:
    """They wait at the socket, because the event loop is busy, when the server is told to stop."""
    begun, ends = threading.Event(), threading.Event()

    def hold(_: InferenceRequest) -> dict[str, Any]:
        begun.set()
        ends.wait(60)
        return {}

    registry = ModelRegistry.of([Model(name="holds", predict=hold, is_inline=True)])
    with _server(backend, open_unix_listener(path), registry) as server, Wire(str(path)) as holding:
        holding.send(infer_request("holds"))
        assert begun.wait(60)
        late = [Wire(str(path)).send(GET_LIVE) for _ in range(20)]
        server.stop()
        ends.set()
        server.has_stopped()
        for wire in late:
            with wire:
                assert wire.response().status == 200
        assert holding.response().status == 200
    assert not path.exists()


@pytest.mark.slow
@BACKENDS
def test_who_comes_while_it_ends_is_answered_or_cannot_connect(backend: str, path: Path) -> None:
    lost: list[str] = []
    answered: list[int] = []

    def ask() -> None:
        while True:
            try:
                wire = Wire(str(path))
            except FileNotFoundError:
                return
            with wire:
                try:
                    answered.append(wire.send(GET_LIVE).response().status)
                except OSError as error:
                    lost.append(repr(error))

    for _ in range(5):
        with _server(backend, open_unix_listener(path), models()) as server:
            clients = [threading.Thread(target=ask) for _ in range(8)]
            for client in clients:
                client.start()
            time.sleep(0.1)
            server.stop()
            server.has_stopped()
            for client in clients:
                client.join()
    assert lost == []
    assert set(answered) == {200}


@BACKENDS
def test_a_server_that_drains_keeps_its_file_until_it_accepts_no_more(backend: str, path: Path) -> None:
    with _server(backend, open_unix_listener(path), models(), ServerOptions(drain_delay=0.15)) as server:
        with Wire(str(path)) as wire:
            wire.send(GET_LIVE).response()
            server.stop()
            server.has_stopped()
            wire.send(GET_LIVE).response()
        with Wire(str(path)) as wire:
            assert wire.send(GET_LIVE).response().status == 200
    assert not path.exists()


def test_a_listener_of_somebody_else_keeps_its_file(path: Path) -> None:
    """A service manager may have opened it, and gives it to the next server, too."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with server_here(models(), listener=listener), Wire(str(path)) as wire:
            assert wire.send(GET_LIVE).response().status == 200
    assert path.is_socket()


# A client that leaves


@BACKENDS
def test_a_model_is_cancelled_when_its_client_has_left(backend: str, path: Path) -> None:
    """The other end of a Unix socket is told at once; there is no reset to wait for."""
    begun, cancelled = threading.Event(), threading.Event()

    async def wait(_: InferenceRequest) -> dict[str, Any]:
        begun.set()
        try:
            await anyio.sleep(10)
        except BaseException:
            cancelled.set()
            raise
        return {}

    registry = ModelRegistry.of([Model(name="waits", predict=wait)])
    with _server(backend, open_unix_listener(path), registry):
        with Wire(str(path)) as wire:
            wire.send(infer_request("waits"))
            assert begun.wait(60)
        assert cancelled.wait(60)


@pytest.mark.slow
@BACKENDS
def test_who_has_ended_just_its_own_direction_is_answered(backend: str, path: Path) -> None:
    async def wait(request: InferenceRequest) -> dict[str, Any]:
        await anyio.sleep(0.4)  # it is looked after clients four times a second
        return dict(request.inputs)

    registry = ModelRegistry.of([Model(name="waits", predict=wait)])
    with _server(backend, open_unix_listener(path), registry), Wire(str(path)) as wire:
        wire.send(infer_request("waits"))
        wire.sock.shutdown(socket.SHUT_WR)
        assert wire.response().status == 100
        assert floats(wire.response()) == [0, 1, 2, 3]
