"""Frames over TCP by a protocol of asyncio: `python asyncio_server.py PORT` doubles the inputs of each request."""

import asyncio
import sys
from typing import Any, cast

from streamcodec import NEED_DATA, EndOfMessage, HeaderReceived, TensorReceived, encode_response
from streamcodec.formats.frame import FrameReader, Kind, encode_frame, request_frame_decoder


class Doubling(asyncio.BufferedProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.frames = cast("asyncio.Transport", transport), FrameReader(request_frame_decoder)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.frames.get_buffer(sizehint)  # the tensor's own memory

    def buffer_updated(self, nbytes: int) -> None:  # a frame that is damaged, or refused, has no answer
        self.frames.buffer_updated(nbytes)
        while (event := self.frames.next_event()) is not NEED_DATA:
            if isinstance(event, HeaderReceived):
                self.outputs: dict[str, Any] = {}
            elif isinstance(event, TensorReceived):
                self.outputs[event.spec.name] = 2 * event.array
            elif isinstance(event, EndOfMessage):
                for part in encode_frame(encode_response(self.outputs, model_name="double"), Kind.RESPONSE).buffers:
                    self.transport.write(part)

    def pause_writing(self) -> None:
        self.transport.pause_reading()  # who takes no answers can ask no more

    def resume_writing(self) -> None:
        self.transport.resume_reading()


loop = asyncio.new_event_loop()
server = loop.run_until_complete(loop.create_server(Doubling, "127.0.0.1", int(sys.argv[1])))
print(f"listening on {server.sockets[0].getsockname()[1]}", flush=True)
loop.run_forever()
