"""What a decoder will have to look at byte by byte, told before it does."""

from __future__ import annotations

import numpy as np
import pytest

from streamcodec import Tensor, encode_request, request_decoder


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.zeros(10, np.float32), 0),
        (np.zeros(10, np.bool_), 10),
        (np.array([b"abc", b""], dtype=object), 11),
    ],
    ids=["numbers", "bool", "bytes"],
)
def test_the_last_byte_of_a_tensor_starts_work_where_each_byte_counts(
    array: np.ndarray[tuple[int], np.dtype[np.generic]], expected: int
) -> None:
    message = encode_request([Tensor(name="x", array=array)])
    decoder = request_decoder(header_length=message.header_length, body_length=message.body_length)
    header, tensor = message.buffers
    assert decoder.pending_work(len(header) - 1) == 0
    assert decoder.pending_work(len(header)) == len(header)
    decoder.feed(header)
    decoder.feed(tensor[:2])
    assert decoder.pending_work(len(tensor) - 3) == 0
    assert decoder.pending_work(len(tensor) - 2) == expected
    decoder.feed(tensor[2:])
    assert decoder.pending_work(1) == 0


def test_a_header_of_unknown_length_is_parsed_at_the_end() -> None:
    message = encode_request([Tensor(name="x", array=np.zeros(3, np.int8), is_binary=False)])
    decoder = request_decoder(header_length=None, body_length=None)
    decoder.feed(b"".join(message.buffers))
    assert decoder.pending_work(1) == 0
    assert decoder.pending_work(1 << 20) >= message.body_length
