"""An endpoint of FastAPI that receives tensors while they come: `uvicorn fastapi_endpoint:app`.

A request is refused before its tensors are read: a wrong one, and one that `check` has something against.
"""

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from streamcodec import ErrorCode, MessageError, RemoteProtocolError, RequestHeader
from streamcodec.asgi import pieces, receive_request

app = FastAPI()


def check(header: RequestHeader) -> None:
    if [(spec.name, spec.datatype.name) for spec in header.tensors] != [("x", "FP32")]:
        raise RemoteProtocolError("this model has one input, x of FP32", code=ErrorCode.MODEL_MISMATCH)


@app.post("/v2/models/double/infer")
async def double(request: Request) -> Response:
    try:
        received = await receive_request(request, check=check)
        reply = received.reply({"y": 2 * np.asarray(received.inputs["x"])}, model_name="double")
    except MessageError as error:
        return JSONResponse({"error": str(error)}, error.status_hint)
    return StreamingResponse(pieces(reply), reply.status, dict(reply.headers))
