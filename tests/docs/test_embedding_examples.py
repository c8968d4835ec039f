"""The examples that put the codec into somebody else's server, and those that read files."""

from __future__ import annotations

import importlib.util
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from streamcodec import Rows, WindowReceived, Windows, encode_request
from streamcodec.client import Client, ServerError
from streamcodec.formats import npy, safetensors
from streamcodec.formats.frame import Kind, encode_frame, response_frame_decoder
from streamcodec.transports import files
from tests.processes import forget_peak, peak_resident, resident

_EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
_X = np.arange(6, dtype=np.float32).reshape(2, 3)
_NEW = {"asyncio_server", "trio_server", "fastapi_endpoint", "aiohttp_handler", "flask_endpoint", "forwarding_proxy"}
_NEW |= {"batch_read", "gpu_upload"}


@contextmanager
def _running(
    *command: str, announced: str, preexec: Callable[[], None] | None = None
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run a server until the block ends; yield its port, as it announces it, and its process."""
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=_EXAMPLES,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=preexec,  # noqa: PLW1509 - no thread of this process has a lock that it needs
    ) as process:
        try:
            assert process.stdout is not None
            found = None
            while found is None and (line := process.stdout.readline()):
                found = re.search(announced, line)
            assert found is not None, "it has ended"
            drain = threading.Thread(target=process.stdout.read, daemon=True)
            drain.start()
            yield int(found[1]), process
        finally:
            process.kill()
    drain.join()


def _serving(name: str, preexec: Callable[[], None] | None = None) -> Any:  # noqa: ANN401 - a context manager of the above
    commands = {
        "fastapi_endpoint": ("-m", "uvicorn", "fastapi_endpoint:app", "--port", "0"),
        "flask_endpoint": ("-m", "flask", "--app", "flask_endpoint", "run", "--port", "0"),
    }
    command = commands.get(name, ("-u", f"{name}.py", str(_free_port())))
    return _running(*command, announced=r"http://127.0.0.1:(\d+)", preexec=preexec)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize("name", sorted(_NEW))
def test_an_example_is_short(name: str) -> None:
    assert len((_EXAMPLES / f"{name}.py").read_text().splitlines()) <= 40


@pytest.mark.slow
@pytest.mark.parametrize("name", ["asyncio_server", "trio_server"])
def test_servers_of_frames(name: str) -> None:
    large = np.arange(1 << 20, dtype=np.float32)
    with (
        _running(f"{name}.py", "0", announced=r"listening on (\d+)") as (port, _),
        socket.create_connection(("127.0.0.1", port), timeout=60) as sock,
        sock.makefile("rwb", 0) as file,
    ):
        for arrays in ({"x": _X, "y": _X[0]}, {"x": large}):
            files.encode_to(encode_frame(encode_request(arrays), Kind.REQUEST), file)
            answer = files.decode(file, response_frame_decoder())
            assert list(answer.arrays) == list(arrays)
            assert all(np.array_equal(answer[name], 2 * array) for name, array in arrays.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fastapi_endpoint", "aiohttp_handler", "flask_endpoint"])
def test_endpoints(name: str) -> None:
    for package in ("uvicorn", name.partition("_")[0]):
        pytest.importorskip(package)
    large = np.arange(1 << 20, dtype=np.float32)
    with _serving(name) as (port, _), Client(f"http://127.0.0.1:{port}") as client:
        for array in (_X, large, np.empty((0, 2), np.float32)):
            result = client.infer("double", {"x": array}, request_id="7")
            np.testing.assert_array_equal(result["y"], 2 * array, strict=True)
            assert result.header.id == "7"
        message = encode_request({"x": _X})
        for cut, status in ((message.body_length - 1, b"400"), (message.body_length, b"200")):
            assert _status(port, message.headers, b"".join(message.buffers)[:cut]) == status


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the memory of a process in this way")
@pytest.mark.parametrize("name", ["fastapi_endpoint", "aiohttp_handler", "flask_endpoint"])
def test_endpoints_without_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor is announced that the process may not have; none of it is sent. The budget says so, or the system."""
    for package in ("uvicorn", name.partition("_")[0]):
        pytest.importorskip(package)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # each reserves memory that it does not use
    shape = (1 << 29,)
    message = encode_request({"x": Rows("FP32", shape, iter(()))})
    header = cast("bytes", message.parts[0])
    fields = dict(message.headers)

    def bound() -> None:
        import resource  # noqa: PLC0415 - Unix only

        resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))

    with _serving(name, bound) as (port, _):
        assert _status(port, message.headers, header, int(fields["Content-Length"])) in {b"413", b"503"}
        assert _status(port, (small := encode_request({"x": _X})).headers, b"".join(small.buffers)) == b"200"


def test_the_fastapi_endpoint_has_at_most_12_lines() -> None:
    text = (_EXAMPLES / "fastapi_endpoint.py").read_text().rstrip("\n")
    assert len(text[text.index("@app.post") :].splitlines()) <= 12


