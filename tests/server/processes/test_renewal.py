"""Renewal: models and certificates are read anew, and one server takes over from another, and no request is lost."""

from __future__ import annotations

import os
import re
import signal
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.server.asking import Asked, asking
from tests.server.supervised import MODELS, Running, pid_of, running_workers
from tests.server.tlswire import TlsWire
from tests.server.wire import Wire, infer_request
from tests.transports.certificates import AUTHORITY
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal"),
    pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="looks at processes in /proc"),  # noqa: PTH112
]

TIMES = 3
REQUEST = infer_request("version")
NOT_RENEWED = {
    1: re.compile(r"nothing is renewed"),
    2: re.compile(r"worker \d+ ended with status \d+ before it was ready; nothing is renewed, and the others go on"),
}
"""What the log says when nothing is renewed, by how many workers."""
WORKERS = pytest.mark.parametrize("workers", [1, 2])
KEPT = pytest.mark.parametrize("is_kept", [False, True])
TLS = pytest.mark.parametrize("tls", [False, True])


def _code(version: int) -> str:
    """Make models; the length is another one each time, because Python's cache of compiled files looks at it."""
    return f"""{MODELS}{"#" * version}
models.append(Model(name="version", predict=lambda request: {{"v": np.full(2, {version})}}))
"""


def _write(folder: Path, code: str) -> None:
    """Put models in the place of others at once: a worker that is on its way may read them at any time."""
    (folder / "new.py").write_text(code)
    (folder / "new.py").replace(folder / "mine.py")


def _has_version(answer: bytes, version: int) -> bool:
    return answer.endswith(version.to_bytes(8, "little") * 2)


def _issue(folder: Path) -> tuple[str, ...]:
    """Write a new certificate; return the options that name it."""
    certificate = AUTHORITY.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_pem.write_to_path(str(folder / "new.key"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "new.crt"))
    for name in ("key", "crt"):
        (folder / f"new.{name}").replace(folder / f"server.{name}")
    return "--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key"


@contextmanager
def _serving(folder: Path, workers: int, *options: str, tls: bool) -> Iterator[tuple[Running, Callable[[], Wire]]]:
    options += _issue(folder) if tls else ()
    with running_workers(folder, *options, code=_code(0), count=workers) as running:
        yield running, partial(TlsWire if tls else Wire, running.address)


def _is_renewed(connect: Callable[[], Wire], version: int) -> bool:
    """Whether new connections are served by those who have read this version."""
    for _ in range(16):
        with connect() as wire:
            if not _has_version(wire.send(REQUEST).response().body, version):
                return False
    return True


def _nothing_is_lost(asked: Asked) -> None:
    assert {answer.status for answer in asked.answered} == {200}
    assert not asked.lost


@TLS
@KEPT
@WORKERS
def test_models_are_read_anew_under_load(workers: int, is_kept: bool, tls: bool, tmp_path: Path) -> None:
    with (
        _serving(tmp_path, workers, tls=tls) as (running, connect),
        asking(connect, REQUEST, is_kept=is_kept) as asked,
    ):
        before = running.workers
        for version in range(1, TIMES + 1):
            count = len(asked.answered)
            until(lambda count=count: len(asked.answered) > count + 100)  # type: ignore[misc]
            _write(tmp_path, _code(version))
            running.process.send_signal(signal.SIGHUP)
            until(partial(_is_renewed, connect, version))
        if workers > 1:
            until(partial(running.has_replaced, before))
    _nothing_is_lost(asked)


@WORKERS
def test_a_new_certificate_is_shown_to_new_connections(workers: int, tmp_path: Path) -> None:
    with _serving(tmp_path, workers, tls=True) as (running, connect):

        def shown() -> set[int]:
            found = set()
            for _ in range(16):
                with connect() as wire:
                    assert isinstance(wire.sock, ssl.SSLSocket)
                    certificate = wire.sock.getpeercert()
                    assert certificate is not None
                    found.add(int(str(certificate["serialNumber"]), 16))
            return found

        before = shown()
        assert len(before) == 1
        with connect() as kept:
            _issue(tmp_path)
            running.process.send_signal(signal.SIGHUP)
            until(lambda: len(shown()) == 1 and shown() != before)
            if workers == 1:
                assert kept.send(REQUEST).response().status == 200


