"""`streamcodec fuzz`: what it prints, what it writes, how it ends, and to whom it sends nothing."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from streamcodec.blackbox.probes import PROBES
from streamcodec.cli import main
from tests.blackbox.peers import FlawedServer, Received, flawed, response
from tests.server.models import models
from tests.server.programs import server_here

FAST = ("--max-rate", "100000", "--mutations", "3")


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
    assert "Only for servers that are yours." in out
    assert "--i-own-this-host" in out


def test_nothing_is_found(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status(url, "--model", "declared", "--only", "sizes/*", "--only", "mutations/*", *FAST) == 0
    out = capsys.readouterr().out
    assert out.startswith("| probe ")
    assert "| sizes     |     25 |     0 |              2 |       0 |" in out
    assert "| mutations |      3 |     0 |              0 |       0 |" in out
    assert out.splitlines()[-1] == "no findings; 89 requests were sent, with seed 0."


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
    assert "a <b> & a \\| b |" in out
    assert out.splitlines()[-1].startswith("1 finding; ")
    entries = {entry["name"]: entry for entry in json.loads(paths[0].read_text())["probes"]}
    assert entries["json/cut"]["finding"] == "server error"
    request = base64.b64decode(entries["json/cut"]["request_base64"])
    assert request.startswith(b"POST /v2/models/m/infer HTTP/1.1\r\n")
    assert len(request) == entries["json/cut"]["request_bytes"]
    assert {entry["state"] for entry in entries.values()} == {"passed", "found", "not applicable"}
    suite = ET.parse(paths[1]).getroot()  # noqa: S314 - our own file
    assert {key: suite.get(key) for key in ("tests", "failures")} == {"tests": str(len(entries)), "failures": "1"}
    (failure,) = suite.iter("failure")
    assert failure.get("type") == "server error"
    assert str(failure.get("message")).endswith("500: a <b> & a | b")
    assert len(list(suite.iter("skipped"))) == int(suite.get("skipped", ""))


def test_all_are_shown_if_that_is_wished(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--only", "boundaries/s*", "--all", "--input", "a:b:FP32:2,-1", *FAST)
    assert _exit_status(url, "--model", "identity", *arguments) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split()[1] for row in rows[: rows.index("")]] == [
        name for name in (probe.name for probe in PROBES) if name.startswith("boundaries/s")
    ]


def test_requests_that_may_not_be_sent(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--model", "declared", "--only", "json/*", *FAST)
    assert _exit_status(url, *arguments, "--max-requests", "10") == 0
    assert "no findings; 28 probes were not run: the requests" in capsys.readouterr().out
    assert _exit_status(url, *arguments, "--max-requests", "3") == 2
    assert "--max-requests is too low" in capsys.readouterr().err


def test_list_shows_every_probe_and_sends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status("--list", "--heavy") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(PROBES) + 2
    assert len({len(line) for line in lines}) == 1
    assert _exit_status("--list", "--only", "heavy/*") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "URL and --model are needed"),
        (("http://127.0.0.1:1",), "URL and --model are needed"),
        (("http://192.0.2.1", "--model", "m"), "192.0.2.1 is not this machine; add --i-own-this-host"),
        (("http://[2001:db8::1]:80", "--model", "m"), "is not this machine"),
        (("http://0.0.0.0", "--model", "m"), "is not this machine"),
        (("https://127.0.0.1", "--model", "m"), "a server's URL looks like"),
        (("http://host.invalid", "--model", "m"), "cannot be found"),
        (("http://127.0.0.1:1", "--model", "m"), "does not tell of the model: unreachable: Connection refused"),
        (("http://x", "--model", "m", "--input", "x:FP31:1"), "is not NAME:DATATYPE:SHAPE"),
        (("http://x", "--model", "m", "--input", "x:FP32:-2"), "is not a shape"),
        (("http://x", "--model", "m", "--input", "x:FP32:a"), "is not a shape"),
        (("http://x", "--model", "m", "--max-rate", "0"), "is not a number of requests per second"),
        (("http://x", "--model", "m", "--max-rate", "fast"), "is not a number of requests per second"),
        (("http://x", "--model", "m", "--seed", "-1"), "is not a count"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status(*arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nobody", "the server does not tell of the model: 404: there is no model 'nobody'"),
        ("identity", "the model declares no inputs; name what it takes, with --input"),
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
    ],
)
def test_metadata_that_is_none(metadata: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with flawed(lambda *_: response(200, metadata)) as server:
        assert _exit_status(f"http://127.0.0.1:{server.address[1]}", "--model", "m") == 2
    assert "metadata is not what the V2 protocol says" in capsys.readouterr().err


def test_inputs_that_are_too_large_to_be_tried(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_status(url, "--model", "identity", "--input", "x:FP32:1000,1000,1000") == 2
    assert "more than 1,048,576 elements" in capsys.readouterr().err


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
        assert _exit_status(url, *chosen, *FAST) == 0
        targets = {received.line.split()[1] for received in server.requests}
    assert targets == {b"/behind/v2/models/a%20b%2F%C3%BC/versions/3/infer", b"/behind/v2/health/live"}
    assert "no findings" in capsys.readouterr().out
