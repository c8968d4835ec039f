"""Asks a model over httpx, for programs that have to keep it: `python httpx_client.py URL MODEL INPUT.npy`.

The request is sent piece by piece from the memory of the array. The answer is decoded as it arrives, and each piece
goes to its place in an array. So neither body is ever in memory as a whole. `streamcodec.client` needs none of this,
and receives without a copy.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx
import numpy as np

from streamcodec import (
    HEADER_LENGTH_FIELD,
    NEED_DATA,
    Decoder,
    EndOfMessage,
    ResponseHeader,
    TensorReceived,
    encode_request,
    parse_header_length,
    response_decoder,
)

PIECE_BYTES = 1 << 20
Array = np.ndarray[Any, Any]


def pieces(buffers: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Cut the buffers of a message: httpx copies each piece before it sends it."""
    for buffer in buffers:
        for start in range(0, len(buffer), PIECE_BYTES):
            yield bytes(buffer[start : start + PIECE_BYTES])


def tensors(decoder: Decoder[ResponseHeader], body: Iterator[bytes]) -> Iterator[TensorReceived]:
    """Yield each tensor of an answer as soon as its last byte has arrived."""
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            yield event
        elif event is NEED_DATA:
            if piece := next(body, b""):
                decoder.feed(piece)
            else:
                decoder.receive_eof()


def infer(client: httpx.Client, model: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run a model's inference; raises `httpx.HTTPError`, or `MessageError` if the answer breaks the protocol."""
    message = encode_request(inputs, parameters={"binary_data_output": True})
    fields, content = [*message.headers, ("Accept-Encoding", "identity")], pieces(message.buffers)
    with client.stream("POST", f"/v2/models/{model}/infer", content=content, headers=fields) as answer:
        if not answer.is_success:
            answer.read()
            raise httpx.HTTPStatusError(answer.text, request=answer.request, response=answer)
        length = parse_header_length([value.encode() for value in answer.headers.get_list(HEADER_LENGTH_FIELD)])
        whole = answer.headers.get("Content-Length")
        decoder = response_decoder(header_length=length, body_length=None if whole is None else int(whole))
        return {tensor.spec.name: tensor.array for tensor in tensors(decoder, answer.iter_raw())}


if __name__ == "__main__":
    with httpx.Client(base_url=sys.argv[1], timeout=60) as client:
        for name, array in infer(client, sys.argv[2], {"x": np.load(sys.argv[3])}).items():
            print(name, array.dtype, array.shape, array.ravel()[:3])
