"""Compressed messages: what is written, checked with zlib itself and with our own reader."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcodec import (
    DEFAULT_LIMITS,
    ENCODINGS,
    EncodedMessage,
    Inflater,
    LocalProtocolError,
    Tensor,
    compress_message,
    encode_raw_request,
    encode_request,
)

Array = np.ndarray[Any, Any]

DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}
"""By others; `zlib.decompress` takes the zlib format alone, which is what `deflate` means."""

both = pytest.mark.parametrize("encoding", ENCODINGS)


def message_of(*arrays: Array) -> EncodedMessage:
    return encode_request([Tensor(name=str(index), array=array) for index, array in enumerate(arrays)])


@both
def test_buffers_come_out_as_one_body_again(encoding: str) -> None:
    arrays: list[Array] = [np.arange(100_000, dtype=np.float32), np.zeros((3, 0)), np.arange(300_000)[::-2]]
    message = message_of(*arrays)
    compressed = compress_message(message, encoding)
    body = b"".join(compressed.buffers)
    plain = b"".join(message.buffers)
    assert DECOMPRESS[encoding](body) == plain
    assert compressed.body_length == len(body) < len(plain)


@both
def test_our_own_reader_understands_it(encoding: str) -> None:
    message = message_of(np.arange(50_000))
    inflater = Inflater(encoding, DEFAULT_LIMITS)
    pieces = [piece for buffer in compress_message(message, encoding).buffers for piece in inflater.inflate(buffer)]
    inflater.finish()
    assert b"".join(pieces) == b"".join(message.buffers)


@both
def test_fields_say_how_and_the_header_length_stays(encoding: str) -> None:
    message = message_of(np.zeros(1000))
    compressed = compress_message(message, encoding)
    assert compressed.headers == [
        ("Content-Type", "application/octet-stream"),
        ("Inference-Header-Content-Length", str(message.header_length)),
        ("Content-Encoding", encoding),
        ("Content-Length", str(compressed.body_length)),
    ]
    assert ("Content-Encoding", encoding) not in message.headers


@both
def test_message_without_binary_tensors(encoding: str) -> None:
    message = encode_request([Tensor(name="x", array=np.zeros(1000), is_binary=False)])
    compressed = compress_message(message, encoding)
    assert DECOMPRESS[encoding](b"".join(compressed.buffers)) == b"".join(message.buffers)
    assert dict(compressed.headers).keys() == {"Content-Type", "Content-Encoding", "Content-Length"}


@both
@pytest.mark.parametrize(
    "message",
    [
        pytest.param(message_of(np.frombuffer(np.random.default_rng(0).bytes(1 << 20), np.uint8)), id="noise"),
        pytest.param(encode_raw_request(np.arange(3, dtype=np.uint8)), id="few bytes"),
        pytest.param(encode_raw_request(np.empty(0)), id="no bytes"),
    ],
)
def test_message_that_would_not_become_smaller_is_left_alone(encoding: str, message: EncodedMessage) -> None:
    assert compress_message(message, encoding) is message


@both
@given(data=st.lists(st.tuples(st.sampled_from([b"", b"a", bytes(range(256))]), st.integers(0, 2000)), max_size=4))
def test_body_never_grows_and_is_never_another(encoding: str, data: list[tuple[bytes, int]]) -> None:
    message = message_of(*(np.frombuffer(unit * count, np.uint8) for unit, count in data))
    result = compress_message(message, encoding)
    body = b"".join(result.buffers)
    assert len(body) == result.body_length <= message.body_length
    plain = body if result.content_encoding is None else DECOMPRESS[encoding](body)
    assert plain == b"".join(message.buffers)


@both
def test_no_copy_of_the_tensors_is_made(encoding: str) -> None:
    message = message_of(np.zeros(32 << 20, np.uint8), np.zeros(32 << 20, np.uint8))
    tracemalloc.start()
    compressed = compress_message(message, encoding)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < compressed.body_length + (1 << 20)


def test_large_tensors_become_pieces_of_modest_size() -> None:
    noise = np.random.default_rng(0).integers(0, 128, 8 << 20, dtype=np.uint8)
    compressed = compress_message(message_of(noise), "gzip")
    assert max(map(len, compressed.buffers)) <= 1 << 20


def test_gzip_carries_no_time_so_that_the_same_message_gives_the_same_bytes() -> None:
    first, second = (b"".join(compress_message(message_of(np.zeros(99)), "gzip").buffers) for _ in range(2))
    assert first == second
    assert first[4:8] == bytes(4)  # RFC 1952, section 2.3.1: MTIME


@pytest.mark.parametrize("encoding", ["br", "x-gzip", "GZIP", "identity", ""])
def test_other_encodings_are_a_mistake_of_ours(encoding: str) -> None:
    with pytest.raises(LocalProtocolError, match="gzip or deflate"):
        compress_message(message_of(np.zeros(99)), encoding)


def test_compressing_twice_is_a_mistake_of_ours() -> None:
    compressed = compress_message(message_of(np.zeros(99)), "gzip")
    with pytest.raises(LocalProtocolError, match="already, with gzip"):
        compress_message(compressed, "deflate")
