"""Requests and responses over a WebSocket, a frame in each of its messages: `pip install websockets`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from streamcodec import Decoder, EndOfMessage, TensorReceived, encode_request, encode_response
from streamcodec.formats.frame import Checksum, Kind, encode_frame, request_frame_decoder, response_frame_decoder


def tensors(decoder: Decoder[Any], data: Any) -> dict[str, np.ndarray[Any, Any]]:  # noqa: ANN401 - str would be an error
    decoder.feed(data)
    decoder.receive_eof()  # a message that is cut short is an error
    events = iter(decoder.next_event, EndOfMessage(nbytes=len(data)))
    return {event.spec.name: event.array for event in events if isinstance(event, TensorReceived)}


def answer(socket: ServerConnection) -> None:
    for data in socket:
        doubled = {name: 2 * array for name, array in tensors(request_frame_decoder(), data).items()}
        socket.send(b"".join(encode_frame(encode_response(doubled, model_name="double"), Kind.RESPONSE).buffers))


if sys.argv[1:] == ["serve"]:
    with serve(answer, "127.0.0.1", 0) as server:
        print(server.socket.getsockname()[1], flush=True)
        server.serve_forever()
with subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
    with connect(f"ws://127.0.0.1:{next(iter(process.stdout or [])).strip()}") as socket:
        request = encode_frame(encode_request({"x": np.arange(3)}), Kind.REQUEST, Checksum.NONE)
        socket.send(b"".join(request.buffers))
        print(tensors(response_frame_decoder(), socket.recv()))
    process.terminate()
