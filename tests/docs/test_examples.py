"""The example programs run as programs, and do what their first lines say."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    Decoder,
    LimitExceededError,
    RemoteProtocolError,
    Tensor,
    TensorReceived,
    encode_request,
)
from streamcodec.client import Client, ServerError
from streamcodec.formats.frame import FrameReader, Kind, encode_frame, response_frame_decoder
from streamcodec.testing import assert_split_invariant
from tests.client.answers.test_answers import GOOD
from tests.client.scripted import scripted
from tests.processes import announced, peak_resident
from tests.server.models import models
from tests.server.programs import server_here

_EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
_TIMEOUT = 60


@contextmanager
def _threaded_server() -> Iterator[str]:
    command = [sys.executable, str(_EXAMPLES / "threaded_server.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


@pytest.mark.slow
def test_threaded_server() -> None:
    scores = np.log(np.array([[1, 3], [1, 1]], np.float32))
    with _threaded_server() as url, Client(url) as client, Client(url) as other:
        assert client.is_model_ready("softmax")
        assert other.is_server_live()  # while the first connection is open
        for _ in range(2):
            result = client.infer("softmax", {"scores": scores}, request_id="1")
            np.testing.assert_allclose(result["probabilities"], [[0.25, 0.75], [0.5, 0.5]], rtol=1e-6)
            assert result.header.id == "1"
        with pytest.raises(ServerError, match="no model"):
            client.infer("other", {"scores": scores})
        assert client.is_server_ready()


def test_threaded_server_lets_a_refusal_be_read() -> None:
    """The body of a refused request is on its way when the answer comes, and too large to be read and dropped."""
    with _threaded_server() as url, Client(url) as client, pytest.raises(ServerError, match="datatype") as caught:
        client.infer("softmax", {"scores": np.zeros((64, 1 << 10), np.float64)})
    assert caught.value.status == 400


def _pipe_to_npy(body: bytes, header_length: int | None, folder: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, str(_EXAMPLES / "pipe_to_npy.py"), str(header_length), str(folder)]
    return subprocess.run(command, input=body, capture_output=True, timeout=_TIMEOUT, check=False)


def test_pipe_to_npy(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "image": np.arange(1 << 18, dtype=np.float32).reshape(512, -1),
        "scalar": np.array(7, np.int16),
        "empty": np.zeros((0, 3), np.uint8),
        "../up": np.array([True, False]),
    }
    message = encode_request([Tensor(name=name, array=array) for name, array in arrays.items()])
    result = _pipe_to_npy(b"".join(message.buffers), message.header_length, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    for name, array in arrays.items():
        saved = np.load(tmp_path / f"{name.replace('/', '%2F')}.npy")
        np.testing.assert_array_equal(saved, array, strict=True)


def test_pipe_to_npy_refuses(tmp_path: Path) -> None:
    message = encode_request([Tensor(name="image", array=np.zeros(9, np.float32))])
    cut = _pipe_to_npy(b"".join(message.buffers)[:-1], message.header_length, tmp_path)
    assert (cut.returncode, cut.stderr[:10]) == (1, b"truncated:")
    message = encode_request([Tensor(name="text", array=np.array(["a"]))])
    refused = _pipe_to_npy(b"".join(message.buffers), message.header_length, tmp_path)
    assert (refused.returncode, refused.stderr[:15]) == (1, b"model-mismatch:")
    assert not (tmp_path / "text.npy").exists()


def test_pipe_to_npy_needs_numpy_alone() -> None:
    """As it says: none of the packages for HTTP is imported."""
    script = f"import sys; sys.path.insert(0, {str(_EXAMPLES)!r}); import pipe_to_npy; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"streamcodec", "numpy"} <= set(result.stdout.split())
    assert not {"h11", "anyio"} & set(result.stdout.split())


@contextmanager
def _windowed_model() -> Iterator[tuple[str, int]]:
    """Serve the model as its first lines say; yield the URL and the process's number."""
    command = [sys.executable, "-m", "streamcodec", "serve", "windowed_model:MODEL", "--port", "0", "--no-access-log"]
    with subprocess.Popen(command, cwd=_EXAMPLES, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield announced(process.stdout), process.pid
        finally:
            process.terminate()


def _call_windowed_model(url: str, rows: int) -> list[str]:
    command = [sys.executable, str(_EXAMPLES / "windowed_model.py"), url, str(rows)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.replace(",", "").split()


@pytest.mark.slow
def test_windowed_model() -> None:
    """Rows of any number come back as they should, also such as do not fill a window."""
    with _windowed_model() as (url, _), Client(url) as client:
        for rows in (0, 1, 257):
            _, received, _, expected, *_ = _call_windowed_model(url, rows)
            assert received == expected
        with pytest.raises(ServerError, match="shape"):
            client.infer("double", {"x": np.zeros((1, 3), np.float32)})


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process has had")
def test_windowed_model_needs_windows_only() -> None:
    """64 MiB go through either process in the memory of a few windows of 1 MiB."""
    with _windowed_model() as (url, pid):
        _call_windowed_model(url, 1)  # what is imported with the first request is no part of it
        before = peak_resident(pid)
        words = _call_windowed_model(url, 1 << 14)
        assert peak_resident(pid) - before < 16 << 20
    peak, peak_before = int(words[6]), int(words[8])
    assert peak - peak_before < 16


@pytest.mark.slow
def test_your_decoder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider"]
    path = shutil.copy(_EXAMPLES / "test_your_decoder.py", tmp_path)
    result = subprocess.run([*command, path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout.split()[-4:-2]) == (0, ["2", "passed"]), result.stdout


class _FakeVllm(BaseHTTPRequestHandler):
    """Answers two embeddings as vLLM does, whose server needs a model and a GPU."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        values = np.array([[1, 2, 3], [4, 5, 6]], "<f2")
        form = {name: asked[name] for name in ("embed_dtype", "endianness")}
        items = [
            {"index": i, **form, "start": 6 * i, "end": 6 * i + 6, "shape": [3]} for i in range(len(asked["input"]))
        ]
        self.send_response(200)
        self.send_header("metadata", json.dumps({"id": "1", "data": items, "usage": {}}))
        self.send_header("Content-Length", str(values.nbytes))
        self.end_headers()
        self.wfile.write(values.tobytes())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_embeddings() -> None:
    with HTTPServer(("127.0.0.1", 0), _FakeVllm) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        address = f"127.0.0.1:{server.server_port}"
        command = [sys.executable, str(_EXAMPLES / "embeddings.py"), address, "m", "one", "two"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
        thread.join()
    assert (result.stderr, result.stdout) == ("", "(3,) 1.0 2.0 3.0\n(3,) 4.0 5.0 6.0\n")


def test_httpx_client(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.int16).reshape(2, 3))
    with server_here(models()) as (_, (host, port)):
        command = [sys.executable, str(_EXAMPLES / "httpx_client.py"), f"http://{host}:{port}", "identity", "x.npy"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    assert (result.stderr, result.stdout) == ("", "x int16 (2, 3) [0 1 2]\n")


@pytest.fixture
def httpx_infer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    monkeypatch.syspath_prepend(str(_EXAMPLES))
    infer: Callable[..., dict[str, Any]] = importlib.import_module("httpx_client").infer
    return infer


def test_httpx_client_with_tensors_of_many_pieces(httpx_infer: Callable[..., dict[str, Any]]) -> None:
    inputs = {"x": np.arange(1 << 20, dtype=np.float32), "y": np.array([b"a", b""], object), "z": np.empty((0, 3))}
    with server_here(models()) as (_, (host, port)), httpx.Client(base_url=f"http://{host}:{port}") as client:
        for _ in range(2):  # on the same connection
            outputs = httpx_infer(client, "identity", inputs)
            assert list(outputs) == list(inputs)
            assert all(np.array_equal(outputs[name], array) for name, array in inputs.items())
        with pytest.raises(httpx.HTTPStatusError, match="there is no model 'none'"):
            httpx_infer(client, "none", inputs)
        assert httpx_infer(client, "identity", {"x": np.ones(1)})["x"] == 1


@pytest.mark.parametrize("wrong", [GOOD[:-1], GOOD.replace(b"FP32", b"FP64"), GOOD.replace(b"[3]", b"[2]")])
def test_httpx_client_refuses(httpx_infer: Callable[..., dict[str, Any]], wrong: bytes) -> None:
    refused = pytest.raises((RemoteProtocolError, httpx.RemoteProtocolError))
    with scripted([wrong]) as server, httpx.Client(base_url=server.url) as client, refused:
        httpx_infer(client, "m", {"x": np.ones(1)})


_MakeDecoder = Callable[[str], Decoder[Any]]

_SHAPES: list[object] = [[3], [-1, -2], ["2"], [2.5], [None], [1e999], 2, "2", [[2]], [[]], None]
_DTYPES: list[object] = ["fp8_e4m3", "FP32", 1, None, []]


def _item(**changes: object) -> dict[str, object]:
    first = {"index": 0, "embed_dtype": "float32", "endianness": "little", "start": 0, "end": 8, "shape": [2]}
    return first | changes


@pytest.fixture
def embeddings_decoder(monkeypatch: pytest.MonkeyPatch) -> _MakeDecoder:
    monkeypatch.syspath_prepend(_EXAMPLES)
    make: _MakeDecoder = importlib.import_module("embeddings").embeddings_decoder
    return make


def test_embeddings_in_every_cut(embeddings_decoder: _MakeDecoder) -> None:
    items = [_item(), _item(index=1, embed_dtype="float16", start=8, end=8, shape=[0, 5])]
    items += [_item(index=2, start=8, end=12, shape=[])]
    outcome = assert_split_invariant(lambda: embeddings_decoder(json.dumps({"data": items})), bytes(range(12)))
    assert outcome.error is None


@pytest.mark.parametrize(
    "data",
    [
        *[[_item(**{name: value})] for name in ("start", "end", "index") for value in (-1, 1, "0", None, 0.5)],
        *[[_item(shape=shape)] for shape in _SHAPES],
        *[[_item(embed_dtype=dtype)] for dtype in _DTYPES],
        *[[_item(endianness=order)] for order in ("big", "native", None)],
        [_item(), _item()],
        [_item(), _item(index=1, start=12, end=20)],
        *["x", 1, None, [1], ["x"], [None], [[]], [{}]],
    ],
    ids=repr,
)
def test_embeddings_refuse_what_does_not_fit(embeddings_decoder: _MakeDecoder, data: object) -> None:
    with pytest.raises(RemoteProtocolError, match="does not say where embeddings lie"):
        embeddings_decoder(json.dumps({"data": data})).next_event()


@pytest.mark.parametrize("text", ["", "x", "1", "[]", "null", "{}", "[" * 100_000, '{"data":[' + "1" * 5000])
def test_embeddings_refuse_what_is_no_metadata(embeddings_decoder: _MakeDecoder, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="does not say where embeddings lie"):
        embeddings_decoder(text).next_event()


def test_embeddings_of_a_hostile_size(embeddings_decoder: _MakeDecoder) -> None:
    for size in (2**40, 2**63, 10**400):
        with pytest.raises(LimitExceededError):
            embeddings_decoder(json.dumps({"data": [_item(shape=[size], end=4 * size)]})).next_event()


def _printed(example: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, str(_EXAMPLES / example)], capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no ptys here")
def test_frames_over_a_serial_line() -> None:
    """Of seven frames one is damaged, and one has lost bytes, which costs the next one, too."""
    printed = _printed("frames_pty.py")
    assert [line for line in printed if " " not in line] == ["0.0", "2.0", "5.0", "6.0"]
    skipped = [line.partition(" skipped: ") for line in printed if " " in line]
    assert [error[:8] for _, _, error in skipped] == ["the fram", "the fram", "no frame"]
    assert all("checksum is wrong" in error for _, _, error in skipped[:2])


def test_frames_through_a_pipe() -> None:
    frames = [
        b"".join(encode_frame(encode_request({"x": np.array([index])}, request_id=str(index)), Kind.REQUEST).buffers)
        for index in range(3)
    ]
    stream = frames[0] + b"noise" + frames[1][:-1] + b"?" + frames[2]
    command = [sys.executable, str(_EXAMPLES / "frames_pipe.py")]
    result = subprocess.run(command, input=stream, capture_output=True, timeout=_TIMEOUT, check=True)
    assert b"5 bytes skipped: no frame" in result.stderr
    assert b"checksum is wrong" in result.stderr
    answers = FrameReader(response_frame_decoder)
    found, rest = [], result.stdout
    while rest:
        rest = rest[answers.feed(rest) :]
        while (event := answers.next_event()) is not NEED_DATA:
            if isinstance(event, TensorReceived):
                found.append(event.array.tolist())
    assert found == [[0], [4]]


@pytest.mark.slow
def test_frames_over_a_websocket() -> None:
    pytest.importorskip("websockets")
    assert _printed("frames_websocket.py") == ["{'x': array([0, 2, 4])}"]


@pytest.mark.slow
def test_frames_over_zeromq() -> None:
    pytest.importorskip("zmq", exc_type=ImportError)
    assert _printed("frames_zmq.py") == ["{'x': array([0, 2, 4])}"]


@pytest.mark.slow
def test_frames_through_a_broker_that_loses_some() -> None:
    """The loss, and the damage, of one piece costs one frame; a piece that comes twice costs nothing."""
    assert _printed("frames_mqtt.py") == [
        "0 0.0",
        "1 the message ends 2104 bytes too early (byte 2048)",
        "2 2.0",
        "3 the frame is damaged: its checksum is wrong (byte 4152)",
        "4 4.0",
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process has had")
def test_an_upload_that_breaks_goes_on() -> None:
    """33 MiB over ten breaks and a restart; a receiver that held them would need as much above numpy."""
    command = [sys.executable, str(_EXAMPLES / "resumed_upload.py"), "33"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    first, second = result.stdout.splitlines()
    assert first.startswith("34603008 bytes, 10 breaks, right: True, went on at [128, ")
    offsets = json.loads(first.rpartition(" at ")[2])
    assert all(after - before <= 34603008 // 11 + 128 for before, after in pairwise(offsets))
    assert max(offsets) == offsets[-1] > offsets[1]
    _, peak, _, _, bare, *_ = second.split()
    assert int(peak) - int(bare) <= 30
    assert second.endswith("['x.npy']")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory a process has had")
def test_a_request_that_breaks_goes_on() -> None:
    """50 MiB over HTTP, ten breaks and a killed client; a client that held them would need 20 MiB more."""
    command = [sys.executable, str(_EXAMPLES / "resumed_request.py"), "50"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    first, second = result.stdout.splitlines()
    assert first.startswith("52428800 bytes, 10 breaks, 1 restart, right: True, sent: ")
    assert int(first.split()[-1]) < 2 * 52428800, "what was lost in the buffers of the link comes again, and no more"
    _, peak, _, _, bare, *_ = second.split()
    assert int(peak) - int(bare) <= 30
    assert second.endswith("record: False")


def test_all_examples_are_tested() -> None:
    """Those of servers and files in `test_embedding_examples`, those of devices in `test_device_examples`."""
    assert {path.name for path in _EXAMPLES.glob("*.py")} == {
        "aiohttp_handler.py",
        "asyncio_server.py",
        "batch_read.py",
        "camera_detector.py",
        "embeddings.py",
        "fastapi_endpoint.py",
        "flask_endpoint.py",
        "forwarding_proxy.py",
        "frames_forward.py",
        "frames_mqtt.py",
        "frames_pipe.py",
        "frames_pty.py",
        "frames_websocket.py",
        "frames_zmq.py",
        "gpu_upload.py",
        "httpx_client.py",
        "kserve_model.py",
        "micropython_sender.py",
        "pipe_to_npy.py",
        "ray_replica.py",
        "resumed_request.py",
        "resumed_upload.py",
        "test_your_decoder.py",
        "threaded_server.py",
        "trio_server.py",
        "windowed_model.py",
    }


def test_all_examples_are_on_the_site() -> None:
    page = (_EXAMPLES.parent / "examples.md").read_text()
    assert {path.name for path in _EXAMPLES.iterdir() if path.is_file()} == set(
        re.findall(r"[\w.@]+\.(?:py|cfg|yml|json|service)", page)
    )
