"""Messages: one request with tensors of several kinds, and what must come out of a decoder for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcodec import Decoder, RequestHeader, Tensor, encode_request, request_decoder

Array = np.ndarray[Any, Any]

ARRAYS: dict[str, Array] = {
    "values": np.arange(50_000, dtype="<f4").reshape(50, 1000),
    "empty": np.empty((0, 3), "<i8"),
    "words": np.array([b"", b"\0\xff", b"word"], dtype=object),
    "flags": np.array([True, False]),
}

MESSAGE = encode_request([Tensor(name=name, array=array) for name, array in ARRAYS.items()])
BODY = b"".join(MESSAGE.buffers)


def decoder() -> Decoder[RequestHeader]:
    return request_decoder(header_length=MESSAGE.header_length, body_length=MESSAGE.body_length)


def check(arrays: dict[str, Array]) -> None:
    """Fail unless these are the message's arrays."""
    assert list(arrays) == list(ARRAYS)
    assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
