"""An endpoint of Flask that reads tensors straight into their arrays: `flask --app flask_endpoint run`."""

from collections.abc import Iterable, Iterator

from flask import Flask, Response, request

from streamcodec import HEADER_LENGTH_FIELD, MessageError, encode_response, parse_header_length, request_decoder
from streamcodec.transports import files

app = Flask(__name__)


def pieces(buffers: Iterable[bytes | memoryview], nbytes: int = 256 << 10) -> Iterator[bytes]:
    """Cut what is sent, since WSGI wants bytes of its own."""
    for buffer in buffers:
        for start in range(0, len(buffer), nbytes):
            yield bytes(buffer[start : start + nbytes])


@app.errorhandler(MessageError)
def refuse(error: MessageError) -> tuple[dict[str, str], int]:
    return {"error": str(error)}, error.status_hint


@app.post("/v2/models/double/infer")
def double() -> Response:
    header_length = parse_header_length([value.encode() for value in request.headers.getlist(HEADER_LENGTH_FIELD)])
    decoder = request_decoder(header_length=header_length, body_length=request.content_length)
    received = files.decode(request.stream, decoder)
    message = encode_response({"y": 2 * received["x"]}, model_name="double", request_id=received.header.id)
    return Response(pieces(message.buffers), headers=message.headers)
