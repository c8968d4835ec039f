"""The example programs for small devices run as programs, and do what their first lines say."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from streamcodec import EndOfMessage, TensorReceived, encode_request, encode_response
from streamcodec.formats.frame import (
    EndOfStream,
    FrameReader,
    Kind,
    encode_frame,
    request_frame_decoder,
    response_frame_decoder,
)
from streamcodec.server import open_listener
from streamcodec.service import ANY_SIZE, InferenceRequest, Model, ModelRegistry, TensorMetadata
from streamcodec.transports import sync
from tests.processes import peak_resident
from tests.server.programs import server_here

_EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
_TIMEOUT = 60


def _double_frames(listener: socket.socket) -> None:
    """Answer each request of one connection with its input, doubled."""
    connection, _ = listener.accept()
    with connection:
        frames, doubled = FrameReader(request_frame_decoder), np.zeros(0)
        while not isinstance(event := sync.next_event(connection, frames), EndOfStream):
            if isinstance(event, TensorReceived):
                doubled = event.array * 2
            elif isinstance(event, EndOfMessage):
                answer = encode_frame(encode_response({"y": doubled}, model_name="double"), Kind.RESPONSE)
                sync.send(connection, answer.parts)


@contextlib.contextmanager
def _forwarding(server_port: int, errors: IO[str]) -> Iterator[tuple[int, int]]:
    """Run the forwarder, which tells what it imports; yield its port and its process's number."""
    program = str(_EXAMPLES / "frames_forward.py")
    command = [sys.executable, "-X", "importtime", program, "0", "127.0.0.1", str(server_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


def test_frames_are_forwarded_without_numpy_and_without_memory(tmp_path: Path) -> None:
    large = 64 << 20
    frames = [encode_frame(encode_request({"x": np.ones(size, np.uint8)}), Kind.REQUEST) for size in (3, large)]
    small, long = (b"".join(frame.buffers) for frame in frames)
    errors = tmp_path / "errors"
    found = []
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        errors.open("w") as file,
        _forwarding(listener.getsockname()[1], file) as (port, pid),
        socket.create_connection(("127.0.0.1", port), _TIMEOUT) as client,
    ):

        def send() -> None:
            client.sendall(b"noise" + small + long + small[:-1] + b"?" + small)
            client.shutdown(socket.SHUT_WR)

        threads = [threading.Thread(target=_double_frames, args=(listener,)), threading.Thread(target=send)]
        for thread in threads:
            thread.start()
        answers = FrameReader(response_frame_decoder)
        while not isinstance(event := sync.next_event(client, answers), EndOfStream):
            if isinstance(event, TensorReceived):
                found.append((event.array.size, event.array.min()))
        for thread in threads:
            thread.join()
        peak = peak_resident(pid) if sys.platform == "linux" else 0
    assert found == [(3, 2), (large, 2), (3, 2)]
    assert peak < large // 2
    lines = errors.read_text().splitlines()
    imported = [line for line in lines if line.startswith("import time:")]
    told = [line for line in lines if line not in imported]
    assert [line.partition(":")[0] for line in told] == ["5 bytes", f"{len(small)} bytes"]
    assert any(line.endswith("streamcodec.formats.frame") for line in imported)
    assert not any("numpy" in line for line in imported)


SIDE = 32


def _boxes(request: InferenceRequest) -> dict[str, np.ndarray[Any, Any]]:
    """Find the white pixels of a frame; each is a detection, and brighter ones are surer."""
    (frame,) = request.inputs["frame"][..., 0]
    rows, columns = np.nonzero(frame)
    corners = np.stack([rows, columns, rows + 1, columns + 1], axis=1) / SIDE
    return {"found": np.column_stack([np.full(len(rows), 7), frame[rows, columns] / 255, corners]).astype(np.float32)}


_BOXES = Model(
    name="boxes",
    predict=_boxes,
    inputs=(TensorMetadata("frame", "UINT8", (1, SIDE, SIDE, 3)),),
    outputs=(TensorMetadata("found", "FP32", (ANY_SIZE, 6)),),
)


def _detector(url: str, model: str = "boxes") -> Any:  # noqa: ANN401 - of the example
    spec = importlib.util.spec_from_file_location("camera_detector", _EXAMPLES / "camera_detector.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return contextlib.closing(module.V2Detector(url, model))


def _frame(*brightness: int) -> np.ndarray[Any, Any]:
    """Return a frame with pixels of these brightnesses in its first row."""
    frame = np.zeros((1, SIDE, SIDE, 3), np.uint8)
    frame[0, 0, : len(brightness)] = np.array(brightness, np.uint8)[:, np.newaxis]
    return frame


def test_a_camera_detector_returns_the_best_detections() -> None:
    with server_here(ModelRegistry.of([_BOXES])) as (_, (host, port)), _detector(f"http://{host}:{port}") as detector:
        found = detector.detect_raw(_frame(51, 255, 102))
        assert (found.dtype, found.shape) == (np.float32, (20, 6))
        expected = [[7, score, 0, x / SIDE, 1 / SIDE, (x + 1) / SIDE] for score, x in [(1, 1), (0.4, 2), (0.2, 0)]]
        np.testing.assert_allclose(found[:3], expected)
        assert not found[3:].any()
        assert not detector.detect_raw(_frame()).any()
        many = detector.detect_raw(_frame(*range(1, 26)))
        np.testing.assert_allclose(many[:, 1] * 255, range(25, 5, -1), rtol=1e-5)


def test_a_camera_detector_goes_on_without_its_server(caplog: pytest.LogCaptureFixture) -> None:
    listener = open_listener("127.0.0.1", 0)
    host, port = listener.getsockname()
    with _detector(f"http://{host}:{port}") as detector:
        listener.close()
        for _ in range(2):
            assert not detector.detect_raw(_frame(255)).any()
        with server_here(ModelRegistry.of([_BOXES]), listener=open_listener(host, port)):
            assert detector.detect_raw(_frame(255)).any()
    with (
        server_here(ModelRegistry.of([_BOXES])) as (_, (host, port)),
        _detector(f"http://{host}:{port}", "other") as detector,
    ):
        assert not detector.detect_raw(_frame(255)).any()
    first, over, unknown = (record.getMessage() for record in caplog.records if record.name == "camera_detector")
    assert first.startswith("nothing is detected: ")
    assert over == "objects are detected again"
    assert "other" in unknown
