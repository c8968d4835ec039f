"""`streamcodec encode`: what it writes, and that the command that it prints works."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from streamcodec.cli import main
from streamcodec.cli.inferring.asking import _parameter
from streamcodec.engine.compression.inflate import ENCODINGS
from tests.server.models import models
from tests.server.programs import server_here

X = np.arange(12, dtype="<f4").reshape(3, 4)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"http://{host}:{port}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    return tmp_path


def _encode(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["encode", *arguments]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    return shlex.split(line)


def _curl(words: list[str]) -> bytes:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    return subprocess.run(
        [*words, "--silent", "--show-error", "--fail-with-body"], check=True, capture_output=True
    ).stdout


def _tensor(body: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Decode the answer of a server that says no length of its header."""
    text, end = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    (output,) = text["outputs"]
    nbytes = output["parameters"]["binary_data_size"]
    assert end <= len(body) - nbytes
    return np.frombuffer(body[-nbytes:], "<f4").reshape(output["shape"])


@pytest.mark.parametrize("options", [(), ("--media-type", "sagemaker"), ("--compress",), ("--header", "X-A: it's b")])
def test_curl_sends_the_body(options: tuple[str, ...], url: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = _encode(capsys, "identity", "a file.bin", "--input", "x=x.npy", "--url", url, *options)
    assert words[:3] == ["curl", "--data-binary", "@a file.bin"]
    if options == ("--compress",):
        words.append("--compressed")
    _curl(words)
    assert np.array_equal(_tensor(Path("a file.bin.answer").read_bytes()), X)


def test_curl_sends_json(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = _encode(capsys, "declared", "x.json", "--random", "--shape", "x:2,4", "--seed", "7", "--json", "--url", url)
    assert "--output" not in words
    sent = json.loads(Path("x.json").read_bytes())
    (answered,) = json.loads(_curl(words))["outputs"]
    assert answered["data"] == sent["inputs"][0]["data"]
    assert answered["shape"] == [2, 4]


def test_the_whole_message_can_be_sent_as_it_is(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    host, port = url.removeprefix("http://").split(":")
    words = _encode(capsys, "identity", "x.http", "--input", "x=x.npy", "--http", url)
    assert words == ["nc", host, port, "<", "x.http"]
    with socket.create_connection((host, int(port))) as sock, sock.makefile("rb") as file:
        sock.sendall(Path("x.http").read_bytes())
        lines = list(iter(file.readline, b"\r\n"))
        fields = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])
        }
        body = file.read(int(fields[b"content-length"]))
    assert np.array_equal(_tensor(body), X)


def test_the_whole_message_for_a_server_with_tls(capsys: pytest.CaptureFixture[str]) -> None:
    words = _encode(capsys, "m", "x.http", "--input", "x=x.npy", "--http", "https://models.example/v")
    assert words == ["openssl", "s_client", "-quiet", "-connect", "models.example:443", "<", "x.http"]
    assert Path("x.http").read_bytes().startswith(b"POST /v/v2/models/m/infer HTTP/1.1\r\nHost: models.example\r\n")


def test_what_is_asked_for_is_in_the_header(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--output", "a", "--id", "7", "--parameter", "t=0.5", "--parameter", "name=b=c", "--model-version", "3")
    words = _encode(capsys, "m", "x.bin", "--input", "x=x.npy", *options)
    assert words[-1] == "http://127.0.0.1:8000/v2/models/m/versions/3/infer"
    document = json.JSONDecoder().raw_decode(Path("x.bin").read_bytes().decode("latin-1"))[0]
    assert (document["id"], document["outputs"][0]["name"]) == ("7", "a")
    assert document["parameters"] == {"t": 0.5, "name": "b=c", "binary_data_output": True}


def test_no_file_is_replaced_without_force(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["encode", "m", "x.npy", "--input", "x=x.npy"]
    assert main(arguments) == 1
    assert "x.npy exists already; --force replaces it" in capsys.readouterr().err
    assert np.array_equal(np.load("x.npy"), X)
    assert main([*arguments, "--force"]) == 0
    assert Path("x.npy").read_bytes().startswith(b'{"')
    assert [path.name for path in folder.iterdir()] == ["x.npy"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1", 1), ("0.5", 0.5), ("true", True), ("text", "text"), ('"1"', "1"), ("NaN", "NaN"), ("1e999", "1e999")],
        *[("", ""), ("[1]", "[1]"), ("null", "null"), ("a=b", "a=b"), ("[" * 10_000, "[" * 10_000)],
    ],
)
def test_values_of_parameters(text: str, value: str | float | bool) -> None:
    name, found = _parameter(f"p={text}")
    assert (name, found, type(found)) == ("p", value, type(value))


@pytest.mark.parametrize(
    "options",
    [(), ("--parameter", "a"), ("--parameter", "=a"), ("--url", "http://a", "--http", "http://b")],
    ids=" ".join,
)
def test_wrong_arguments(options: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["encode", "m", *["x.bin"] * bool(options), *options])
    assert caught.value.code == 2


def test_a_parameter_that_is_given_twice(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["encode", "m", "x.bin", "--parameter", "a=1", "--parameter", "b=1", "--parameter", "a=2"])
    assert caught.value.code == 2
    assert "--parameter: 'a' is given twice" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_infer_has_the_same_options(encoding: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--random", "--size", "2", "--seed", "1", "--compress", "--response-compression", encoding)
    outputs = []
    for _ in range(2):
        assert main(["infer", url, "declared", *options, "--parameter", "a=1"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("x: FP32 [2, 4] = 0.")


@pytest.mark.slow
def test_a_unix_socket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()
    with server_here(models(), listener=listener):
        url = f"http+unix://{quote(str(tmp_path / 's'), safe='')}"
        arguments = ("identity", "--input", "x=x.npy")
        words = _encode(capsys, *arguments[:1], "x.bin", *arguments[1:], "--url", url)
        _curl(words)
        assert np.array_equal(_tensor(Path("x.bin.answer").read_bytes()), X)
        assert _encode(capsys, *arguments[:1], "x.http", *arguments[1:], "--http", url)[:2] == ["nc", "-U"]
        options = ("--model", *arguments, "--duration", "0.2", "--warmup", "0", "--concurrency", "1")
        assert main(["bench", url, *options, "--json", "-"]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["requests"] > 10
    assert not run["errors"]
