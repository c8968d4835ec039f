"""Servers without the binary extension: noticed once, by their metadata, and spoken to in JSON from then on."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from streamcodec import NotRepresentableError, Rows
from streamcodec.client import ServerError
from tests.client.answers.test_answers import GOOD, INPUTS
from tests.client.drivers import KINDS, Kind
from tests.client.json_server import json_server
from tests.client.scripted import response, scripted

X = np.arange(6, dtype=np.int64).reshape(2, 3)
PATH = "/v2/models/echo/infer"
NOTICED = [f"POST {PATH} bytes", "GET /v2", f"POST {PATH} JSON"]
ANSWERS = {
    "MLServer": (500, b"Internal Server Error"),
    "MLServer, of ASCII": (422, b'{"detail":[{"msg":"Input should be a valid dictionary"}]}'),
    "no JSON": (400, b"<html>"),
    "another error": (400, b'{"error":{"code":1}}'),
    "no such type": (415, b""),
    "long": (422, b'{"detail":"' + b"x" * 100_000 + b'"}'),
}


@KINDS
@pytest.mark.parametrize(("status", "text"), ANSWERS.values(), ids=ANSWERS)
def test_a_server_is_noticed_once_and_gets_json(
    kind: Kind, status: int, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with json_server(status=status, text=text) as server, kind.client(server.url) as client:
        for _ in range(3):
            result = client.infer("echo", {"x": X, "words": ["ä"]}, outputs=["x"])
            assert np.array_equal(result["x"], X)
            assert result["words"].tolist() == ["ä".encode()]
    assert server.requests == [*NOTICED, *[f"POST {PATH} JSON"] * 2]
    assert len({*server.ids}) == 1
    (entry,) = caplog.records
    assert entry.levelno == logging.WARNING
    assert entry.getMessage() == (
        f"{server.url.removeprefix('http://')}: the server reads no binary tensors: its metadata have no "
        "binary_tensor_data; requests of this client are JSON"
    )


@KINDS
def test_fields_and_the_query_of_a_call_are_those_of_the_question_too(kind: Kind) -> None:
    with json_server() as server, kind.client(server.url) as client:
        client.infer("echo", {"x": X}, query_params={"token": "1"})
    assert server.requests == [f"POST {PATH}?token=1 bytes", "GET /v2?token=1", f"POST {PATH}?token=1 JSON"]


@KINDS
def test_what_can_be_iterated_once_is_sent_twice(kind: Kind) -> None:
    with json_server() as server, kind.client(server.url) as client:
        client.infer("echo", {"x": X}, outputs=iter(["x"]), headers=iter([("X-A", "1")]))
    assert server.headers == ["1", "1", "1"]
    assert server.outputs == [["x"], ["x"]]


@KINDS
def test_fields_of_a_stream_that_can_be_iterated_once_are_those_of_the_question_too(kind: Kind) -> None:
    fields, refused = iter([("X-A", "1")]), pytest.raises(ServerError)
    with json_server() as server, kind.client(server.url) as client:
        stream = client.stream("echo", {"x": X}, headers=fields)
        with refused, stream as events:
            next(events)
    assert (server.requests, server.headers) == (NOTICED[:2], ["1", "1"])


@KINDS
def test_who_asks_for_json_asks_nothing_else(kind: Kind) -> None:
    with json_server() as server, kind.client(server.url) as client:
        client.infer("echo", {"x": X}, is_binary=False)
    assert server.requests == NOTICED[2:]


@KINDS
@pytest.mark.parametrize("status", [404, 503])
def test_an_error_of_another_status_says_nothing(kind: Kind, status: int) -> None:
    refused = pytest.raises(ServerError, match=str(status))
    with json_server(status=status) as server, kind.client(server.url) as client, refused:
        client.infer("echo", {"x": X})
    assert server.requests == NOTICED[:1]


@KINDS
def test_an_error_with_the_text_of_v2_says_nothing(kind: Kind) -> None:
    with json_server(status=400, text=b'{"error":"wrong shape"}') as server, kind.client(server.url) as client:
        for _ in range(2):
            with pytest.raises(ServerError, match="400: wrong shape"):
                client.infer("echo", {"x": X})
    assert server.requests == NOTICED[:1] * 2


@KINDS
@pytest.mark.parametrize("metadata", [{"name": "kserve"}, {"extensions": ["binary_tensor_data"]}])
def test_a_server_that_reads_bytes_is_asked_once(kind: Kind, metadata: dict[str, object]) -> None:
    with json_server(metadata=metadata) as server, kind.client(server.url) as client:
        for _ in range(2):
            with pytest.raises(ServerError, match="500: Internal Server Error"):
                client.infer("echo", {"x": X})
    assert server.requests == [*NOTICED[:2], NOTICED[0]]


@KINDS
def test_a_server_that_has_read_bytes_is_not_asked(kind: Kind) -> None:
    answers = [GOOD, response(b"Internal Server Error", status="500 -")]
    with scripted(answers) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        with pytest.raises(ServerError, match="500: Internal Server Error"):
            client.infer("m", INPUTS)
    assert len(server.requests) == 2


@KINDS
def test_without_metadata_the_error_stays_what_it_was(kind: Kind) -> None:
    refused = pytest.raises(ServerError, match="500: Internal Server Error")
    with json_server(metadata=None) as server, kind.client(server.url) as client, refused:
        client.infer("echo", {"x": X})
    assert server.requests == NOTICED[:2]


@KINDS
def test_what_json_has_no_form_for_says_why_it_is_json(kind: Kind) -> None:
    halves = {"x": np.ones(2, np.float16)}
    with json_server() as server, kind.client(server.url) as client:
        with pytest.raises(NotRepresentableError, match="FP16 has no JSON form") as caught:
            client.infer("echo", halves)
        assert caught.value.__notes__ == ["the server reads no binary tensors: its metadata have no binary_tensor_data"]
        with pytest.raises(NotRepresentableError):
            client.infer("echo", halves)
    assert server.requests == NOTICED[:2]


@KINDS
def test_windows_that_are_made_once_are_not_sent_again(kind: Kind) -> None:
    with json_server() as server, kind.client(server.url) as client:
        with pytest.raises(ServerError, match="500") as caught:
            client.infer("echo", {"x": Rows("INT64", (2, 3), iter([X]))})
        assert "the next request of this client is JSON" in caught.value.__notes__[0]
        assert np.array_equal(client.infer("echo", {"x": Rows("INT64", (2, 3), iter([X]))})["x"], X)
    assert server.requests == NOTICED


@KINDS
def test_a_stream_fails_and_the_next_is_json(kind: Kind) -> None:
    with json_server() as server, kind.client(server.url) as client:
        with pytest.raises(ServerError, match="500") as caught, client.stream("echo", {"x": X}) as events:
            next(events)
        assert "the next request of this client is JSON" in caught.value.__notes__[0]
        with client.stream("echo", {"x": X}) as events:
            assert len([*events]) == 3
    assert server.requests == NOTICED
