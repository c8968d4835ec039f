"""A request of 2 MiB into arrays, by KServe's class and by streamcodec: `python kserve_decoding.py`. Needs kserve."""

import io

import numpy as np
from kserve import InferRequest
from measured import compare

from streamcodec import encode_request, request_decoder
from streamcodec.transports import files

message = encode_request({"x": np.ones((512, 1024), np.float32)})
body = b"".join(message.buffers)


def before() -> float:
    request = InferRequest.from_bytes(body, message.header_length, "double")
    return float(request.inputs[0].as_numpy().sum())


def after() -> float:
    decoder = request_decoder(header_length=message.header_length, body_length=len(body))
    request = files.decode(io.BytesIO(body), decoder)
    return float(request["x"].sum())


if __name__ == "__main__":
    compare({"InferRequest.from_bytes": before, "streamcodec": after}, rounds=1)
