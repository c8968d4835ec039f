"""Requests and responses over ZeroMQ, a frame in each message, its buffers as parts: `pip install pyzmq`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import zmq

from streamcodec import Decoder, EndOfMessage, TensorReceived, encode_request, encode_response
from streamcodec.formats.frame import Checksum, Kind, encode_frame, request_frame_decoder, response_frame_decoder


def receive(socket: zmq.Socket[bytes], decoder: Decoder[Any]) -> dict[str, np.ndarray[Any, Any]]:
    for part in socket.recv_multipart(copy=False):  # ZeroMQ's own memory, copied once: into the tensor
        decoder.feed(part.buffer)
    decoder.receive_eof()  # a message that is cut short is an error
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            arrays[event.spec.name] = event.array
    return arrays


def serve(socket: zmq.Socket[bytes]) -> None:
    print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
    while True:
        doubled = {name: 2 * array for name, array in receive(socket, request_frame_decoder()).items()}
        response = encode_frame(encode_response(doubled, model_name="double"), Kind.RESPONSE, Checksum.NONE)
        socket.send_multipart([*response.buffers], copy=False)  # the arrays' memory, until it has been sent


if sys.argv[1:] == ["serve"]:
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        serve(socket)
with subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.connect(f"tcp://127.0.0.1:{next(iter(process.stdout or [])).strip()}")
        request = encode_frame(encode_request({"x": np.arange(3)}), Kind.REQUEST, Checksum.NONE)
        socket.send_multipart([*request.buffers], copy=False)
        print(receive(socket, response_frame_decoder()))
    process.terminate()
