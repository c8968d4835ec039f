"""`python -m streamcodec serve` as a process: start, what it can be told to serve, signals, end."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from streamcodec.cli import main
from streamcodec.client import Client
from streamcodec.server import ServerOptions, open_listener
from streamcodec.server.sockets.opening import open_place
from tests.server.programs import MODELS, serving
from tests.server.wire import GET_LIVE, Wire, post

pytestmark = pytest.mark.slow

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 0}
"""Of a server that has ended in good order."""


def _sleep(seconds: float) -> bytes:
    body = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":[%f]}]}' % seconds
    return post(body, model="sleep")


@SIGNALS
def test_a_signal_right_after_the_announcement_is_minded(number: signal.Signals) -> None:
    with serving() as program:
        program.kill(number)
        assert program.ends() == STATUS[number]
        assert program.complaints() == ""


@SIGNALS
def test_a_signal_ends_idle_connections_and_lets_requests_end(number: signal.Signals) -> None:
    with serving(MODELS) as program, Wire(program.address) as idle, Wire(program.address) as busy:
        assert idle.send(GET_LIVE).response().status == 200
        busy.send(_sleep(0.8))
        time.sleep(0.3)
        program.kill(number)
        assert idle.is_closed()
        with pytest.raises(ConnectionError):
            Wire(program.address)
        answer = busy.response()
        assert (answer.status, answer.is_last) == (200, True)
        assert program.ends() == STATUS[number]
        assert program.complaints() == ""


@SIGNALS
def test_a_second_signal_ends_at_once(number: signal.Signals) -> None:
    with serving(MODELS, "--shutdown-timeout", "600") as program, Wire(program.address) as busy:
        busy.send(_sleep(600))
        time.sleep(0.3)
        program.kill(number)
        time.sleep(0.2)
        assert program.process.poll() is None
        program.kill(number)
        assert program.ends() == STATUS[number]
        assert busy.is_closed()
        assert program.complaints() == ""


@SIGNALS
@pytest.mark.parametrize("model", ["holds%20up", "never%20ends"])
def test_the_limit_for_stopping_holds_whatever_a_model_does(number: signal.Signals, model: str) -> None:
    with serving(MODELS, "--shutdown-timeout", "0.5") as program, Wire(program.address) as busy:
        busy.send(post(b'{"inputs":[]}', model=model))
        time.sleep(0.3)
        began = time.monotonic()
        program.kill(number)
        assert program.ends() == 1
        assert time.monotonic() - began > 0.5
        assert program.complaints().count("\n") == 1


@SIGNALS
@pytest.mark.parametrize("model", ["holds%20up", "never%20ends"])
def test_a_second_signal_ends_whatever_a_model_does(number: signal.Signals, model: str) -> None:
    with serving(MODELS, "--shutdown-timeout", "600") as program, Wire(program.address) as busy:
        busy.send(post(b'{"inputs":[]}', model=model))
        time.sleep(0.3)
        program.kill(number)
        time.sleep(0.5)
        assert program.process.poll() is None
        program.kill(number)
        assert program.ends() == 1


def test_a_thread_that_a_model_has_left_does_not_keep_the_process() -> None:
    with serving(MODELS) as program, Wire(program.address) as wire:
        wire.send(post(b'{"inputs":[]}', model="leaves%20a%20thread")).response()
        program.kill(signal.SIGTERM)
        assert program.ends() == 0
        assert program.complaints() == ""


def test_the_announcement_is_the_only_output() -> None:
    with serving() as program:
        assert program.url.startswith("http://127.0.0.1:")
        with Client(program.url) as client:
            assert client.is_server_ready()
            assert client.is_model_ready("identity")
            assert client.is_model_ready("sink")
        program.kill(signal.SIGTERM)
        assert program.ends() == 0
        assert program.process.stdout is not None
        first, *models, found = program.process.stdout.read().splitlines()
        assert first == "serving the demo models:"
        assert found.startswith("found: ")
        assert [model.split(",")[0] for model in models] == ["  identity", "  sink"]


def test_ipv6() -> None:
    try:
        open_listener("::1", 0).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with serving("--host", "::1") as program:
        assert program.url.startswith("http://[::1]:")
        with Client(program.url) as client:
            assert client.is_server_live()


@pytest.mark.parametrize("host", ["256.1.1.1", "::g", "nobody.invalid", "a..b", "192.0.2.1"])
def test_an_address_that_cannot_be_had(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", "--host", host]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", [":ONE_MODEL", ":A_LIST", ":MODELS", ":models", ":Holder.models", ""])
def test_what_can_be_served(name: str) -> None:
    with serving(f"tests.server.models{name}") as program, Client(program.url) as client:
        assert client.is_model_ready("identity")


def test_an_empty_list_of_models_is_complained_of(tmp_path: Path) -> None:
    """A program may add models while it serves, so that is no error."""
    (tmp_path / "bare.py").write_text("MODELS = []")
    with serving("bare.py", cwd=tmp_path) as program, Client(program.url) as client:
        assert client.is_server_ready()
        program.kill(signal.SIGTERM)
        assert program.ends() == 0
        said = "'MODELS' of " + str(tmp_path / "bare.py")
        assert f"{said} has no models; nothing is served until the program adds some" in program.complaints()


def test_a_module_in_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from streamcodec.service import Model\nmodel = Model(name='mine', predict=lambda request: request.inputs)\n"
    )
    with serving("mine:model", cwd=tmp_path) as program, Client(program.url) as client:
        assert client.is_model_ready("mine")
        assert not client.is_model_ready("identity")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ":",
        ":x",
        ".x:y",
        "nowhere:x",
        "tests.server.programs",
        "tests.server.models:",
        "tests.server.models:NOTHING",
        "tests.server.models:AN_ARRAY",
        "tests.server.models:Holder.",
        "json:loads",
        "json:__name__",
        "json:JSONDecoder",
        "streamcodec.service:Model",
    ],
)
def test_what_cannot_be_served_is_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["serve", name, "--port", "0"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1, output.err
    assert output.err.startswith("streamcodec: ")


def test_a_model_that_fails_is_logged_and_the_server_lives() -> None:
    with serving(MODELS) as program:
        with Wire(program.address) as wire:
            body = b'{"inputs":[]}'
            for model in ("break", "exit"):
                assert wire.send(post(body, model=model)).response().status == 500
            assert wire.send(GET_LIVE).response().status == 200
        program.kill(signal.SIGTERM)
        assert program.ends() == 0
        assert "swordfish" in program.complaints()


def test_no_descriptors_are_left_of_200_connections() -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("counts descriptors in /proc")
    with serving() as program:
        place = f"/proc/{program.process.pid}/fd"
        with Wire(program.address) as wire:
            wire.send(GET_LIVE).response()
        time.sleep(0.2)
        before = len(os.listdir(place))  # noqa: PTH208 - names are enough
        for _ in range(200):
            with Wire(program.address) as wire:
                wire.send(GET_LIVE).response()
        time.sleep(0.3)
        assert len(os.listdir(place)) == before  # noqa: PTH208 - names are enough


def test_options_have_defaults_that_end_every_wait() -> None:
    options = ServerOptions()
    assert 0 < options.read_timeout <= options.idle_timeout < 3600
    assert 0 < options.write_timeout < 3600
    assert 0 < options.shutdown_timeout < 3600


def test_a_port_in_use_is_told_in_a_program() -> None:
    """In the words of the command line, with the names of the arguments."""
    with open_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        words = rf"^port {port} of 127.0.0.1 is in use; stop its user, or choose another port \(0 picks one\)$"
        with pytest.raises(OSError, match=words) as caught:
            open_place(port=port)  # as `run` does
    assert caught.value.errno == errno.EADDRINUSE
