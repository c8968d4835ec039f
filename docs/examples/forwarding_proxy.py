"""Forwards binary tensors to a server that it chooses by their size, and holds none: `... PORT SMALL_URL LARGE_URL`."""

import sys
from collections.abc import AsyncIterator

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.background import BackgroundTask

from streamcodec import DEFAULT_LIMITS, HEADER_LENGTH_FIELD, MessageError, parse_header_length, parse_request_header

app, client = FastAPI(), httpx.AsyncClient(timeout=60)


@app.post("/v2/models/{model}/infer")
async def forward(model: str, request: Request) -> Response:
    body, start = request.stream(), bytearray()
    try:
        length = parse_header_length([value.encode() for value in request.headers.getlist(HEADER_LENGTH_FIELD)]) or 0
        while len(start) < min(length, DEFAULT_LIMITS.max_header_bytes) and (piece := await anext(body, b"")):
            start += piece
        header = parse_request_header(start[:length], DEFAULT_LIMITS)
    except MessageError as error:
        return JSONResponse({"error": str(error)}, error.status_hint)

    async def forwarded() -> AsyncIterator[bytes]:
        yield bytes(start)
        async for piece in body:
            yield piece

    url = sys.argv[2 if sum(spec.nbytes for spec in header.tensors) < 1 << 20 else 3] + f"/v2/models/{model}/infer"
    sent = client.build_request("POST", url, content=forwarded(), headers=request.headers.raw)
    answer = await client.send(sent, stream=True)
    end = BackgroundTask(answer.aclose)
    return StreamingResponse(answer.aiter_raw(1 << 16), answer.status_code, dict(answer.headers), background=end)


uvicorn.run(app, port=int(sys.argv[1]))
