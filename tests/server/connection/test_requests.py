"""Requests on raw sockets: every framing, and what HTTP allows between two requests."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path

import numpy as np
import pytest

from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, TIMEOUT, Wire, chunked, floats, head, infer_request

VALUES = [0.0, 1.0, 2.0, 3.0]
Address = tuple[str, int]

REQUEST = infer_request()
HEAD, _, BODY = REQUEST.partition(b"\r\n\r\n")
IHCL = next(line for line in HEAD.decode().split("\r\n") if line.startswith("Inference"))
TARGET = "/v2/models/identity/infer"


def test_keep_alive(address: Address) -> None:
    with Wire(address) as wire:
        for count in (4, 0, 1, 10_000, 4):
            assert floats(wire.send(infer_request(count=count)).response()) == list(range(count))


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
def test_a_listening_socket_may_be_of_another_family(backend: str, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as sock:
        listener.bind(path)
        listener.listen()
        with server_here(models(), listener=listener, backend=backend):
            sock.settimeout(TIMEOUT)
            sock.connect(path)
            sock.sendall(GET_LIVE)
            assert sock.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_pipelining_in_one_write(address: Address) -> None:
    with Wire(address) as wire:
        wire.send(b"".join((GET_LIVE, REQUEST, GET_LIVE, infer_request(count=3), REQUEST)))
        assert wire.response().document == {"live": True}
        assert floats(wire.response()) == VALUES
        assert wire.response().document == {"live": True}
        assert floats(wire.response()) == VALUES[:3]
        assert floats(wire.response()) == VALUES


def test_a_thousand_pipelined_requests(address: Address) -> None:
    with Wire(address) as wire:
        wire.send(GET_LIVE * 1000)
        assert all(wire.response().status == 200 for _ in range(1000))


def test_byte_by_byte(address: Address) -> None:
    with Wire(address) as wire:
        for byte in REQUEST + GET_LIVE:
            wire.send(bytes([byte]))
        assert floats(wire.response()) == VALUES
        assert wire.response().status == 200


@pytest.mark.parametrize("sizes", [[], [1] * 500, [7, 64, 1], [1 << 20]])
def test_chunked(address: Address, sizes: list[int]) -> None:
    with Wire(address) as wire:
        for _ in range(2):
            wire.send(head(TARGET, "Transfer-Encoding: chunked", IHCL), chunked(BODY, sizes))
            assert floats(wire.response()) == VALUES


def test_compressed(address: Address) -> None:
    body = gzip.compress(BODY)
    with Wire(address) as wire:
        wire.send(head(TARGET, f"Content-Length: {len(body)}", "Content-Encoding: gzip", IHCL), body)
        assert floats(wire.response()) == VALUES


def test_100_continue_comes_before_the_body_is_sent(address: Address) -> None:
    with Wire(address) as wire:
        for _ in range(2):
            wire.send(head(TARGET, f"Content-Length: {len(BODY)}", IHCL, "Expect: 100-continue"))
            assert wire.response().status == 100
            assert floats(wire.send(BODY).response()) == VALUES


def test_100_continue_is_not_given_to_a_request_that_is_refused(address: Address) -> None:
    with Wire(address) as wire:
        wire.send(head("/v2/models/nobody/infer", "Content-Length: 1000000000", "Expect: 100-continue"))
        answer = wire.response()
        assert (answer.status, answer.is_last) == (404, True)
        assert wire.is_closed()


def test_http_1_0_closes(address: Address) -> None:
    for request in (REQUEST, GET_LIVE):
        with Wire(address) as wire:
            wire.send(request.replace(b"HTTP/1.1", b"HTTP/1.0"))
            answer = wire.response()
            assert (answer.status, answer.is_last) == (200, True)
            assert wire.is_closed()


def test_connection_close_is_honoured(address: Address) -> None:
    with Wire(address) as wire:
        answer = wire.send(infer_request("identity", "Connection: close"), GET_LIVE).response()
        assert floats(answer) == VALUES
        assert answer.is_last
        assert wire.is_closed()


def test_a_client_that_sends_no_more_still_gets_its_answer(address: Address) -> None:
    with Wire(address) as wire:
        wire.send(REQUEST)
        wire.sock.shutdown(1)
        assert floats(wire.response()) == VALUES
        assert wire.is_closed()


def test_head_has_no_body(address: Address) -> None:
    with Wire(address) as wire:
        wire.send(head("/v2", method="HEAD"))
        answer = wire.response(has_body=False)
        assert (answer.status, answer.body) == (200, b"")
        assert int(answer.fields["content-length"]) > 0
        wire.send(head("/v2/nowhere", method="HEAD"))
        assert wire.response(has_body=False).status == 404
        assert wire.send(REQUEST).response().status == 200


def test_a_get_with_a_body_does_not_shift_what_follows(address: Address) -> None:
    with Wire(address) as wire:
        wire.send(head("/v2/health/live", "Content-Length: 40", method="GET"), GET_LIVE[:40], REQUEST)
        assert wire.response().status == 200
        assert floats(wire.response()) == VALUES


def test_json_both_ways(address: Address) -> None:
    text = {"id": "7", "inputs": [{"name": "x", "datatype": "INT64", "shape": [2], "data": [1, 2**62]}]}
    body = json.dumps(text).encode()
    with Wire(address) as wire:
        answer = wire.send(head(TARGET, f"Content-Length: {len(body)}"), body).response()
        assert answer.document["outputs"][0]["data"] == [1, 2**62]
        assert answer.document["id"] == "7"


def test_a_raw_request(address: Address) -> None:
    body = np.arange(4, dtype="<f4").tobytes()
    fields = (f"Content-Length: {len(body)}", "Inference-Header-Content-Length: 0")
    with Wire(address) as wire:
        assert floats(wire.send(head("/v2/models/declared/infer", *fields), body).response()) == VALUES


def test_a_client_that_leaves_in_the_middle(address: Address) -> None:
    for cut in (1, 30, len(HEAD) + 4, len(REQUEST) - 1):
        with Wire(address) as wire:
            wire.send(REQUEST[:cut])


def test_half_a_request_and_then_no_more(address: Address) -> None:
    with Wire(address) as wire:
        wire.send(REQUEST[:-1])
        wire.sock.shutdown(1)
        assert wire.response().status == 400
        assert wire.is_closed()
