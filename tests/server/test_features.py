"""What is switched on in the service, on raw sockets: compressed answers, CORS, classification, the headerless form."""

from __future__ import annotations

import gzip
import json
import threading
import zlib
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pytest

from streamcodec import EncodedMessage, compress_message
from streamcodec.server import ServerOptions
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service
from streamcodec.service.request import inference
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import GET_LIVE, Answer, Wire, floats, head, infer_request, post
from tests.waiting import until

APP = "https://app.example"
ORIGIN = f"Origin: {APP}"
ASKED = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: inference-header-content-length")
Address = tuple[str, int]


def _service() -> Service:
    return Service(models(), cors_origins=[APP], compresses=True, classifies=True)


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def featured(request: pytest.FixtureRequest) -> Iterator[Address]:
    options = ServerOptions(read_timeout=3.0, idle_timeout=60)
    with server_here(_service(), options, backend=request.param) as (_, address):
        yield address


def _is_readable(answer: Answer) -> bool:
    """Whether a browser shows the answer to the page."""
    return (
        answer.fields.get("access-control-allow-origin") == APP
        and "inference-header-content-length" in answer.fields["access-control-expose-headers"].lower()
        and "Origin" in answer.fields["vary"].split(", ")
    )


# Compression


@pytest.mark.parametrize(("encoding", "wbits"), [("gzip", 31), ("deflate", 15)])
def test_compressed_answer(featured: Address, encoding: str, wbits: int) -> None:
    with Wire(featured) as wire:
        plain = wire.send(infer_request(count=5000)).response()
        answer = wire.send(infer_request("identity", f"Accept-Encoding: {encoding}", count=5000)).response()
        assert floats(wire.send(infer_request()).response()) == [0, 1, 2, 3]
    assert "content-encoding" not in plain.fields
    assert answer.fields["content-encoding"] == encoding
    assert zlib.decompress(answer.body, wbits) == plain.body
    assert len(answer.body) < len(plain.body)
    assert answer.fields["inference-header-content-length"] == plain.fields["inference-header-content-length"]
    assert "Accept-Encoding" in answer.fields["vary"]


def test_compressed_both_ways(featured: Address) -> None:
    request = infer_request(count=5000)
    head_part, _, body = request.partition(b"\r\n\r\n")
    kept = [line for line in head_part.decode().split("\r\n") if not line.startswith("Content-Length")]
    body = gzip.compress(body)
    lines = [*kept, "Content-Encoding: gzip", "Accept-Encoding: gzip", f"Content-Length: {len(body)}", "", ""]
    with Wire(featured) as wire:
        answer = wire.send("\r\n".join(lines).encode(), body).response()
    start = int(answer.fields["inference-header-content-length"])
    assert np.array_equal(np.frombuffer(gzip.decompress(answer.body)[start:], "<f4"), np.arange(5000))


def test_small_answers_errors_and_documents_are_plain(featured: Address) -> None:
    with Wire(featured) as wire:
        for request in (
            infer_request("identity", "Accept-Encoding: gzip"),
            head("/v2", "Accept-Encoding: gzip", method="GET"),
            head(f"/v2/models/{'n' * 5000}", "Accept-Encoding: gzip", method="GET"),
        ):
            assert "content-encoding" not in wire.send(request).response().fields


def test_the_model_and_zlib_work_in_the_same_thread_and_not_in_the_event_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: dict[str, int] = {}

    def predict(request: InferenceRequest) -> Mapping[str, npt.ArrayLike]:
        threads["model"] = threading.get_ident()
        return request.inputs

    def compress(message: EncodedMessage, encoding: str) -> EncodedMessage:
        threads["zlib"] = threading.get_ident()
        return compress_message(message, encoding)

    def begin(_: object) -> str | None:
        threads["loop"] = threading.get_ident()
        return "gzip"

    monkeypatch.setattr(inference, "compress_message", compress)
    monkeypatch.setattr(inference, "accepted_encoding", begin)
    service = Service(ModelRegistry.of([Model(name="m", predict=predict)]), compresses=True)
    with server_here(service) as (_, address), Wire(address) as wire:
        assert wire.send(infer_request("m", count=5000)).response().fields["content-encoding"] == "gzip"
    assert threads["model"] == threads["zlib"] != threads["loop"]


# CORS


def test_preflight_and_request(featured: Address) -> None:
    target = "/v2/models/identity/infer"
    with Wire(featured) as wire:
        for _ in range(2):
            answer = wire.send(head(target, ORIGIN, *ASKED, method="OPTIONS")).response()
            assert (answer.status, answer.body) == (204, b"")
            assert "content-length" not in answer.fields
            assert answer.fields["access-control-allow-methods"] == "POST"
            assert "inference-header-content-length" in answer.fields["access-control-allow-headers"].lower()
            assert _is_readable(answer)
            answer = wire.send(infer_request("identity", ORIGIN)).response()
            assert floats(answer) == [0, 1, 2, 3]
            assert _is_readable(answer)