@WORKERS
@pytest.mark.parametrize("what", ["models", "certificate"])
def test_what_cannot_be_read_changes_nothing(what: str, workers: int, tmp_path: Path) -> None:
    with _serving(tmp_path, workers, tls=True) as (running, connect):
        before = running.workers
        path = tmp_path / ("mine.py" if what == "models" else "server.crt")
        good = path.read_bytes()
        path.write_bytes(b"1 +")
        stderr = running.process.stderr
        assert stderr is not None
        with asking(connect, REQUEST, is_kept=True) as asked:
            for _ in range(2):
                running.process.send_signal(signal.SIGHUP)
                until(lambda: NOT_RENEWED[workers].search(stderr.readline()) is not None)
        _nothing_is_lost(asked)
        assert running.workers == before
        path.write_bytes(good + b"\n")
        running.process.send_signal(signal.SIGHUP)
        if workers > 1:
            until(partial(running.has_replaced, before))
        assert running.ends(signal.SIGTERM)[0] == 0


def test_signals_while_workers_are_renewed_renew_them_once_more(tmp_path: Path) -> None:
    with _serving(tmp_path, 3, tls=False) as (running, connect):
        before = running.workers
        for version in range(1, 6):
            _write(tmp_path, _code(version))
            running.process.send_signal(signal.SIGHUP)
        until(partial(_is_renewed, connect, 5))
        until(partial(running.has_replaced, before))
        status, said = running.ends(signal.SIGTERM)
        assert (status, "ERROR" in said) == (0, False)


def test_a_successor_that_hangs_gives_way_to_the_next_one(tmp_path: Path) -> None:
    with _serving(tmp_path, 2, "--shutdown-timeout", "1", tls=False) as (running, connect):
        before = running.workers
        _write(tmp_path, f"import time\ntime.sleep(3600)\n{_code(1)}")
        running.process.send_signal(signal.SIGHUP)
        until(lambda: len(running.workers) == 3)
        _write(tmp_path, _code(2))
        with asking(connect, REQUEST, is_kept=False) as asked:
            running.process.send_signal(signal.SIGHUP)
            until(partial(running.has_replaced, before))
        _nothing_is_lost(asked)
        assert _is_renewed(connect, 2)
        status, said = running.ends(signal.SIGTERM)
        assert (status, "ERROR" in said) == (0, False)


def test_a_worker_that_dies_is_replaced_although_its_successor_cannot_start(tmp_path: Path) -> None:
    with _serving(tmp_path, 2, tls=False) as (running, _):
        first = min(running.workers)  # it was started first, so its place is the first to be renewed
        waits = "import pathlib, time\nwhile not pathlib.Path('fails').exists():\n    time.sleep(0.01)\nraise OSError\n"
        _write(tmp_path, waits)
        running.process.send_signal(signal.SIGHUP)
        until(lambda: len(running.workers) == 3)
        os.kill(first, signal.SIGKILL)
        until(lambda: first not in running.workers)
        _write(tmp_path, _code(1))
        before = running.workers
        (tmp_path / "fails").touch()
        until(lambda: len(running.workers - before) == 1 and len(running.workers) == 2)


def test_a_request_in_progress_is_ended_by_the_worker_that_has_it(tmp_path: Path) -> None:
    with _serving(tmp_path, 2, "--drain-delay", "20", tls=False) as (running, _), Wire(running.address) as busy:
        pid = pid_of(busy)
        request = infer_request("version")
        busy.send(request[:-1])
        running.process.send_signal(signal.SIGHUP)
        until(lambda: len(running.workers) == 3 and pid in running.workers)  # it goes on, and its successor is there
        assert busy.send(request[-1:]).response().status == 200
        until(lambda: pid not in running.workers)  # and not after the delay: nobody has to notice


@TLS
@KEPT
@WORKERS
def test_one_server_takes_over_from_another_at_a_port(workers: int, is_kept: bool, tls: bool, tmp_path: Path) -> None:
    with ExitStack() as stack:
        running, connect = stack.enter_context(_serving(tmp_path, workers, "--reuse-port", tls=tls))
        port = str(running.address[1])
        with asking(connect, REQUEST, is_kept=is_kept) as asked:
            for _ in range(TIMES):
                count = len(asked.answered)
                until(lambda count=count: len(asked.answered) > count + 100)  # type: ignore[misc]
                following, _ = stack.enter_context(_serving(tmp_path, workers, "--reuse-port", "--port", port, tls=tls))
                assert running.ends(signal.SIGTERM) == (0, "")
                running = following
    _nothing_is_lost(asked)