def _status(port: int, headers: list[tuple[str, str]], body: bytes, length: int | None = None) -> bytes:
    """Send a body whose length is right, or the beginning of one; return the status of the answer."""
    length = len(body) if length is None else length
    fields = dict(headers) | {"Content-Length": str(length), "Host": "x", "Connection": "close"}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(f"POST /v2/models/double/infer HTTP/1.1\r\n{head}\r\n".encode() + body)
        return sock.makefile("rb").readline().split()[1]


@pytest.mark.slow
def test_the_fastapi_endpoint_refuses_what_its_model_does_not_take() -> None:
    for package in ("uvicorn", "fastapi"):
        pytest.importorskip(package)
    with _serving("fastapi_endpoint") as (port, _), Client(f"http://127.0.0.1:{port}") as client:
        for inputs in ({"z": _X}, {"x": _X.astype("f8")}, {"x": np.array([b"text"])}):
            with pytest.raises(ServerError, match="one input, x of FP32"):
                client.infer("double", inputs)


@contextmanager
def _bundled() -> Iterator[str]:
    command = ("-u", "-m", "streamcodec", "serve", "streamcodec.service:demo_models", "--port", "0", "--no-access-log")
    with _running(*command, announced=r"listening on http://127.0.0.1:(\d+)") as (port, _):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _proxy(*urls: str) -> Iterator[tuple[str, int]]:
    for package in ("uvicorn", "fastapi", "httpx"):
        pytest.importorskip(package)
    port = _free_port()
    command = ("-u", "forwarding_proxy.py", str(port), *urls)
    with _running(*command, announced=r"running on http://127.0.0.1:(\d+)") as (_, process):
        yield f"http://127.0.0.1:{port}", process.pid


@pytest.mark.slow
def test_the_proxy_chooses_by_size_and_passes_refusals() -> None:
    nobody = f"http://127.0.0.1:{_free_port()}"
    with _bundled() as served:
        for urls, array in (((served, nobody), _X), ((nobody, served), np.zeros((1 << 18, 2), np.float32))):
            with _proxy(*urls) as (url, _), Client(url) as client:
                np.testing.assert_array_equal(client.infer("identity", {"x": array})["x"], array, strict=True)
                with pytest.raises(ServerError, match="no model"):
                    client.infer("nothing", {"x": array})
                with pytest.raises(ServerError) as caught:  # it is for binary tensors
                    client.infer("identity", {"x": array[:1]}, is_binary=False)
                assert caught.value.status == 400


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process has had")
def test_the_proxy_holds_no_tensor() -> None:
    """256 MiB there and back."""
    window = np.zeros((1 << 8, 1 << 10), np.float32)

    def through(client: Client, count: int) -> int:
        rows = Rows("FP32", (count << 8, 1 << 10), (window for _ in range(count)))
        received = 0
        with client.stream("identity", {"x": rows}, place=lambda _: Windows(max_window_bytes=1 << 20)) as events:
            for event in events:
                received += event.array.nbytes if isinstance(event, WindowReceived) else 0
        return received

    with _bundled() as served, _proxy(served, served) as (url, pid), Client(url) as client:
        through(client, 8)
        before = resident(pid)
        forget_peak(pid)
        assert through(client, 256) == 256 << 20
        growth = peak_resident(pid) - before
    print(f"the proxy grew by {growth / 2**20:.1f} MiB")  # noqa: T201 - a figure
    assert growth < 16 << 20


def _printed(name: str, *arguments: Path) -> list[str]:
    command = [sys.executable, str(_EXAMPLES / f"{name}.py"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.splitlines()


def _write(path: Path, *messages: Any) -> Path:  # noqa: ANN401 - of any format
    with path.open("wb") as file:
        for message in messages:
            files.encode_to(message, file)
    return path


def test_batch_read(tmp_path: Path) -> None:
    arrays: Mapping[str, Any] = {"a": np.arange(5, dtype="i2"), "b": np.full((3000, 400), 2.5)}
    frame = encode_frame(encode_request(arrays), Kind.REQUEST)
    paths = [
        _write(tmp_path / "one.npy", npy.encode(arrays["b"])),
        _write(tmp_path / "some.safetensors", safetensors.encode(arrays)),
        _write(tmp_path / "many.frames", frame, frame),
    ]
    paths[2].write_bytes(paths[2].read_bytes()[:-1])
    one, *others, skipped = _printed("batch_read", *paths)
    assert one == "one.npy array 2.5"
    assert sorted(others[:2]) == ["some.safetensors a 2.0", "some.safetensors b 2.5"]
    assert others[2:] == ["many.frames a 2.0", "many.frames b 2.5"] * 2
    assert "1 byte too early" in skipped


def test_gpu_upload(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        compile((_EXAMPLES / "gpu_upload.py").read_text(), "gpu_upload.py", "exec")
        pytest.skip("torch is not installed; `test_types` checks the example's types")
    path = _write(tmp_path / "some.safetensors", safetensors.encode({"x": _X}))
    (line,) = _printed("gpu_upload", path)
    assert line.startswith("x (2, 3) torch.float32 ")
