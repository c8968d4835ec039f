"""`streamcodec fuzz`: what it prints, what it writes, how it ends, and to whom it sends nothing."""

from __future__ import annotations

import base64
import io
import json
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from streamcodec.blackbox.probes import PROBES
from streamcodec.cli import main
from streamcodec.service import InferenceRequest, Model, ModelRegistry
from tests.blackbox.peers import FlawedServer, Received, flawed, response
from tests.server.models import models
from tests.server.programs import server_here

FAST = ("--max-rate", "100000", "--mutations", "3")
NO_SHAPES = (b"[1e999]", b'["2"]', b"[1.9]", b"[true]", b'"12"', b"{}")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"http://{host}:{port}"


def _exit_status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["fuzz", *arguments]))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def _careless(_: FlawedServer, received: Received) -> bytes:
    return response(500, b'{"error": "a <b> & a | b"}') if received.status == 400 else received.answer


@pytest.fixture
def careless() -> Iterator[str]:
    """URL of a server that answers 500 to all that is wrong."""
    with flawed(_careless) as server:
        yield f"http://127.0.0.1:{server.address[1]}"


def test_help_says_what_must_be_known_before(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status("--help") == 0
    out = capsys.readouterr().out
    assert "Use it only for your own servers." in out
    assert "--i-own-this-host" in out


def test_nothing_is_found(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status(url, "--model", "declared", "--only", "sizes/*", "--only", "mutations/*", *FAST) == 0
    out = capsys.readouterr().out
    assert out.startswith("| probe ")
    assert "| sizes     |     25 |     0 |              2 |       0 |" in out
    assert "| mutations |      3 |     0 |              0 |       0 |" in out
    assert out.splitlines()[-1] == "no findings; 92 requests were sent, with seed 0."


def test_findings_and_reports(careless: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = tmp_path / "report.json", tmp_path / "report.xml"
    files = ("--json", str(paths[0]), "--junit", str(paths[1]))
    chosen = ("--only", "json/cut", "--only", "boundaries/[bs]*", "--skip", "boundaries/b*n*")
    assert _exit_status(careless, "--model", "m", "--input", "x:FP32:-1", *chosen, *files, *FAST) == 1
    out = capsys.readouterr().out
    assert (
        "| json/cut                     | refused                  | server error | the last brace missing: 500: "
        in out
    )
    assert "a <b> & a \\| b (CWE-1286) |" in out
    assert out.splitlines()[-1].startswith("1 finding; ")
    entries = {entry["name"]: entry for entry in json.loads(paths[0].read_text())["probes"]}
    assert entries["json/cut"]["finding"] == "server error"
    request = base64.b64decode(entries["json/cut"]["request_base64"])
    assert request.startswith(b"POST /v2/models/m/infer HTTP/1.1\r\n")
    assert len(request) == entries["json/cut"]["request_bytes"]
    assert entries["json/cut"]["weaknesses"] == ["CWE-1286"]
    assert entries["json/cut"]["request_pieces"] == [len(request)]
    assert {entry["state"] for entry in entries.values()} == {"passed", "found", "not applicable"}
    suite = ET.parse(paths[1]).getroot()  # noqa: S314 - our own file
    assert {key: suite.get(key) for key in ("tests", "failures")} == {"tests": str(len(entries)), "failures": "1"}
    (failure,) = suite.iter("failure")
    assert failure.get("type") == "server error"
    assert str(failure.get("message")).endswith("500: a <b> & a | b (CWE-1286)")
    assert len(list(suite.iter("skipped"))) == int(suite.get("skipped", ""))


def test_all_are_shown_if_that_is_wished(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--only", "boundaries/s*", "--all", "--input", "a:b:FP32:2,-1", *FAST)
    assert _exit_status(url, "--model", "identity", *arguments) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split()[1] for row in rows[: rows.index("")]] == [
        name for name in (probe.name for probe in PROBES) if name.startswith("boundaries/s")
    ]


def test_a_model_that_declares_no_inputs_is_given_some(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status(url, "--model", "identity", "--only", "elements/*", *FAST) == 0
    first, empty, heading, *_, last = capsys.readouterr().out.splitlines()
    said = "The model declares no inputs, and accepts these: --input x:FP32:-1 --input s:BYTES:-1"
    assert (first, empty, heading[:8]) == (said, "", "| probe ")
    assert last.startswith("no findings; ")


def test_a_model_that_takes_numbers_alone(capsys: pytest.CaptureFixture[str]) -> None:
    def double(request: InferenceRequest) -> dict[str, Any]:
        return {"y": request.inputs["x"] * 2, "s": np.negative(request.inputs.get("s", 0))}

    with server_here(ModelRegistry.of([Model(name="double", predict=double)])) as (_, (host, port)):
        arguments = (f"http://{host}:{port}", "--model", "double", "--only", "sizes/*", *FAST)
        assert _exit_status(*arguments) == 0
    assert capsys.readouterr().out.startswith("The model declares no inputs, and accepts these: --input x:FP32:-1\n")


def test_requests_that_may_not_be_sent(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--model", "declared", "--only", "json/*", *FAST)
    assert _exit_status(url, *arguments, "--max-requests", "13") == 2
    said = "no findings; 28 probes were not run: the requests that may be sent are used up; raise --max-requests; 13 "
    assert said in capsys.readouterr().out
    assert _exit_status(url, *arguments, "--max-requests", "3") == 2
    assert "--max-requests is too low" in capsys.readouterr().err


def test_probes_without_a_meaning_are_no_success(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status(url, "--model", "identity", "--input", "x:FP32:1", "--only", "elements/*") == 2
    assert "no findings, because no probe applies to this model; 7 requests" in capsys.readouterr().out


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """A shell lets what it starts in the background ignore it."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_leaves_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found: list[bytes] = []

    def is_interrupted(_: FlawedServer, received: Received) -> bytes:
        """Answer 500 once, and be interrupted at the next request that is wrong."""
        found.extend([received.line] if received.status == 400 else [])
        if len(found) > 1:
            signal.raise_signal(signal.SIGINT)
        return response(500, b"a bug") if received.status == 400 else received.answer

    path = tmp_path / "report.json"
    with flawed(is_interrupted) as server:
        url = f"http://127.0.0.1:{server.address[1]}"
        chosen = ("--input", "x:FP32:1", "--only", "json/c*", "--only", "json/n*", "--json", str(path))
        assert _exit_status(url, "--model", "m", *chosen, *FAST) == 130
    out = capsys.readouterr().out
    assert "1 finding; " in out
    assert "were not run: interrupted; " in out
    states = [entry["state"] for entry in json.loads(path.read_text())["probes"]]
    assert states[0] == "found"
    assert set(states[1:]) == {"not run"}


@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_reports_that_cannot_be_written(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with flawed(lambda _, received: received.answer) as server:
        url = f"http://127.0.0.1:{server.address[1]}"
        arguments = (url, "--model", "m", "--input", "x:FP32:1", "--only", "json/null")
        assert _exit_status(*arguments, option, str(tmp_path / "nowhere" / "report")) == 2
        assert not server.requests
        assert _exit_status(*arguments, option, "/dev/full") == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("streamcodec: [Errno 2] No such file or directory: ")
    assert said[1] == "streamcodec: [Errno 28] No space left on device: '/dev/full'"


def test_words_that_the_terminal_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    with flawed(lambda _, it: response(500, "größer".encode()) if it.status == 400 else it.answer) as server:
        url = f"http://127.0.0.1:{server.address[1]}"
        assert _exit_status(url, "--model", "m", "--input", "x:FP32:1", "--only", "json/null", *FAST) == 1
    terminal.seek(0)
    assert "500: gr\\xf6\\xdfer (CWE-1287) |" in terminal.read()


def test_list_shows_every_probe_and_sends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(PROBES) + 2
    assert len({len(line) for line in lines}) == 1
    assert _exit_status("--list", "--only", "heavy/*") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 + sum(probe.is_heavy for probe in PROBES)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "URL and --model are required unless --list is given"),
        (("http://127.0.0.1:1",), "URL and --model are required"),
        (("http://192.0.2.1", "--model", "m"), "192.0.2.1 is not this machine; add --i-own-this-host"),
        (("http://[2001:db8::1]:80", "--model", "m"), "is not this machine"),
        (("http://0.0.0.0", "--model", "m"), "is not this machine"),
        (("ftp://127.0.0.1", "--model", "m"), "a server's URL looks like"),
        (("https://127.0.0.1", "--model", "m"), "only plain HTTP without credentials"),
        (("http://user@127.0.0.1", "--model", "m"), "only plain HTTP without credentials"),
        (("http://host.invalid", "--model", "m"), "cannot be found"),
        (("http://127.0.0.1:1", "--model", "m"), "gives no metadata of the model: unreachable: Connection refused"),
        (("http+unix://%2Fno", "--model", "m"), "gives no metadata of the model: unreachable: No such file"),
        (("http://x", "--model", "m", "--input", "x:FP31:1"), "is not NAME:DATATYPE:SHAPE"),
        (("http://x", "--model", "m", "--input", "x:FP32:-2"), "is not a shape"),
        (("http://x", "--model", "m", "--input", "x:FP32:a"), "is not a shape"),
        (("http://x", "--model", "m", "--max-rate", "0"), "is not a rate"),
        (("http://x", "--model", "m", "--max-rate", "fast"), "is not a rate"),
        (("http://x", "--model", "m", "--max-rate", "1e-12"), "is not a rate: a number per second, 0.001 or more"),
        (("http://x", "--model", "m", "--seed", "-1"), "is not an integer of 0 or more"),
        (("http://x", "--model", "\udcff"), "'\\udcff' is not UTF-8"),
        (("http://x", "--model", "m", "--input", "\udcff:FP32:1"), "is not UTF-8"),
        (("http://127.0.0.1:1/größer", "--model", "m"), "is not visible ASCII; percent-encode it"),
        (("http://127.0.0.1:1/a b", "--model", "m"), "is not visible ASCII; percent-encode it"),
        (("http://x", "--model", "m", "--only", "jason/*"), "'jason/*': matches no probe; --list shows them"),
        (("http://x", "--model", "m", "--only", "heavy/bomb"), "'heavy/bomb': is only sent with --heavy"),
        (("http://x", "--model", "m", "--only", "json/*", "--skip", "j*"), "--skip leaves no probe to run"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status(*arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nobody", "gives no metadata of the model: GET /v2/models/nobody is answered 404: there is no model 'nobody'"),
        (
            "break",
            "the model declares no inputs; name what it takes, with --input NAME:DATATYPE:SHAPE; a guess was wrong",
        ),
        ("declared/versions", "404"),
    ],
)
def test_models_that_cannot_be_examined(url: str, model: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status(url, "--model", model) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "metadata",
    [
        b"[]",
        b"{",
        b'{"inputs": 1}',
        b'{"inputs": [{"name": "x"}]}',
        b'{"inputs": [{"name": "x", "datatype": "Z", "shape": []}]}',
        *(b'{"inputs": [{"name": "x", "datatype": "BOOL", "shape": %b}]}' % shape for shape in NO_SHAPES),
    ],
)
def test_metadata_that_is_none(metadata: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with flawed(lambda *_: response(200, metadata)) as server:
        assert _exit_status(f"http://127.0.0.1:{server.address[1]}", "--model", "m") == 2
    assert "metadata is not what the V2 protocol says" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("1000,1000,1000", "more than 1,048,576 elements"),
        ("1" + 64 * ",1", "input 'x' has more than 64 dimensions"),
        ("2,0", "no input of the model has elements"),
    ],
)
def test_inputs_that_cannot_be_tried(url: str, shape: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status(url, "--model", "identity", "--input", f"x:FP32:{shape}") == 2
    assert said in capsys.readouterr().err


def test_a_host_of_ones_own(careless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another name for this machine stands for another machine; its other address is not listened at."""
    port = int(careless.rpartition(":")[2])
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.9.9.9", "127.0.0.1")]
    monkeypatch.setattr("streamcodec.cli.fuzz.socket.getaddrinfo", lambda *_, **__: found)
    monkeypatch.setattr("ipaddress.IPv4Address.is_loopback", False)
    arguments = (f"http://mine.example:{port}", "--model", "m", "--input", "x:FP32:1", "--only", "json/null", *FAST)
    assert _exit_status(*arguments) == 2
    assert _exit_status(*arguments, "--i-own-this-host") == 1


def test_paths_versions_and_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    with flawed(lambda _, received: received.answer) as server:
        url = f"http://127.0.0.1:{server.address[1]}/behind/"
        chosen = ("--model", "a b/ü", "--model-version", "3", "--input", "x:BOOL:1", "--only", "json/cut")
        assert _exit_status(url, *chosen, "--only", "routes/unknown-*", *FAST) == 1
        targets = {received.line.split()[1] for received in server.requests}
    model = b"/behind/v2/models/a%20b%2F%C3%BC"
    assert targets == {
        b"/behind/v2/health/live",
        model + b"/versions/3/infer",
        model + b"/versions/987654/infer",
        model + b"/infers",
        b"/behind/v2/models/no-such-model-here/infer",
    }
    assert "3 findings" in capsys.readouterr().out  # it answers to any path
