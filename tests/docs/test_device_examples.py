"""The example programs for small devices run as programs, and do what their first lines say."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from streamcodec import EndOfMessage, TensorReceived, encode_request, encode_response
from streamcodec.formats.frame import (
    EndOfStream,
    FrameReader,
    Kind,
    encode_frame,
    request_frame_decoder,
    response_frame_decoder,
)
from streamcodec.transports import sync
from tests.processes import peak_resident

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


@contextmanager
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
    imported, told = [], []
    for line in errors.read_text().splitlines():
        (imported if line.startswith("import time:") else told).append(line)
    assert [line.partition(":")[0] for line in told] == ["5 bytes", f"{len(small)} bytes"]
    assert any(line.endswith("streamcodec.formats.frame") for line in imported)
    assert not any("numpy" in line for line in imported)
