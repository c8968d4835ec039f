"""Management: documents, states and Triton's extensions, against our own server and as they are sent."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from streamcodec import LocalProtocolError, RemoteProtocolError
from streamcodec.client import ServerError
from tests.client.answers.test_answers import GOOD, INPUTS
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import response, scripted
from tests.server.models import models
from tests.server.programs import server_here


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"http://{host}:{port}"


@KINDS
def test_documents_of_our_own_server(kind: Kind, url: str) -> None:
    with kind.client(url) as client:
        assert client.call("model_config", "declared", "1")["input"][0]["dims"] == [-1, 4]
        index = client.call("repository_index")
        assert {"name": "declared", "version": "1", "state": "READY", "reason": ""} in index
        assert client.call("repository_index", ready=True) == index
        for settings in ("log_settings", "trace_settings"):
            with pytest.raises(ServerError, match="that clients can change"):
                client.call(settings)
        with pytest.raises(ServerError, match="loaded and unloaded by the program"):
            client.call("load", "declared")


SENT: dict[str, tuple[str, dict[str, Any], str, object]] = {
    "the statistics of all": ("statistics", {}, "GET /v2/models/stats", None),
    "those of a version": (
        "statistics",
        {"model": "a/b", "version": "1"},
        "GET /v2/models/a%2Fb/versions/1/stats",
        None,
    ),
    "the trace settings": ("trace_settings", {}, "GET /v2/trace/setting", None),
    "those of a model": ("trace_settings", {"model": "m"}, "GET /v2/models/m/trace/setting", None),
    "new ones": (
        "trace_settings",
        {"settings": {"trace_rate": "7", "log_frequency": None}},
        "POST /v2/trace/setting",
        {"trace_rate": "7", "log_frequency": None},
    ),
    "the log settings": ("log_settings", {}, "GET /v2/logging", None),
    "new log settings": ("log_settings", {"settings": {"log_info": False}}, "POST /v2/logging", {"log_info": False}),
    "a query": ("server_metadata", {"query_params": {"a": [1, 2], "b": "é&"}}, "GET /v2?a=1&a=2&b=%C3%A9%26", None),
}


@KINDS
@pytest.mark.parametrize(("method", "arguments", "line", "body"), SENT.values(), ids=SENT)
def test_what_is_sent_and_returned(kind: Kind, method: str, arguments: dict[str, Any], line: str, body: object) -> None:
    answer = {"name": "é", "value": [1]}
    with scripted([response(json.dumps(answer).encode())]) as server, kind.client(server.url) as client:
        assert client.call(method, headers={"X-A": "1"}, **arguments) == answer
    assert _sent(server.requests[0]) == (f"{line} HTTP/1.1", body)
    assert b"\r\nX-A: 1\r\n" in server.requests[0]


def _sent(request: bytes) -> tuple[str, object]:
    """Return the line of a request, and its JSON; None without a body."""
    head, _, body = request.partition(b"\r\n\r\n")
    assert (b"Content-Type: application/json" in head) is bool(body)
    return head.partition(b"\r\n")[0].decode(), json.loads(body) if body else None


@KINDS
def test_load_and_unload(kind: Kind) -> None:
    with scripted([response(b"")] * 4) as server, kind.client(server.url) as client:
        assert client.call("load", "m") is None
        client.call("load", "ä", config={"max_batch_size": 8}, files={"1/model.onnx": b"\0\xff"})
        client.call("unload", "m")
        client.call("unload", "m", dependents=True)
    contents = {"config": '{"max_batch_size":8}', "file:1/model.onnx": b64encode(b"\0\xff").decode()}
    assert [_sent(request) for request in server.requests] == [
        ("POST /v2/repository/models/m/load HTTP/1.1", {"parameters": {}}),
        ("POST /v2/repository/models/%C3%A4/load HTTP/1.1", {"parameters": contents}),
        ("POST /v2/repository/models/m/unload HTTP/1.1", {"parameters": {"unload_dependents": False}}),
        ("POST /v2/repository/models/m/unload HTTP/1.1", {"parameters": {"unload_dependents": True}}),
    ]


@KINDS
def test_a_model_that_cannot_be_loaded(kind: Kind) -> None:
    refusal = response(b'{"error":"failed to load"}', status="400 Bad Request")
    with scripted([refusal]) as server, kind.client(server.url) as client, pytest.raises(ServerError, match="failed"):
        client.call("load", "m")


@KINDS
@pytest.mark.parametrize(
    ("method", "answer", "words"), [("model_config", b"[]", "object"), ("repository_index", b"{}", "array")]
)
def test_a_document_of_another_kind(kind: Kind, method: str, answer: bytes, words: str) -> None:
    arguments = ["m"] if method == "model_config" else []
    with (
        scripted([response(answer)]) as server,
        kind.client(server.url) as client,
        pytest.raises(RemoteProtocolError, match=f"the answer is not a JSON {words}"),
    ):
        client.call(method, *arguments)


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a config as text": (
        "load",
        {"model": "m", "config": "{}"},
        "as {'max_batch_size': 8}; json.loads makes one of text",
    ),
    "settings": (
        "log_settings",
        {"settings": [1]},
        "settings are values by name, as {'log_verbose_level': 1}, not list",
    ),
    "a value of a config": ("load", {"model": "m", "config": {"a": np.ones(1)}}, "a value has no form in JSON"),
    "a setting": ("log_settings", {"settings": {"a": np.ones(1)}}, "a value has no form in JSON"),
    "a model": ("unload", {"model": 5}, "the name of a model is a str, as 'resnet', not int"),
}


@KINDS
@pytest.mark.parametrize(("method", "arguments", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_says_what_to_write(kind: Kind, method: str, arguments: dict[str, Any], words: str) -> None:
    with kind.client("http://nobody.invalid") as client, pytest.raises(LocalProtocolError, match=re.escape(words)):
        client.call(method, **arguments)


@KINDS
def test_an_option_that_there_is_not(kind: Kind) -> None:
    with kind.client("http://nobody.invalid") as client, pytest.raises(TypeError, match="'header'"):
        client.call("server_metadata", header={"a": "b"})


@KINDS
def test_sequences_priority_and_a_query(kind: Kind) -> None:
    options = {"parameters": {"timeout": 5, "priority": 9}, "query_params": {"q": "1"}}
    with scripted([GOOD] * 4) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS, sequence_id=7, sequence_start=True, priority=1, **options)
        client.infer("m", INPUTS, sequence_id="a", sequence_end=True)
        client.infer("m", INPUTS, version="2", query_params={"q": ["1", "2"]})
        with client.stream("m", INPUTS, sequence_id=8, query_params={"q": "3"}) as events:
            assert [*events]
    lines = [request.split(b"\r\n")[0].decode() for request in server.requests]
    assert [line.split()[1] for line in lines] == [
        "/v2/models/m/infer?q=1",
        "/v2/models/m/infer",
        "/v2/models/m/versions/2/infer?q=1&q=2",
        "/v2/models/m/infer?q=3",
    ]
    sequence = {"sequence_start": False, "sequence_end": False, "binary_data_output": True}
    assert [_parameters(request) for request in server.requests] == [
        sequence | {"sequence_id": 7, "sequence_start": True, "priority": 1, "timeout": 5},
        sequence | {"sequence_id": "a", "sequence_end": True},
        {"binary_data_output": True},
        sequence | {"sequence_id": 8},
    ]


def _parameters(request: bytes) -> object:
    return json.JSONDecoder().raw_decode(request.partition(b"\r\n\r\n")[2].decode("latin-1"))[0]["parameters"]


@KINDS
def test_a_raw_request_has_a_query(kind: Kind) -> None:
    with scripted([GOOD]) as server, kind.client(server.url) as client:
        client.call("infer_raw", "m", np.ones(1, np.float32), query_params={"q": "1"})
    assert server.requests[0].startswith(b"POST /v2/models/m/infer?q=1 HTTP/1.1\r\n")
