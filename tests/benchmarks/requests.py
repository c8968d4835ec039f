"""Requests: whole ones, as bytes, for wrk to send. The same bytes go to every server.

Where a request shall differ each time, it has `wrk.MARK`, which the script replaces by a number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

import numpy as np

from streamcodec import EncodedMessage, RequestedOutput, Tensor, compress_message, encode_request
from tests.benchmarks import load
from tests.benchmarks.wrk import MARK

HOST: Final = "127.0.0.1"
KINDS: Final = 4_096
"""How many different requests a kind has whose contents vary."""

_LEAST: Final = 16
"""Floats of the smallest tensor."""
_TRACE: Final = ("traceparent", f"00-0123456789abcdef{MARK}-0123456789abcdef-01")

Fields = Sequence[tuple[str, str]]


def whole(model: str, message: EncodedMessage, fields: Fields = ()) -> bytes:
    """Return a request: its own fields come before those of the message."""
    return load.head_at(HOST, model, [*fields, *message.headers]) + b"".join(message.buffers)


def binary(
    tensors: Iterable[Tensor],
    *,
    model: str = "identity",
    is_new: bool = False,
    fields: Fields = (),
    outputs: Sequence[RequestedOutput] | None = None,
) -> bytes:
    """Return a request that wants its answer in binary, with a new id and trace parent each time if `is_new`."""
    parameters = {"binary_data_output": True} if outputs is None else None
    request_id = MARK if is_new else None
    message = encode_request([*tensors], outputs=outputs, parameters=parameters, request_id=request_id)
    return whole(model, message, [*fields, _TRACE] if is_new else fields)


def floats(nbytes: int, *, model: str = "identity", is_new: bool = False, fields: Fields = ()) -> bytes:
    """Return a request with the FP32 tensor `x` of so many bytes."""
    return binary([Tensor(name="x", array=load.floats(nbytes))], model=model, is_new=is_new, fields=fields)


def shapes(
    count: int,
    *,
    model: Callable[[int], str] = lambda _: "identity",
    is_new: bool = False,
    fields: Fields = (),
) -> list[bytes]:
    """Return requests with so many different shapes, from 16 floats on, for the model that a function says."""
    lengths = range(_LEAST, _LEAST + count)
    return [floats(4 * length, model=model(length), is_new=is_new, fields=fields) for length in lengths]


def changing_outputs(count: int) -> list[bytes]:
    """Return requests with four tensors of so many shapes, each for other outputs of the model."""
    found = []
    for length in range(_LEAST, _LEAST + count):
        names = [f"x{number}" for number in range(4)]
        tensors = [Tensor(name=name, array=load.floats(4 * length)) for name in names]
        wanted = [name for number, name in enumerate(names) if (length % 15 + 1) >> number & 1]
        outputs = [RequestedOutput(name=name, parameters={"binary_data": True}) for name in wanted]
        found.append(binary(tensors, model="four", outputs=outputs))
    return found


def json_floats(*, is_same: bool) -> list[bytes]:
    """Return requests with 16 floats as JSON: one, or many of which each has a new value each time."""
    chance = Random(1)  # noqa: S311 - not for secrets
    if is_same:
        return [_json("identity", "FP32", [chance.randrange(10**9) / 1e6 for _ in range(_LEAST)])]
    new = float(f"0.{MARK}")
    return [
        _json("identity", "FP32", [new, *(chance.randrange(10**9) / 1e6 for _ in range(_LEAST - 1))])
        for _ in range(KINDS)
    ]


def json_texts() -> list[bytes]:
    """Return requests with one text as JSON."""
    return [_json("texts", "BYTES", [text]) for text in _texts()]


def binary_texts() -> list[bytes]:
    """Return requests with the same texts as binary BYTES."""
    arrays = [np.array([text.encode()], np.object_) for text in _texts()]
    return [binary([Tensor(name="x", array=array)], model="texts") for array in arrays]


def many_tensors() -> list[bytes]:
    """Return a request with 20 tensors of 4 floats, with a new id each time."""
    tensors = [Tensor(name=f"x{number}", array=load.floats(16)) for number in range(20)]
    return [binary(tensors, model="many", is_new=True)]


def json_answers() -> list[bytes]:
    """Return requests with 16 floats in binary that get them back as JSON, with a new id each time."""
    chance = np.random.default_rng(1)
    arrays = [chance.standard_normal(_LEAST).astype(np.float32) for _ in range(KINDS)]
    return [whole("identity", encode_request({"x": array}, request_id=MARK)) for array in arrays]


def compressed() -> list[bytes]:
    """Return requests with 4 KiB of floats, compressed."""
    chance = np.random.default_rng(1)
    arrays = [chance.integers(0, 256, 1 << 10).astype(np.float32) for _ in range(64)]
    parameters = {"binary_data_output": True}
    messages = [encode_request({"x": array}, parameters=parameters) for array in arrays]
    return [whole("identity", compress_message(message, "gzip")) for message in messages]


def chunked() -> bytes:
    """Return 16 floats as a body of one chunk."""
    head, _, body = floats(4 * _LEAST).partition(b"\r\n\r\n")
    fields = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    return b"\r\n".join([*fields, b"Transfer-Encoding: chunked", b"", b"%x" % len(body), body, b"0", b"", b""])


def get(path: str) -> bytes:
    """Return a request without a body."""
    return f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


def _json(model: str, datatype: str, data: list[float] | list[str]) -> bytes:
    tensor = {"name": "x", "shape": [len(data)], "datatype": datatype, "data": data}
    body = json.dumps({"inputs": [tensor]}).encode()
    fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    return load.head_at(HOST, model, fields) + body


def _texts() -> list[str]:
    """Return texts of 20 to 420 characters, each with a new number each time."""
    chance = Random(1)  # noqa: S311 - not for secrets
    return [f"{MARK} {'say it again ' * 32}"[: chance.randrange(20, 421)] for _ in range(KINDS)]
