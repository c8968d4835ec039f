"""Requests of the caller's own: any method, path and body, and the answer whatever its status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    EndOfMessage,
    LocalProtocolError,
    RemoteProtocolError,
    TensorReceived,
    encode_request,
    response_decoder,
)
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import Collector, ResponseHead
from streamcodec.http.bodies.body import Receiver
from streamcodec.server import ServerOptions
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import response, scripted
from tests.server.models import models
from tests.server.programs import server_here


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models(), ServerOptions()) as (_, (host, port)):
        yield f"http://{host}:{port}"


class _Kept:
    """Receives an answer, and keeps its head and its receiver."""

    def __init__(self, make: Callable[[ResponseHead, bool], Receiver] | None = None) -> None:
        self.head: ResponseHead | None = None
        self.collector = Collector(1 << 20)
        self._make = make

    def __call__(self, head: ResponseHead, is_paced: bool) -> Receiver:
        self.head = head
        return self.collector if self._make is None else self._make(head, is_paced)


def _decoder(head: ResponseHead, is_paced: bool) -> Receiver:
    length = header_length_of(head.fields)
    return response_decoder(header_length=length, body_length=head.body_length, paced=is_paced)


@KINDS
def test_a_document(kind: Kind, url: str) -> None:
    kept = _Kept()
    with kind.client(url) as client:
        events = client.call("request", "POST", "/v2/repository/index", kept, parts=[b'{"ready"', b": true}"])
    assert events == [EndOfMessage(nbytes=len(kept.collector.data))]
    assert kept.head is not None
    assert kept.head.status == 200
    assert b'"state":"READY"' in kept.collector.data


@KINDS
def test_tensors_in_place(kind: Kind, url: str) -> None:
    array = np.arange(100_000, dtype=np.int32)
    message = encode_request({"x": array}, parameters={"binary_data_output": True})
    with kind.client(url) as client:
        fields, parts = [field for field in message.headers if field[0] != "Content-Length"], [*message.buffers]
        events = client.call("request", "POST", "/v2/models/identity/infer", _decoder, headers=fields, parts=parts)
        tensors = [event for event in events if isinstance(event, TensorReceived)]
        assert np.array_equal(tensors[0].array, array)
        assert client.client.received_copied < client.client.received_bytes - 100_000


@KINDS
def test_a_refusal_is_an_answer(kind: Kind, url: str) -> None:
    kept = _Kept()
    with kind.client(url) as client:
        client.call("request", "GET", "/v2/models/none", kept)
        assert kept.head is not None
        assert kept.head.status == 404
        assert b"there is no model" in kept.collector.data
        assert client.call("is_server_live")  # on the same connection


@KINDS
def test_fields(kind: Kind) -> None:
    with (
        scripted([response(b"{}"), response(b"{}")]) as server,
        kind.client(f"{server.url}/base", auth="token", headers={"X-A": "1", "X-B": "2"}) as client,
    ):
        client.call("request", "GET", "/v2?q=1", _Kept(), headers={"x-a": "7", "Content-Type": "text/plain"})
        client.call("request", "PUT", "/v2", _Kept(), headers=[("Host", "other")])
    get, put = (request.decode().split("\r\n") for request in server.requests)
    assert get[0] == "GET /base/v2?q=1 HTTP/1.1"
    assert {"Authorization: Bearer token", "X-B: 2", "x-a: 7", "Content-Type: text/plain"} <= {*get}
    assert not any(line.startswith(("X-A", "Content-Length")) for line in get)
    assert put[1] == "Host: other"
    assert "Content-Length: 0" in put


@KINDS
@pytest.mark.parametrize("arguments", [{"headers": {"a": "b\r\nc: d"}}, {"headers": {"Content-Length": "5"}}])
def test_what_is_not_http_is_not_sent(kind: Kind, url: str, arguments: dict[str, Any]) -> None:
    with kind.client(url) as client, pytest.raises(LocalProtocolError):
        client.call("request", "POST", "/v2", _Kept(), parts=[b"x"], **arguments)


@KINDS
def test_an_answer_that_is_cut_short(kind: Kind) -> None:
    answer = b"HTTP/1.1 400 -\r\nContent-Length: 10\r\n\r\nabc"
    with scripted([answer]) as server, kind.client(server.url) as client, pytest.raises(RemoteProtocolError):
        client.call("request", "GET", "/v2", _Kept())
