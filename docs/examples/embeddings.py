"""Receive embeddings from vLLM as raw bytes, each in its own array: `python embeddings.py HOST:PORT MODEL TEXT...`.

vLLM answers `"encoding_format": "bytes"` with the values and nothing else. A field of the response, `metadata`, says as
JSON where each embedding lies. So the header of the message is no part of its bytes, and the format reads nothing.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from http.client import HTTPConnection

from streamcodec import DATATYPES, NEED_DATA, EndOfMessage, ErrorCode, RemoteProtocolError, TensorReceived, TensorSpec

from streamcodec import Decoder, Reader, Reading, format_decoder  # isort: skip

_NAMES = {"float32": "FP32", "float16": "FP16", "bfloat16": "BF16"}


@dataclass(frozen=True)
class Embeddings:
    """What the field says."""

    tensors: tuple[TensorSpec, ...]


def embeddings_decoder(metadata: str) -> Decoder[Embeddings]:
    """Make a decoder for the body of a response with this field."""

    def read(_: Reader) -> Reading[Embeddings]:
        yield from ()  # nothing to be read: the field has it all
        try:
            return Embeddings(tuple(_specs(metadata)))
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
            msg = "the field metadata does not say where embeddings lie, one behind the other and little-endian"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, offset=0) from None

    return format_decoder(read)


def _specs(metadata: str) -> list[TensorSpec]:
    specs: list[TensorSpec] = []
    end = 0
    for item in json.loads(metadata)["data"]:
        datatype, shape = DATATYPES[_NAMES[item["embed_dtype"]]], tuple(map(int, item["shape"]))
        start, end = end, end + math.prod(shape) * datatype.itemsize
        known = {"index": len(specs), "start": start, "end": end, "endianness": "little", "shape": [*shape]}
        if item != item | known or min(shape, default=0) < 0:
            raise ValueError(item)
        name = str(len(specs))
        specs.append(TensorSpec(name=name, datatype=datatype, shape=shape, nbytes=end - start, offset=start))
    return specs


def main(address: str, model: str, *texts: str) -> None:
    """Print the shape and the first values of each embedding."""
    form = {"encoding_format": "bytes", "embed_dtype": "float16", "endianness": "little"}
    connection = HTTPConnection(address, timeout=60)
    connection.request("POST", "/v1/embeddings", json.dumps({"model": model, "input": texts, **form}))
    response = connection.getresponse()
    decoder = embeddings_decoder(response.headers.get("metadata", ""))
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if isinstance(event, TensorReceived):
            print(event.array.shape, *event.array[:4])
        elif event is NEED_DATA and (nbytes := response.readinto(decoder.get_buffer())):
            decoder.buffer_updated(nbytes)
        elif event is NEED_DATA:
            decoder.receive_eof()


if __name__ == "__main__":
    main(*sys.argv[1:])
