"""`streamcodec infer`: what it shows, what it writes and when it does not, and what it sends."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import SAGEMAKER_MEDIA_TYPE, VERTEX_AI_MEDIA_TYPE, Elements, Tensor, encode_response
from streamcodec.cli import files, main, progress
from streamcodec.client import Client
from tests.client.scripted import response, scripted
from tests.server.models import models
from tests.server.programs import server_here

COMMAND = (sys.executable, "-m", "streamcodec", "infer")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"http://{host}:{port}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with an input."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(3, dtype="<f4"))
    return tmp_path


def _answer(**outputs: Any) -> bytes:  # noqa: ANN401 - anything that numpy takes
    tensors = [Tensor(name=name, array=array) for name, array in outputs.items()]
    message = encode_response(tensors, model_name="m")
    return response(b"".join(message.buffers), f"Inference-Header-Content-Length: {message.header_length}")


def _infer(url: str, model: str, *options: str) -> int:
    return main(["infer", url, model, "--input", "x=x.npy", *options])


def test_without_a_folder_outputs_are_shown_and_no_file_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs: dict[str, Any] = {
        "some": np.array([[0.1, np.nan], [-np.inf, 1e30]], np.float32),
        "many": np.arange(100, dtype=np.int8),
        "none": np.empty((0, 3), np.uint64),
        "scalar": np.array(True),
        "words": Elements([b"\x1b[2J", "ä".encode(), b"a" * 41, b"b" * 40]),
        "no words": Elements([]),
    }
    with scripted([_answer(**outputs)]) as server:
        assert _infer(server.url, "m") == 0
    assert capsys.readouterr().out.splitlines() == [
        "some: FP32 [2, 2] = 0.1, nan, -inf, 1e+30",
        "many: INT8 [100] = 0, 1, 2, 3, 4, 5, 6, 7, ...",
        "none: UINT64 [0, 3] = no values",
        "scalar: BOOL [] = True",
        f"words: BYTES [4] = b'\\x1b[2J', b'\\xc3\\xa4', b'{'a' * 40}'... (41 bytes), b'{'b' * 40}'",
        "no words: BYTES [0] = no values",
    ]
    assert [path.name for path in folder.iterdir()] == ["x.npy"]


def test_a_request_without_inputs_is_told(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A model may have no inputs, so it is sent."""
    assert main(["infer", url, "declared"]) == 1
    said = "; the request has no inputs: --input gives one, and --random makes all; see "
    complaint = capsys.readouterr().err
    assert complaint.startswith("streamcodec: 400: the model also needs the input 'x' ($.inputs)")
    assert said in complaint
    assert main(["infer", url, "identity"]) == 0
    assert capsys.readouterr() == ("", "streamcodec: the answer has no outputs\n")
    assert _infer(url, "nobody") == 1
    assert said not in capsys.readouterr().err


