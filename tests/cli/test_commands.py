"""The command line, as processes: help, inference with files, and what a mistake is answered."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import Tensor, __version__, compress_message, encode_response
from streamcodec.cli import main
from tests.client.scripted import response, scripted
from tests.server.models import models
from tests.server.programs import server_here

Result = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"http://{host}:{port}"


def _run(*arguments: str | bytes, cwd: Path | None = None) -> Result:
    command: list[str | bytes] = [sys.executable, "-m", "streamcodec", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def _save(folder: Path, name: str, array: Any) -> str:  # noqa: ANN401 - anything that numpy takes
    np.save(folder / f"{name}.npy", array)
    return f"{name}={folder / name}.npy"


def _is_one_line(result: Result) -> bool:
    return result.stderr.startswith("streamcodec: ") and result.stderr.count("\n") == 1


@pytest.mark.parametrize(("command", "word"), [("serve", "MODULE:OBJECT"), ("infer", "NAME=FILE.npy"), ("demo", "MiB")])
def test_help(command: str, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert word in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "groups"),
    [
        ("infer", ["request", "files", "transfer"]),
        ("serve", ["logs", "metrics", "answers", "requests", "clients", "limits"]),
    ],
)
def test_help_has_options_in_groups(command: str, groups: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    headings = [line[:-1] for line in lines if re.fullmatch("[a-z ]+:", line)]
    assert headings == ["positional arguments", "options", *groups, "examples"]


@pytest.mark.parametrize("command", ["serve", "guard"])
def test_help_says_that_requests_are_logged(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "(default: --access-log)" in " ".join(capsys.readouterr().out.split())


def test_help_and_version_of_the_whole() -> None:
    result = _run("--help")
    assert result.returncode == 0
    assert all(command in result.stdout for command in ("serve", "infer", "demo"))
    assert _run("--version").stdout == f"streamcodec {__version__}\n"


def test_infer_with_files(url: str, tmp_path: Path) -> None:
    floats = np.arange(12, dtype="<f4").reshape(3, 4)
    words = np.array([[b"a", b"bc"], [b"", b"\xff"]])
    inputs = [
        _save(tmp_path, "floats", floats),
        _save(tmp_path, "words", words),
        _save(tmp_path, "fortran", np.asfortranarray(floats)),
        _save(tmp_path, "big", floats.astype(">f8")),
        _save(tmp_path, "empty", np.empty((0, 2), np.int8)),
        _save(tmp_path, "scalar", np.float64(1.5)),
        _save(tmp_path, "text", np.array(["ä"])),
    ]
    arguments = [word for item in inputs for word in ("--input", item)]
    result = _run("infer", url, "identity", *arguments, "--output-dir", str(tmp_path / "new" / "out"))
    assert (result.returncode, result.stderr) == (0, "")
    out = tmp_path / "new" / "out"
    assert f"floats: FP32 [3, 4] -> {out / 'floats.npy'}" in result.stdout
    assert result.stdout.count("\n") == len(inputs)
    expected_arrays: dict[str, Any] = {
        "floats": floats,
        "words": words,
        "fortran": floats,
        "big": floats,
        "empty": np.empty((0, 2), np.int8),
        "scalar": np.float64(1.5),
        "text": np.array(["ä".encode()]),
    }
    for name, expected in expected_arrays.items():
        assert np.array_equal(np.load(out / f"{name}.npy"), expected), name


def test_bf16_is_written_as_its_bits(url: str, tmp_path: Path) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    values = np.array([1, -2.5, 3.140625], np.float32)
    result = _run("infer", url, "bf16", "--input", _save(tmp_path, "x", values), "--output-dir", ".", cwd=tmp_path)
    assert "y: BF16 [3]" in result.stdout, result.stderr
    bits = np.load(tmp_path / "y.npy")
    assert bits.dtype == np.uint16
    assert np.array_equal(bits.view(bfloat16).astype(np.float32), values)


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_infer_with_compression(encoding: str, tmp_path: Path) -> None:
    array = np.arange(10_000)
    lines = ["Content-Type: application/octet-stream", f"Content-Encoding: {encoding}"]
    message = compress_message(encode_response([Tensor(name="x", array=array)], model_name="m"), encoding)
    lines += [f"Inference-Header-Content-Length: {message.header_length}"]
    with scripted([response(b"".join(message.buffers), *lines)]) as server:
        arguments = ["--request-compression", encoding, "--response-compression", encoding, "--output-dir", "out"]
        result = _run("infer", server.url, "m", "--input", _save(tmp_path, "x", array), *arguments, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert np.array_equal(np.load(tmp_path / "out" / "x.npy"), array)
    head = server.requests[0].partition(b"\r\n\r\n")[0].decode().lower()
    assert f"\r\ncontent-encoding: {encoding}" in head
    assert f"\r\naccept-encoding: {encoding}" in head
    assert len(server.requests[0]) < array.nbytes


def test_names_of_outputs_cannot_leave_the_folder(url: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", [1])
    (tmp_path / "out").mkdir()
    result = _run("infer", url, "identity", "--input", f"../up={tmp_path}/a.npy", "--output-dir", str(tmp_path / "out"))
    assert result.returncode == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["..%2Fup.npy"]


def _archive(path: Path) -> None:
    np.savez(path, a=np.ones(2))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["infer"],
        ["infer", "http://x"],
        ["infer", "http://x", "m", "--input", "x"],
        ["infer", "http://x", "m", "--input", "=a.npy"],
        ["infer", "http://x", "m", "--input", "x="],
        ["infer", "http://x", "m", "--input", "x=missing.npy"],
        ["infer", "http://x", "m", "--input", "x=."],
        ["infer", "http://x", "m", "--input", "x=text.npy"],
        ["infer", "http://x", "m", "--input", "x=empty.npy"],
        ["infer", "http://x", "m", "--input", "x=pickled.npy"],
        ["infer", "http://x", "m", "--input", "x=archive.npz"],
        ["infer", "http://x", "m", "--timeout", "0"],
        ["infer", "http://x", "m", "--timeout", "-1"],
        ["infer", "http://x", "m", "--timeout", "nan"],
        ["infer", "http://x", "m", "--timeout", "inf"],
        ["infer", "http://x", "m", "--timeout", "soon"],
        ["serve", "--port", "-1"],
        ["serve", "--port", "65536"],
        ["serve", "--port", "http"],
        ["serve", "a:b", "c:d"],
        ["serve", "--nonfinite", "zero"],
        ["serve", "--cors-origin", "app.example"],
        ["serve", "--cors-origin", "https://app.example/"],
        ["serve", "--cors-origin", "https://a.example,https://b.example"],
        ["serve", "--allowed-host", "http://localhost"],
        ["infer", "http://x", "m", "--request-compression", "br"],
        ["infer", "http://x", "m", "--max-padded", "0"],
        ["infer", "http://x", "m", "--total-timeout", "0"],
        ["infer", "http://x", "m", "--response-compression", "identity"],
        ["infer", "http://a..b", "m"],
        ["infer", "x", "m", "--output-dir", "out"],
        ["demo", "extra"],
    ],
    ids=" ".join,
)
def test_wrong_arguments(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.npy").write_text("1 2 3")
    Path("empty.npy").touch()
    np.save("pickled.npy", np.array([b"a", None], dtype=object))
    _archive(tmp_path / "archive.npz")
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.slow
def test_the_servers_words_are_on_standard_error(url: str, tmp_path: Path) -> None:
    item = _save(tmp_path, "x", [1.0])
    for model, words in {"nobody": "404: there is no model 'nobody'", "declared": "400: the datatype is FP64"}.items():
        result = _run("infer", url, model, "--input", item, cwd=tmp_path)
        assert (result.returncode, result.stdout) == (1, "")
        assert words in result.stderr
        assert _is_one_line(result)
    result = _run("infer", url, "identity", "--input", item, "--model-version", "9", cwd=tmp_path)
    assert "no version '9'" in result.stderr
    assert not (tmp_path / "y.npy").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url_", "model"),
    [
        ("http://127.0.0.1:1", "m"),
        ("https://127.0.0.1", "m"),
        ("http://nobody.invalid", "m"),
        ("http://127.0.0.1:1", b"\xff"),
    ],
)
def test_failures_are_one_line(url_: str, model: str | bytes, tmp_path: Path) -> None:
    result = _run("infer", url_, model, "--output-dir", str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "")
    assert _is_one_line(result), result.stderr


@pytest.mark.slow
def test_a_timeout(url: str, tmp_path: Path) -> None:
    item = _save(tmp_path, "x", 1.0)
    result = _run("infer", url, "sleep", "--input", item, "--timeout", "0.2", cwd=tmp_path)
    assert result.returncode == 1
    assert _is_one_line(result)


@pytest.mark.slow
def test_what_cannot_be_sent_or_written(url: str, tmp_path: Path) -> None:
    complex_item = _save(tmp_path, "x", np.ones(1, complex))
    result = _run("infer", url, "identity", "--input", complex_item, cwd=tmp_path)
    assert result.returncode == 1
    assert "complex" in result.stderr
    item = _save(tmp_path, "x", [1.0])
    assert _run("infer", url, "identity", "--input", item, "--output-dir", f"{tmp_path}/x.npy").returncode == 1
    result = _run("infer", url, "identity", "--input", item, "--input", item, cwd=tmp_path)
    assert result.returncode == 2
    assert "twice" in result.stderr
