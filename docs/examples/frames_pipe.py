"""A filter between two pipes, as `producer | python frames_pipe.py | consumer`: doubles the inputs of each request.

A frame that is damaged, or refused for any other reason, has no answer; what was wrong goes to the standard error.
"""

from __future__ import annotations

import sys
from typing import Any

from streamcodec import EndOfMessage, HeaderReceived, Tensor, TensorReceived, encode_response
from streamcodec.formats.frame import (
    EndOfStream,
    FrameReader,
    Kind,
    Skipped,
    encode_frame,
    request_frame_decoder,
)
from streamcodec.transports.files import next_event

frames = FrameReader(request_frame_decoder)
request_id: str | None = None
outputs: list[Any] = []
with open(0, "rb", buffering=0) as source, open(1, "wb") as sink:
    while not isinstance(event := next_event(source, frames), EndOfStream):
        match event:
            case HeaderReceived():
                request_id, outputs = event.header.id, []
            case TensorReceived():
                outputs.append(Tensor(name=event.spec.name, array=event.array * 2))
            case EndOfMessage():  # now the checksum was right
                message = encode_response(outputs, model_name="double", request_id=request_id)
                sink.writelines(encode_frame(message, Kind.RESPONSE).buffers)
                sink.flush()
            case Skipped():
                sys.stderr.write(f"{event.nbytes} bytes skipped: {event.error}\n")
            case _:
                pass