def test_preflight_of_another_origin(featured: Address) -> None:
    with Wire(featured) as wire:
        fields = ("Origin: https://other.example", *ASKED)
        answer = wire.send(head("/v2/models/identity/infer", *fields, method="OPTIONS")).response()
        assert (answer.status, "access-control-allow-origin" in answer.fields) == (403, False)
        assert wire.send(GET_LIVE).response().status == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (infer_request("nobody", ORIGIN), 404),
        (infer_request("break", ORIGIN), 500),
        (post(b"{", ORIGIN), 400),
        (post(b"x", ORIGIN, "Inference-Header-Content-Length: -1"), 400),
        (post(b"x", ORIGIN, "Content-Encoding: br"), 415),
        (post(b"x" * 20, ORIGIN, "Content-Encoding: gzip"), 400),
        (head("/v2", ORIGIN, method="DELETE"), 405),
        (head("/v2/models/identity/infer", ORIGIN, "Content-Length: 9") + b"short", 408),
    ],
    ids=["unknown", "broken model", "bad JSON", "bad field", "bad encoding", "damaged", "method", "too slow"],
)
def test_page_can_read_every_error(featured: Address, request_bytes: bytes, status: int) -> None:
    with Wire(featured) as wire:
        answer = wire.send(request_bytes).response()
    assert answer.status == status
    assert answer.error
    assert _is_readable(answer)


def test_page_can_read_that_the_server_is_full() -> None:
    with server_here(_service(), ServerOptions(max_connections=1)) as (server, address), Wire(address) as first:
        first.send(GET_LIVE, infer_request()[:-1]).response()  # it is busy from now on
        until(lambda: server.requests_in_progress == 1)
        with Wire(address) as second:
            answer = second.send(infer_request("identity", ORIGIN)).response()
    assert answer.status == 503
    assert _is_readable(answer)
    assert "retry-after" in answer.fields["access-control-expose-headers"].lower()


def test_a_head_that_cannot_be_read_names_no_origin(featured: Address) -> None:
    with Wire(featured) as wire:
        answer = wire.send(f"GET /v2 HTTP/1.1\r\nHost: x\r\n{ORIGIN}\r\nno field\r\n\r\n".encode()).response()
    assert (answer.status, "access-control-allow-origin" in answer.fields) == (400, False)
    assert "Origin" in answer.fields["vary"]


def test_origin_of_one_request_is_not_that_of_the_next(featured: Address) -> None:
    with Wire(featured) as wire:
        assert _is_readable(wire.send(infer_request("identity", ORIGIN)).response())
        assert "access-control-allow-origin" not in wire.send(infer_request()).response().fields
        answer = wire.send(b"no HTTP at all\r\n\r\n").response()
        assert (answer.status, "access-control-allow-origin" in answer.fields) == (400, False)


def test_switched_off_nothing_changes(address: Address) -> None:
    target = "/v2/models/identity/infer"
    with Wire(address) as wire:
        answer = wire.send(head(target, ORIGIN, *ASKED, method="OPTIONS")).response()
        assert (answer.status, answer.fields["allow"]) == (405, "POST")
        other = wire.send(infer_request("identity", ORIGIN, "Accept-Encoding: gzip", count=5000)).response()
        assert floats(other) == list(range(5000))
    for fields in (answer.fields, other.fields):
        assert not [name for name in fields if name.startswith("access-control") or name == "vary"]


# Classification and the headerless form


def test_classification(featured: Address) -> None:
    document = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [4], "data": [1, 5, 10, 4]}],
        "outputs": [{"name": "x", "parameters": {"classification": 2}}],
    }
    with Wire(featured) as wire:
        answer = wire.send(post(json.dumps(document).encode())).response()
        assert answer.document["outputs"][0]["data"] == ["10.000000:2", "5.000000:1"]
        metadata = wire.send(head("/v2", method="GET")).response().document
    assert metadata["extensions"] == ["binary_tensor_data", "model_configuration", "statistics", "classification"]


def _headerless() -> bytes:
    """What some clients send: JSON, then tensors, and nothing that says where the one ends."""
    entry = {"name": "x", "datatype": "FP32", "shape": [4], "parameters": {"binary_data_size": 16}}
    document = {"inputs": [entry], "parameters": {"binary_data_output": True}}
    return post(json.dumps(document).encode() + np.arange(4, dtype="<f4").tobytes())


def test_headerless_form_is_read_unless_that_is_switched_off(featured: Address) -> None:
    with Wire(featured) as wire:
        assert floats(wire.send(_headerless()).response()) == [0, 1, 2, 3]
    with server_here(Service(models(), allow_headerless=False)) as (_, address), Wire(address) as wire:
        assert wire.send(_headerless()).response().status == 400
        assert floats(wire.send(infer_request()).response()) == [0, 1, 2, 3]
