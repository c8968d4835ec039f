"""Captures: every message of real peers comes out as its index says, in whatever pieces it arrives.

Requests go through a `ServerConnection`, responses through a `ClientConnection`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from streamcodec import DATATYPES, ErrorCode, RemoteProtocolError, TensorSpec, raw_request_decoder
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import Collector, Receiver, RequestHead, ResponseHead, ServerConnection
from tests.captures import Capture, ExpectedTensor, Layer, captures, split_message
from tests.http.driver import Driver, Entry, client, open_message, refuses, server, triad

NEXT_REQUEST = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
LONG_BYTES, START_BYTES = 9000, 1500
"""A message longer than the one is cut everywhere in its start and near its end, elsewhere at every 97th byte."""


def deduce(head: RequestHead) -> TensorSpec:
    """Work out the one tensor of a raw request, as a service does from its model's metadata."""
    nbytes = head.content_length or 0
    if "bytes" in head.target:
        return TensorSpec(
            name="INPUT0", datatype=DATATYPES["BYTES"], shape=(1,), nbytes=nbytes, offset=0, is_single_element=True
        )
    if nbytes % 4:
        msg = f"{nbytes} bytes are no whole number of FP32"
        raise RemoteProtocolError(msg, code=ErrorCode.BINARY_SIZE_MISMATCH)
    return TensorSpec(name="INPUT0", datatype=DATATYPES["FP32"], shape=(nbytes // 4,), nbytes=nbytes, offset=0)


def open_capture(head: RequestHead | ResponseHead) -> Receiver:
    """Open any captured body: also raw ones."""
    if isinstance(head, RequestHead) and header_length_of(head.fields) == 0:
        return raw_request_decoder(deduce(head))
    return open_message(head)


def open_plain(head: RequestHead | ResponseHead) -> Receiver:  # noqa: ARG001 - the signature of `Open`
    """Open a body that is no inference message."""
    return Collector(1 << 20)


def cuts(message: bytes) -> Sequence[int]:
    """Where to cut a message in two: everywhere, unless it is long."""
    if len(message) <= LONG_BYTES:
        return range(1, len(message))
    near_the_end = range(len(message) - 12, len(message))
    return sorted({*range(1, START_BYTES), *range(START_BYTES, len(message), 97), *near_the_end})


def start_client(capture: Capture) -> Driver:
    """Make a client that expects the answer to a captured request."""
    is_plain = not capture.is_inference or capture.status != 200
    return client(open_plain if is_plain else open_capture, split_message(capture.request).start_line.split()[0])


def kinds(log: list[Entry]) -> list[object]:
    """The kinds of what came out."""
    return [entry[0] for entry in log]


def expect_tensors(driver: Driver, expected: tuple[ExpectedTensor, ...]) -> None:
    """Compare what came out with what the index says."""
    specs = [entry[1] for entry in driver.log if entry[0] == "tensor"]
    described = [(spec[0], spec[1], spec[2]) for spec in specs if isinstance(spec, tuple)]
    assert described == [(tensor.name, tensor.datatype, tensor.shape) for tensor in expected]
    for array, spec, tensor in zip(driver.arrays, specs, expected, strict=True):
        assert array.shape == tensor.shape
        assert isinstance(spec, tuple)
        assert (spec[4] is not None) == tensor.binary
        if tensor.binary and tensor.nbytes is not None:
            assert spec[3] == tensor.nbytes
        if tensor.elements is not None:
            assert tuple(array.ravel().tolist()) == tensor.elements
        elif tensor.sha256 is not None:
            assert hashlib.sha256(array.tobytes()).hexdigest() == tensor.sha256
        if tensor.values is not None:
            np.testing.assert_array_equal(array.astype(np.float64).ravel(), np.array(tensor.values, np.float64))


def test_all_captures_are_here() -> None:
    assert len(captures()) == 65


@pytest.mark.parametrize("capture", [c for c in captures() if c.expected_request is not None], ids=str)
def test_a_request_decodes_to_the_tensors_of_its_index(capture: Capture) -> None:
    driver = server(open_capture)
    driver.push(capture.request)
    expect_tensors(driver, capture.expected_request or ())
    assert driver.log[-1] == ("end", len(split_message(capture.request).body), None)


@pytest.mark.parametrize("capture", [c for c in captures() if c.expected_response is not None], ids=str)
def test_a_response_decodes_to_the_tensors_of_its_index(capture: Capture) -> None:
    driver = start_client(capture)
    driver.push(capture.response)
    expect_tensors(driver, capture.expected_response or ())
    assert driver.log[-1] == ("end", len(split_message(capture.response).body), None)


@pytest.mark.parametrize("capture", [c for c in captures() if c.is_raw and c.status == 200], ids=str)
def test_a_raw_request_is_one_tensor(capture: Capture) -> None:
    driver = server(open_capture)
    driver.push(capture.request)
    body = split_message(capture.request).body
    assert kinds(driver.log) == ["head", "header", "tensor", "end"]
    assert driver.log[2][2] == ([body] if capture.name == "raw_bytes" else body)


@pytest.mark.parametrize("capture", [c for c in captures() if c.refusal], ids=str)
def test_a_bad_request_is_refused_by_the_layer_that_can_know(capture: Capture) -> None:
    assert capture.refusal is not None
    driver = server(open_capture)
    driver.push(capture.request)
    if capture.refusal.layer is Layer.SERVICE and not capture.is_raw:
        assert kinds(driver.log)[-1] == "end"
    else:
        assert driver.log[-1][0] == "error"
        assert f" {capture.refusal.status} ".encode() in driver.sent
        assert "tensor" not in kinds(driver.log)


@pytest.mark.parametrize(
    ("name", "code", "offset"),
    [
        ("triton-err_encoding_br", ErrorCode.UNSUPPORTED_ENCODING, None),
        ("triton-err_header_too_long", ErrorCode.HEADER_EXCEEDS_BODY, 0),
        ("triton-err_short", ErrorCode.BODY_LENGTH_MISMATCH, None),
        ("triton-err_trailing", ErrorCode.BODY_LENGTH_MISMATCH, None),
    ],
)
def test_a_refusal_says_which_rule_was_broken(name: str, code: ErrorCode, offset: int | None) -> None:
    capture = next(c for c in captures() if str(c) == name)
    driver = server(open_capture)
    driver.push(capture.request)
    assert capture.refusal is not None
    assert refuses(driver, code=code, status=capture.refusal.status)
    if offset is not None:
        assert driver.log[-1][4] == offset


@pytest.mark.parametrize("capture", [c for c in captures() if c.error is not None or not c.is_inference], ids=str)
def test_any_other_body_is_collected(capture: Capture) -> None:
    driver = start_client(capture)
    driver.push(capture.response)
    body = split_message(capture.response).body
    assert driver.log[-1] == ("end", len(body), body)


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_how_a_request_is_cut_changes_nothing(capture: Capture) -> None:
    driver = triad(partial(server, open_capture), capture.request, cuts=cuts(capture.request))
    assert kinds(driver.log)[-1] == "closed"


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_how_a_response_is_cut_changes_nothing(capture: Capture) -> None:
    triad(partial(start_client, capture), capture.response, cuts=cuts(capture.response))


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_a_pipelined_request_is_untouched_and_then_answered(capture: Capture) -> None:
    start = partial(server, open_capture)
    alone = triad(start, capture.request, cuts=())
    driver = triad(start, capture.request, cuts=cuts(capture.request)[::7], tail=NEXT_REQUEST)
    assert driver.log[: len(alone.log) - 1] == alone.log[:-1]
    assert kinds(driver.log[len(alone.log) - 1 :]) == ["head", "end", "closed"]
    assert driver.sent.endswith(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest.mark.parametrize("capture", [c for c in captures() if c.is_inference], ids=str)
def test_nothing_behind_a_request_is_taken_before_it_is_answered(capture: Capture) -> None:
    connection = ServerConnection()
    taken = connection.feed(capture.request + NEXT_REQUEST)
    head = connection.next_event()
    assert isinstance(head, RequestHead)
    assert connection.feed(NEXT_REQUEST * 9) == 0
    assert taken <= len(capture.request + NEXT_REQUEST)


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_bytes_behind_a_response_are_no_part_of_it(capture: Capture) -> None:
    alone, followed = start_client(capture), start_client(capture)
    alone.push(capture.response)
    followed.push(capture.response + b"junk")
    assert followed.log == alone.log
