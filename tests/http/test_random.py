"""Random messages: no framing and no cut changes the events; damage gives a documented error or nothing at all."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.extra.numpy as arrays
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamcodec import Tensor, encode_request, encode_response
from tests.effort import examples
from tests.http.driver import Driver, Entry, client, server
from tests.http.messages import BODY, GET, IHCL, body_of, compress, framed, head, length

DTYPES = ["?", "u1", "<u2", "<u4", "<u8", "i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8"]
ENCODINGS = {"plain": b"identity", "gzip": b"gzip", "deflate": b"deflate", "raw": b"deflate"}


@st.composite
def tensors(draw: st.DrawFn) -> list[Tensor]:
    shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
    values = st.one_of(
        st.sampled_from(DTYPES).flatmap(lambda dtype: arrays.arrays(dtype, shapes)),
        st.lists(st.binary(max_size=9), max_size=5).map(lambda elements: np.array([*elements, b""], object)[:-1]),
    )
    return [Tensor(name=f"t{index}", array=array) for index, array in enumerate(draw(st.lists(values, max_size=4)))]


cuts = st.lists(st.integers(1, 200), min_size=1, max_size=8)
"""Sizes of pieces, over and over."""

faces = st.sampled_from([Driver.push, Driver.pull])


def deliver(driver: Driver, data: bytes, sizes: list[int], face: Callable[[Driver, bytes], None]) -> Driver:
    """Bring a message in pieces, then the end of input."""
    start, turn = 0, 0
    while start < len(data):
        size = sizes[turn % len(sizes)]
        face(driver, data[start : start + size])
        start, turn = start + size, turn + 1
    driver.end()
    return driver


def decoded(driver: Driver) -> list[Entry]:
    """What came out, but for the heads, which name the framing."""
    return [entry for entry in driver.log if entry[0] != "head"]


@given(
    inputs=tensors(),
    encoding=st.sampled_from(sorted(ENCODINGS)),
    chunk_sizes=st.none() | cuts,
    pieces=cuts,
    face=faces,
)
@settings(max_examples=examples(300))
def test_framing_compression_and_cut_change_nothing(
    inputs: list[Tensor],
    encoding: str,
    chunk_sizes: list[int] | None,
    pieces: list[int],
    face: Callable[[Driver, bytes], None],
) -> None:
    message = encode_request(inputs)
    body = body_of(message)
    fields = [] if message.header_length is None else [b"Inference-Header-Content-Length: %d" % message.header_length]
    plain = deliver(server(), framed(body, *fields) + GET, [1 << 20], Driver.push)
    assert [entry[0] for entry in plain.log] == [
        "head",
        "header",
        *["tensor"] * len(inputs),
        "end",
        "head",
        "end",
        "closed",
    ]
    fields.append(b"Content-Encoding: " + ENCODINGS[encoding])
    other = deliver(server(), framed(compress(body, encoding), *fields, sizes=chunk_sizes) + GET, pieces, face)
    assert decoded(other) == decoded(plain)
    assert other.sent == plain.sent
    for array, tensor in zip(plain.arrays, inputs, strict=True):
        np.testing.assert_array_equal(array, tensor.array)


@given(inputs=tensors(), until_close=st.booleans(), pieces=cuts, face=faces)
@settings(max_examples=examples(100))
def test_responses_come_out_in_any_cut(
    inputs: list[Tensor], until_close: bool, pieces: list[int], face: Callable[[Driver, bytes], None]
) -> None:
    message = encode_response(inputs, model_name="m")
    body = body_of(message)
    fields = [] if message.header_length is None else [b"Inference-Header-Content-Length: %d" % message.header_length]
    fields += [] if until_close else [length(body)]
    driver = deliver(client(), head(b"HTTP/1.1 200 OK", *fields) + body, pieces, face)
    assert [entry[0] for entry in driver.log] == ["head", "header", *["tensor"] * len(inputs), "end"]


SEEDS = [
    framed(BODY, IHCL) + GET,
    framed(BODY, IHCL, sizes=[100, 1]) + GET,
    framed(compress(BODY, "gzip"), IHCL, b"Content-Encoding: gzip") + GET,
    framed(compress(BODY, "deflate"), IHCL, b"Content-Encoding: deflate", sizes=[30]) + GET,
    GET * 3,
]

mutations = st.lists(
    st.tuples(st.integers(0, 1200), st.sampled_from(["set", "insert", "delete", "cut"]), st.binary(max_size=3)),
    max_size=6,
)


def mutate(data: bytes, changes: list[tuple[int, str, bytes]]) -> bytes:
    """Damage a message."""
    for position, kind, value in changes:
        at = position % (len(data) + 1)
        match kind:
            case "set":
                data = data[:at] + value + data[at + len(value) :]
            case "insert":
                data = data[:at] + value + data[at:]
            case "delete":
                data = data[:at] + data[at + 1 + len(value) :]
            case _:
                data = data[:at] if value else data[at:]
    return data


@given(seed=st.sampled_from(SEEDS), changes=mutations, pieces=cuts, face=faces)
@example(seed=SEEDS[1], changes=[(0, "insert", b"\r\n")], pieces=[1], face=Driver.push)
@settings(max_examples=examples(1500))
def test_damage_is_a_documented_error_or_no_damage_at_all(
    seed: bytes,
    changes: list[tuple[int, str, bytes]],
    pieces: list[int],
    face: Callable[[Driver, bytes], None],
) -> None:
    """The driver lets everything but `RemoteProtocolError` through, and a server comes to its end in every case."""
    driver = deliver(server(), mutate(seed, changes), pieces, face)
    assert driver.log[-1] == ("closed",)


@given(data=st.binary(max_size=300), pieces=cuts, face=faces)
@settings(max_examples=examples(300))
def test_noise_is_a_documented_error(data: bytes, pieces: list[int], face: Callable[[Driver, bytes], None]) -> None:
    for start in (b"", b"GET / HTTP/1.1\r\n", b"HTTP/1.1 200 OK\r\n", head(b"HTTP/1.1 200 OK")):
        assert deliver(server(), start + data, pieces, face).log[-1] == ("closed",)
        assert deliver(client(), start + data, pieces, face).log[-1][0] in {"end", "error"}


@given(seed=st.sampled_from([SEEDS[0], SEEDS[4]]), changes=mutations, pieces=cuts, face=faces)
@settings(max_examples=examples(500))
def test_damage_looks_the_same_in_every_cut(
    seed: bytes, changes: list[tuple[int, str, bytes]], pieces: list[int], face: Callable[[Driver, bytes], None]
) -> None:
    """With `Content-Length`; a damaged compressed body gives up some bytes earlier or later, as zlib does."""
    data = mutate(seed, changes)
    whole = deliver(server(), data, [1 << 20], Driver.push)
    assert deliver(server(), data, pieces, face).log == whole.log
