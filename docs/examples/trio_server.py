"""Frames over TCP with trio alone: `python trio_server.py PORT` doubles the inputs of each request."""

import sys
from typing import Any

import numpy as np
import trio

from streamcodec import NEED_DATA, EndOfMessage, HeaderReceived, TensorReceived, encode_response
from streamcodec.formats.frame import EndOfStream, FrameReader, Kind, Skipped, encode_frame, request_frame_decoder


async def answer(stream: trio.SocketStream) -> None:
    frames, outputs = FrameReader(request_frame_decoder), dict[str, np.ndarray[Any, Any]]()
    while True:
        event = frames.next_event()
        if event is NEED_DATA:
            if nbytes := await stream.socket.recv_into(frames.get_buffer()):  # straight into the tensor
                frames.buffer_updated(nbytes)
            else:
                frames.receive_eof()
        elif isinstance(event, HeaderReceived):
            outputs = {}
        elif isinstance(event, TensorReceived):
            outputs[event.spec.name] = 2 * event.array
        elif isinstance(event, EndOfMessage):
            for buffer in encode_frame(encode_response(outputs, model_name="double"), Kind.RESPONSE).buffers:
                await stream.send_all(buffer)
        elif isinstance(event, Skipped | EndOfStream):
            return await stream.aclose()


async def main() -> None:
    listeners = await trio.open_tcp_listeners(int(sys.argv[1]), host="127.0.0.1")
    print(f"listening on {listeners[0].socket.getsockname()[1]}", flush=True)
    await trio.serve_listeners(answer, listeners)


trio.run(main)
