"""Requests and responses over a WebSocket, a frame in each of its messages: `pip install websockets`."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from streamcodec import encode_request, encode_response
from streamcodec.formats.frame import (
    Checksum,
    Kind,
    WholeFrames,
    encode_frame,
    request_frame_decoder,
    response_frame_decoder,
)


def answer(socket: ServerConnection) -> None:
    requests = WholeFrames(request_frame_decoder)
    for data in socket:
        frame = requests.read(data if isinstance(data, bytes) else data.encode())  # a text is refused
        doubled = {name: 2 * array for name, array in frame.arrays.items()}
        socket.send(b"".join(encode_frame(encode_response(doubled, model_name="double"), Kind.RESPONSE).buffers))


if sys.argv[1:] == ["serve"]:
    with serve(answer, "127.0.0.1", 0) as server:
        print(server.socket.getsockname()[1], flush=True)
        server.serve_forever()
with subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
    with connect(f"ws://127.0.0.1:{next(iter(process.stdout or [])).strip()}") as socket:
        request = encode_frame(encode_request({"x": np.arange(3)}), Kind.REQUEST, Checksum.NONE)
        socket.send(b"".join(request.buffers))
        print(WholeFrames(response_frame_decoder).read(socket.recv(decode=False)).arrays)
    process.terminate()
