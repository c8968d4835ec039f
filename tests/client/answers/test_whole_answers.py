"""Whole answers: an answer that has come with one read gives the result that its events give, in every cut."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from streamcodec import MessageError, Tensor, encode_request, encode_response
from streamcodec.client.caller import run
from streamcodec.client.exchange import ClientExchange
from streamcodec.engine.limits import DEFAULT_LIMITS
from streamcodec.http import ClientConnection
from streamcodec.testing import describe_array, describe_error, describe_header
from tests.client.answers.test_answers import GOOD, HOSTILE, IHCL, JSON, SLOPPY
from tests.client.scripted import response

REQUEST = encode_request([Tensor(name="x", array=np.zeros(1, np.float32))])
FIELDS = [("Host", "x")]


def _binary(**arrays: np.ndarray[Any, Any]) -> bytes:
    message = encode_response([Tensor(name=name, array=array) for name, array in arrays.items()], model_name="m")
    fields = f"Inference-Header-Content-Length: {message.header_length}"
    return response(b"".join(message.buffers), fields, "Content-Type: application/octet-stream")


PLAIN = {
    "one tensor": _binary(y=np.arange(16, dtype=np.float32)),
    "several": _binary(a=np.arange(3), b=np.ones((2, 2), np.float16), c=np.zeros((0, 4), np.uint8)),
    "BOOL and BYTES": _binary(flags=np.array([True, False]), texts=np.array([b"a", b"", b"ccc"], object)),
    "JSON": response(JSON),
    "the last one": GOOD.replace(b"\r\n", b"\r\nConnection: close\r\n", 1),
    "a refusal": response(b'{"error":"no"}', status="400 Bad Request"),
    "a failure": response(b"", status="503 Service Unavailable"),
}
OTHERS = {
    "BOOL of 2": PLAIN["BOOL and BYTES"].replace(b"\x01\x00", b"\x02\x00"),
    "no content": response(b"", status="204 No Content"),
    "two lengths": GOOD.replace(b"\r\n", b"\r\nContent-Length: 9\r\n", 1),
    "bytes behind it": GOOD + b"H",
    "a length that is none": GOOD.replace(IHCL.encode(), b"Inference-Header-Content-Length: 9x"),
    "a media type with another length": GOOD.replace(
        IHCL.encode(),
        IHCL.encode() + b"\r\nContent-Type: application/vnd.sagemaker-triton.binary+json;json-header-size=1",
    ),
}
HOSTILE_CASES = {f"hostile: {name}": answer for name, answer in HOSTILE.items()}
CASES = {name: answer for name, answer in (PLAIN | OTHERS | SLOPPY | HOSTILE_CASES).items() if len(answer) < 1 << 16}
"""Those that one read can bring."""


def _call(answer: bytes, first: int, *, as_whole: bool) -> tuple[object, bool]:
    """Bring an answer in two pieces; return what it comes to, and whether it was taken as a whole."""
    connection, exchange = ClientConnection(), ClientExchange("POST", "/", FIELDS, REQUEST, DEFAULT_LIMITS)
    exchange.start(connection)
    was_whole = False
    try:
        for piece in (answer[:first], answer[first:]):
            connection.feed(piece)
            if as_whole and not was_whole and not exchange.has_ended:
                was_whole = exchange.take_whole(connection)
        connection.receive_eof()
        while not exchange.has_ended:
            event = exchange.receive(connection, connection.next_event())  # type: ignore[arg-type]  # there is an end
            if event is not None:
                exchange.keep(event)
        exchange.check_status()
        result = exchange.infer_result()
    except MessageError as error:
        return (describe_error(error), getattr(error, "text", None), connection.incoming.received_copied), was_whole
    arrays = {name: (tensor.spec.datatype, describe_array(tensor.array)) for name, tensor in result.tensors.items()}
    return (describe_header(result.header), arrays, connection.incoming.received_copied), was_whole


@pytest.mark.parametrize("case", CASES)
def test_it_comes_to_the_same(case: str) -> None:
    answer = CASES[case]
    for first in {0, *range(0, len(answer), max(1, len(answer) // 400)), len(answer)}:
        expected, _ = _call(answer, first, as_whole=False)
        found, was_whole = _call(answer, first, as_whole=True)
        assert found == expected, first
        assert was_whole or case not in PLAIN


def test_a_coroutine_that_would_suspend_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="event loop"):
        run(asyncio.sleep(0))
