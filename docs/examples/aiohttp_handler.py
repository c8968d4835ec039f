"""A handler of aiohttp, with the codec and a stream over the body of a request: `python aiohttp_handler.py PORT`."""

import sys

import anyio
from aiohttp import StreamReader, web
from anyio.abc import ByteReceiveStream

from streamcodec import HEADER_LENGTH_FIELD, MessageError, encode_response, parse_header_length, request_decoder
from streamcodec.transports.streams import receive_message


class Body(ByteReceiveStream):
    def __init__(self, content: StreamReader) -> None:
        self.content = content

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if chunk := await self.content.read(max_bytes):
            return chunk
        raise anyio.EndOfStream

    async def aclose(self) -> None: ...


async def double(request: web.Request) -> web.StreamResponse:
    try:
        length = parse_header_length([value.encode() for value in request.headers.getall(HEADER_LENGTH_FIELD, [])])
        decoder = request_decoder(header_length=length, body_length=request.content_length, paced=True)
        received = await receive_message(Body(request.content), decoder, timeout=30)
    except MessageError as error:
        return web.json_response({"error": str(error)}, status=error.status_hint)
    message = encode_response({"y": 2 * received["x"]}, model_name="double", request_id=received.header.id)
    await (response := web.StreamResponse(headers=dict(message.headers))).prepare(request)
    for buffer in message.buffers:
        await response.write(buffer)
    return response


(app := web.Application()).router.add_post("/v2/models/double/infer", double)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]))
