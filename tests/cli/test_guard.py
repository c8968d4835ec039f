"""`streamcodec guard`: its options, and the command as a process."""

from __future__ import annotations

import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from streamcodec.cli import main
from streamcodec.cli.serving import guard as command
from streamcodec.client.connections.address import Address
from streamcodec.guard import Guard
from tests.ports import free_port
from tests.processes import announced
from tests.server.models import models
from tests.server.programs import ROOT, server_here
from tests.server.wire import Wire, floats, head, infer_request, post


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "--upstream"),
        (("--upstream", "nonsense"), 2, "a server's URL looks like"),
        (("--upstream", "http://user:secret@x"), 2, "no user and password"),
        (("--upstream", "http://x", "--ssl-keyfile", "x"), 2, "there is no TLS without --ssl-certfile"),
        (("--upstream", "http://x", "--max-header", "0"), 2, "not a size"),
        (("--upstream", "http://x", "--allow", "generate,nothing"), 2, "'nothing' cannot be allowed"),
        (("--upstream", "http://x", "--allow", ""), 2, "'' cannot be allowed"),
        (("--upstream", "http://x", "--upstream", "http://x"), 2, "--upstream: it can be given once only"),
        (("--upstream", "http://x", "--allowed-host", "http://y"), 2, "an allowed host must be"),
        (("--upstream", "http://x", "--drain-delay", "-1"), 2, "--drain-delay"),
        (
            ("--upstream", "http://x", "--drain-delay", "40"),
            2,
            "error: --drain-delay must be at most --shutdown-timeout",
        ),
        (
            ("--upstream", "https://x", "--upstream-ca", "nothing"),
            1,
            "streamcodec: --upstream-ca='nothing': no certificates",
        ),
        (("--upstream", "http://x", "--upstream-ca", "nothing"), 1, "streamcodec: --upstream-ca"),
    ],
)
def test_wrong_arguments(
    arguments: tuple[str, ...], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if status == 1:
        assert main(["guard", *arguments]) == status
    else:
        with pytest.raises(SystemExit) as ended:
            main(["guard", *arguments])
        assert ended.value.code == status
    complaint = capsys.readouterr().err
    assert words in complaint
    assert "secret" not in complaint


@pytest.mark.parametrize("form", ["port", "uds"])
def test_where_it_listens(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[float] = []
    options = [
        "--shutdown-timeout",
        "7",
        "--drain-delay",
        "2",
        "--max-tensor",
        "1M",
        "--allow",
        "trace",
        "--allowed-host",
        "x",
    ]

    def serve(guard: Guard, listener: socket.socket, tell: Callable[[], None], seconds: float, anew: object) -> int:
        assert not guard.is_stopping
        assert listener.fileno() >= 0
        assert callable(anew)
        tell()
        begun.append(seconds)
        return 0

    monkeypatch.setattr(command, "serve_until_signal", serve)
    monkeypatch.setattr(command, "collect_seldom", bool)
    place = ("--port", "0") if form == "port" else ("--uds", str(tmp_path / "s"))
    assert main(["guard", "--upstream", "http://x:1", *place, *options]) == 0
    assert begun == [7]
    first, second, found = capsys.readouterr().out.splitlines()
    assert found.startswith("found: ")
    assert "models" not in found
    assert first.startswith("listening on http://127.0.0.1:" if form == "port" else "listening on http+unix://%2F")
    assert second == "guarding http://x:1"


@pytest.mark.parametrize(
    ("host", "upstream"),
    [
        ("127.0.0.1", "http://127.0.0.1:PORT"),
        ("127.0.0.1", "http://localhost:PORT/below"),
        ("localhost", "https://127.0.0.1:PORT"),
        ("0.0.0.0", "http://127.0.0.1:PORT"),  # noqa: S104 - nobody is served
    ],
)
def test_a_guard_of_itself_is_refused(host: str, upstream: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A request would take one connection after the other, until there are no more."""
    port = str(free_port())
    with pytest.raises(SystemExit) as ended:
        main(["guard", "--host", host, "--port", port, "--upstream", upstream.replace("PORT", port)])
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ": this is the guard itself; requests would go in a circle\n" in printed.err


def test_a_guard_of_its_own_socket_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s"
    with pytest.raises(SystemExit):
        main(["guard", "--uds", str(path), "--upstream", f"http+unix://{quote(str(path), safe='')}"])
    assert "this is the guard itself" in capsys.readouterr().err


def test_others_at_the_same_port_are_no_circle() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for host in ("192.0.2.1", "nobody.invalid", "[::1]", "0.0.0.0"):  # noqa: S104 - it leads to this machine
            itself = command.is_itself(Address.of(f"http://{host}:{port}"), listener)
            assert itself == (host == "0.0.0.0"), host  # noqa: S104
    with socket.create_server(("0.0.0.0", 0)) as listener:  # noqa: S104 - nobody is served
        port = listener.getsockname()[1]
        assert not command.is_itself(Address.of(f"http://192.0.2.1:{port}"), listener)
        assert not command.is_itself(Address.of("http://127.0.0.1:1"), listener)


@pytest.mark.slow
def test_as_a_process() -> None:
    pytest.importorskip("prometheus_client")
    with server_here(models()) as (_, (host, port)):
        options = f"--port 0 --no-access-log --metrics --upstream http://{host}:{port}"
        command_line = f"-W error -m streamcodec guard {options}".split()
        with subprocess.Popen(
            [sys.executable, *command_line], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stderr is not None
                assert select.select([process.stdout], [], [], 20)[0]
                address = announced(process.stdout).removeprefix("http://").split(":")
                with Wire((address[0], int(address[1]))) as wire:
                    assert floats(wire.send(infer_request()).response()) == [0.0, 1.0, 2.0, 3.0]
                    assert wire.send(post(b"{}")).response().status == 400
                    page = wire.send(head("/metrics", method="GET")).response().body
                    assert b'status="200",version=""} 1.0' in page
                    assert b'status="400",version=""} 1.0' in page
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
                assert process.stderr.read() == ""
            finally:
                process.kill()