def test_a_url_that_ends_in_v2(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _infer(f"{url}/v2", "identity") == 1
    assert (
        "; the URL of the server ends in /v2, which every path begins with: leave it off; see"
        in capsys.readouterr().err
    )


def test_a_model_that_is_missing_has_nothing_to_do_with_uploads(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _infer(url, "nobody", "--resumable", "state") == 1
    assert capsys.readouterr().err.startswith("streamcodec: 404: there is no model 'nobody'; see ")


def test_a_file_in_the_place_of_the_folder(url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _infer(url, "identity", "--output-dir", "x.npy") == 1
    said = "streamcodec: --output-dir x.npy: it is a file, and has to be a directory\n"
    assert capsys.readouterr().err == said
    assert [path.name for path in folder.iterdir()] == ["x.npy"]


def test_bf16_is_shown_by_its_values(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ml_dtypes")
    np.save("x.npy", np.array([1, -2.5, 3.140625, np.inf], np.float32))
    assert _infer(url, "bf16") == 0
    assert capsys.readouterr().out == "y: BF16 [4] = 1.0, -2.5, 3.140625, inf\n"


def test_a_server_without_uploads_is_told(url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.zeros(1 << 16))
    assert main(["infer", url, "identity", "--input", "x=x.npy", "--resumable", "state"]) == 1
    assert "resumable needs a server that offers uploads that can be resumed, as" in capsys.readouterr().err
    assert not (folder / "state").exists()


def test_no_file_is_replaced_without_force(url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--input", f"y={folder}/x.npy", "--output-dir", "out")
    out = folder / "out"
    out.mkdir()
    (out / "x.npy").write_text("precious")
    assert _infer(url, "identity", *arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == "y: FP32 [3] -> out/y.npy\n"
    assert "output x: out/x.npy exists already; --force replaces it\n" in printed.err
    assert (out / "x.npy").read_text() == "precious"
    assert np.load(out / "y.npy").tolist() == [0, 1, 2]
    assert _infer(url, "identity", *arguments, "--force") == 0
    assert np.load(out / "x.npy").tolist() == [0, 1, 2]
    assert sorted(path.name for path in out.iterdir()) == ["x.npy", "y.npy"]


def test_a_file_that_is_there_is_told_of_before_the_model_works(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted([_answer(x=np.ones(1))]) as server:
        assert _infer(server.url, "m", "--output", "x", "--output-dir", ".") == 1
        assert capsys.readouterr().err == "streamcodec: x.npy exists already; --force replaces it\n"
        assert not server.requests
        assert _infer(server.url, "m", "--output", "x", "--output-dir", ".", "--force") == 0
    assert np.load(folder / "x.npy").tolist() == [1]


def test_a_link_that_leads_nowhere_is_there_too(url: str, folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "x.npy").symlink_to(folder / "elsewhere")
    assert _infer(url, "identity", "--output-dir", "out") == 1
    assert not (folder / "elsewhere").exists()


def test_a_file_that_another_program_has_written_meanwhile_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "late.npy"
    usual = np.save

    def save(file: Any, array: Any) -> None:  # noqa: ANN401 - as numpy has it
        usual(file, array)
        path.write_text("precious")

    monkeypatch.setattr(np, "save", save)
    with pytest.raises(FileExistsError, match=r"late\.npy exists already; --force replaces it"):
        files.write(path, lambda file: np.save(file, np.ones(3)), replaces=False)
    assert path.read_text() == "precious"
    assert sorted(each.name for each in folder.iterdir()) == ["late.npy", "x.npy"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EIO])
def test_file_systems_without_links(number: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: Any, **__: Any) -> None:  # noqa: ANN401 - as the system has it
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    path = folder / "y.npy"
    if number == errno.EPERM:
        files.write(path, lambda file: np.save(file, np.ones(3)), replaces=False)
        assert np.load(path).tolist() == [1, 1, 1]
    else:
        with pytest.raises(OSError, match="Input/output error"):
            files.write(path, lambda file: np.save(file, np.ones(3)), replaces=False)
        assert not path.exists()
    assert not list(folder.glob("*.part"))


def test_a_pipe_is_written_to_and_not_replaced(folder: Path) -> None:
    path = folder / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor() as threads:
        content = threads.submit(path.read_bytes)
        files.write(path, lambda file: file.write(b"content"), replaces=True)
        assert content.result() == b"content"
    assert path.is_fifo()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="Linux has names of open files")
def test_an_open_file_is_written_to_by_its_name_and_not_replaced(folder: Path) -> None:
    with (folder / "y").open("wb") as file:
        path = Path(f"/proc/self/fd/{file.fileno()}")
        files.check_writable(path, replaces=True)
        files.write(path, lambda target: target.write(b"content"), replaces=True)
        assert os.fstat(file.fileno()).st_size == len(b"content")
    assert (folder / "y").read_bytes() == b"content"


def test_a_place_is_looked_at_before_the_work(folder: Path) -> None:
    files.check_writable(folder / "y.npy", replaces=False)
    os.mkfifo(folder / "pipe")
    files.check_writable(folder / "pipe", replaces=True)  # nobody has to read it yet
    for path, error in [(folder / "x.npy", FileExistsError), (folder / "none" / "y", FileNotFoundError)]:
        with pytest.raises(error, match=path.name):
            files.check_writable(path, replaces=False)
    with pytest.raises(IsADirectoryError, match=folder.name):
        files.check_writable(folder, replaces=True)
    assert sorted(each.name for each in folder.iterdir()) == ["pipe", "x.npy"]


@pytest.mark.slow
@pytest.mark.parametrize("is_forced", [False, True])
def test_a_disk_that_is_full_leaves_nothing_and_what_was_there(is_forced: bool, url: str, folder: Path) -> None:
    np.save("x.npy", np.zeros(1 << 16, np.float64))
    (folder / "out").mkdir()
    if is_forced:
        (folder / "out" / "x.npy").write_text("precious")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    command = [*COMMAND, url, "identity", "--input", "x=x.npy", "--output-dir", "out", *["--force"] * is_forced]
    result = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "1 of 1 outputs could not be written" in result.stderr
    assert "Traceback" not in result.stderr
    assert [path.read_text() for path in (folder / "out").iterdir()] == ["precious"] * is_forced


def _signalled(number: signal.Signals, before: Any, *arguments: str) -> tuple[int, str]:  # noqa: ANN401 - as `signal` has it
    """Send a signal to `infer` while it writes a file; return its exit status and what it complained.

    An array that takes its time stands for a large file: the file is there, and is not complete.

    Args:
        number: of the signal.
        before: how the process is to begin: with the signal ignored, or not.
        arguments: of `infer`.
    """
    code = """
import sys, time, streamcodec.cli
from streamcodec.cli.inferring import outputs
usual = outputs.savable
def savable(tensor, most):
    print("now", flush=True)
    time.sleep(1)
    return usual(tensor, most)
outputs.savable = savable
streamcodec.cli.program()
"""
    usual = signal.signal(number, before)  # a shell may have Ctrl-C ignored in the background
    try:
        command = [sys.executable, "-c", code, "infer", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(number, usual)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        (unfinished,) = Path("out").iterdir()
        assert unfinished.name.endswith(".part")
        for _ in range(3):  # also if somebody is impatient
            process.send_signal(number)
        _, complaints = process.communicate(timeout=60)
    return process.returncode, complaints


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_of_a_file_leaves_nothing(number: signal.Signals, url: str, folder: Path) -> None:
    usual = signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL
    status, complaints = _signalled(number, usual, url, "identity", "--input", "x=x.npy", "--output-dir", "out")
    assert complaints == ""
    # Which a shell says 130, 143 and 129 of.
    assert status in ({130, -number} if number is signal.SIGINT else {-number})
    assert list((folder / "out").iterdir()) == []


@pytest.mark.slow
def test_what_nohup_keeps_from_it_does_not_end_it(url: str, folder: Path) -> None:
    arguments = (url, "identity", "--input", "x=x.npy", "--output-dir", "out")
    assert _signalled(signal.SIGHUP, signal.SIG_IGN, *arguments) == (0, "")
    assert [path.name for path in (folder / "out").iterdir()] == ["x.npy"]
    assert np.load(folder / "out" / "x.npy").tolist() == [0, 1, 2]


def test_signals_are_as_they_were_when_files_are_written(url: str, folder: Path) -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]  # SIGHUP is ignored under nohup
    with ThreadPoolExecutor() as threads:  # where nobody may have handlers
        assert threads.submit(_infer, url, "identity", "--output-dir", "out").result() == 0
    for replacing in ("--force", "--id=7"):  # the second finds a file
        _infer(url, "identity", "--output-dir", "out", replacing)
        assert [signal.getsignal(number) for number in numbers] == before
    assert [path.name for path in (folder / "out").iterdir()] == ["x.npy"]


@pytest.mark.slow
def test_files_are_written_although_nobody_reads_what_is_said(url: str, folder: Path) -> None:
    inputs = [word for number in range(20) for word in ("--input", f"x{number}=x.npy")]
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, url, "identity", *inputs, "--output-dir", "out"]
    result = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (result.returncode, result.stderr) == (141, "")
    assert len(list((folder / "out").iterdir())) == 20


def test_files_have_the_usual_permissions(url: str, folder: Path) -> None:
    usual = os.umask(0o027)
    try:
        assert _infer(url, "identity", "--output-dir", "out") == 0
    finally:
        os.umask(usual)
    assert (folder / "out" / "x.npy").stat().st_mode & 0o777 == 0o640


def _sent(*options: str) -> tuple[bytes, dict[str, Any]]:
    """Return the head that is sent, and the JSON header."""
    with scripted([_answer(y=np.ones(1))]) as server:
        assert _infer(server.url, "m", *options) == 0
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
    document: dict[str, Any] = json.JSONDecoder().raw_decode(body.decode("latin-1"))[0]
    return head, document


def test_outputs_and_an_id_are_asked_for() -> None:
    _, document = _sent("--output", "a", "--output", "b", "--id", "number 7")
    assert [output["name"] for output in document["outputs"]] == ["a", "b"]
    assert document["id"] == "number 7"
    _, document = _sent()
    assert "outputs" not in document


def test_tensors_as_json(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, document = _sent("--json", "--output", "a")
    assert document["inputs"][0]["data"] == [0, 1, 2]
    assert document["outputs"] == [{"name": "a", "parameters": {"binary_data": False}}]
    capsys.readouterr()
    assert _infer(url, "identity", "--json") == 0
    assert capsys.readouterr().out == "x: FP32 [3] = 0.0, 1.0, 2.0\n"


@pytest.mark.skipif("headers" not in signature(Client).parameters, reason="the client takes no header fields yet")
def test_header_fields_are_sent() -> None:
    head, _ = _sent("--header", "Authorization: Bearer a:b", "--header", "X-Tenant:7 ", "--header", "X-Empty:")
    lines = head.decode().split("\r\n")
    assert [line for line in lines if line.startswith(("Auth", "X-"))] == [
        "Authorization: Bearer a:b",
        "X-Tenant: 7",
        "X-Empty: ",
    ]


@pytest.mark.parametrize(
    ("name", "media_type"), [("sagemaker", SAGEMAKER_MEDIA_TYPE), ("vertex-ai", VERTEX_AI_MEDIA_TYPE)]
)
def test_the_length_of_the_header_is_said_in_the_media_type(
    name: str, media_type: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head, _ = _sent("--media-type", name)
    assert re.search(rf"\r\nContent-Type: {re.escape(media_type)};json-header-size=[0-9]+(\r|$)", head.decode())
    assert b"inference-header-content-length" not in head.lower()
    capsys.readouterr()
    assert _infer(url, "identity", "--media-type", name) == 0
    assert capsys.readouterr().out == "x: FP32 [3] = 0.0, 1.0, 2.0\n"


def test_a_media_type_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _infer("http://127.0.0.1:1", "m", "--media-type", "application/json")
    assert ended.value.code == 2
    assert "--media-type: invalid choice: 'application/json' (choose from" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "no colon", ": value", "a b: c", "a: b\r\nc: d", "a: \x7f", "ä: b"])
def test_header_fields_that_are_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _infer("http://127.0.0.1:1", "m", "--header", text)
    assert ended.value.code == 2
    assert "is not 'Name: value'" in capsys.readouterr().err


def _on_a_terminal(*arguments: str) -> tuple[int, str]:
    """Run `infer` with a terminal for standard error; return its exit status, and what the terminal got."""
    terminal, theirs = os.openpty()
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                text += os.read(terminal, 4096)
            except OSError:  # as a terminal ends
                break
    os.close(terminal)
    return process.returncode, text.decode()


@pytest.mark.slow
def test_progress_on_a_terminal(url: str) -> None:
    np.save("x.npy", np.array([2.5] + [0.0] * 50_000))
    status, text = _on_a_terminal(url, "sleep", "--input", "x=x.npy")
    lines = [line.strip() for line in text.split("\r") if line.strip()]
    assert status == 0
    assert 1 <= len(lines) <= 5
    assert re.fullmatch(r"sent 39\d\.\d KiB, received 0 B, \d.*B/s", lines[0])
    assert all(re.fullmatch(r"sent 39\d\.\d KiB, received \d.*B, \d.*B/s", line) for line in lines), lines
    assert text.endswith(f"\r{'':70}\r")  # what was shown is gone
    assert _on_a_terminal(url, "identity", "--input", "x=x.npy") == (0, "")
    result = subprocess.run([*COMMAND, url, "sleep", "--input", "x=x.npy"], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


def test_sizes_are_short() -> None:
    sizes = [0, 1023, 1024, 5 << 20, 3 << 30, 5 << 40]
    assert [progress._size(nbytes) for nbytes in sizes] == [  # noqa: SLF001 - a small function of its own
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "3.00 GiB",
        "5120.00 GiB",
    ]
