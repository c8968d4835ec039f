"""Smuggling: what stands behind a request that is refused is not a request, and what a client says is never a head.

Real servers, on both event loops; what each message is refused for is the corpus's business.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator

import pytest

from streamcodec.service import Service
from tests.corpus.reading import Case, read_corpus
from tests.corpus.running import request_of
from tests.corpus.serving import models as corpus_models
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import TIMEOUT, Answer, Wire, head, post

Address = tuple[str, int]
SMUGGLED = b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
FATAL = ("code=invalid-http ", "code=ambiguous-framing ", "code=limit-exceeded ", "code=truncated ")
"""With these a connection ends, but where it is only that a well formed target names nothing."""

CASES = [
    case
    for case in read_corpus()
    if case.file in {"smuggling.md", "heads.md", "http.md"} and case.kind == "http-request" and not case.options
]
REFUSED = [
    case
    for case in CASES
    if case.outcome == "refused" and case.expected[0].startswith(FATAL) and "service/routes" not in case.rules
]
READ = [case for case in CASES if case.outcome != "refused" and "100-continue" not in case.message.lower()]


def _talk(address: Address, data: bytes) -> bytes:
    """Say all that there is to say, and hear all that is answered."""
    with socket.create_connection(address, TIMEOUT) as sock:
        heard = b""
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while chunk := sock.recv(1 << 16):
                heard += chunk
        except ConnectionError:  # a server that closes on bytes that it has not read resets the connection
            pass
        return heard


def _statuses(heard: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", heard)]


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def serving_corpus(request: pytest.FixtureRequest) -> Iterator[Address]:
    """The address of a server with the models of the corpus, on each event loop."""
    with server_here(corpus_models(is_inline=False), backend=request.param) as (_, address):
        yield address


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_stands_behind_a_refused_request_is_not_answered(serving_corpus: Address, case: Case) -> None:
    heard = _talk(serving_corpus, request_of(case) + SMUGGLED)
    (status,) = _statuses(heard)
    assert 400 <= status < 600
    assert b"Connection: close\r\n" in heard or b"the connection ended" in heard
    assert b'"ready"' not in heard


@pytest.mark.parametrize("case", READ, ids=str)
def test_what_stands_behind_a_request_that_is_read_is_the_next_one(serving_corpus: Address, case: Case) -> None:
    """Neither more nor less: both ends agree where the first one ends."""
    is_last = "HTTP/1.0" in case.message or "Connection: close" in case.message or "GET /v2 HTTP/1.1⟨" in case.message
    heard = _talk(serving_corpus, request_of(case) + SMUGGLED)
    assert len(_statuses(heard)) == (heard.count(b"HTTP/1.1 ") if is_last else 2)
    assert is_last or b'"ready"' in heard


def test_there_are_enough_of_both_kinds() -> None:
    assert len(REFUSED) > 150
    assert len(READ) > 50


# Response splitting

LINES = {
    "a line end": "a\r\nSet-Cookie: b=c",
    "a line feed": "a\nSet-Cookie: b=c",
    "a carriage return": "a\rSet-Cookie: b=c",
    "a response": "\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "the line ends of Unicode": "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg",
    "letters whose last bytes are line ends": "\u560d\u560aSet-Cookie: b=c",
    "NUL": "a\0b",
    "percent-encoded": "%0d%0aSet-Cookie: b=c",
    "markup": "<script>alert(1)</script>",
}
FIELDS = {
    "content-type", "content-length", "inference-header-content-length", "connection", "allow", "accept-encoding",
    "access-control-allow-origin", "access-control-expose-headers", "date", "vary",
}  # fmt: skip


def _assert_plain(answer: Answer) -> None:
    """Nothing of what was sent is in the head."""
    assert set(answer.fields) <= FIELDS
    text = "\n".join(f"{name}: {value}" for name, value in answer.fields.items())
    assert text.isascii()
    assert "cookie" not in text.lower()
    assert answer.status == 200 or answer.fields["content-type"] == "application/json"


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
@pytest.mark.parametrize("form", ["binary", "json"])
def test_ids_and_names_come_back_in_bodies_only(address: Address, text: str, form: str) -> None:
    tensor = {"name": text, "datatype": "INT8", "shape": [1], "data": [1]}
    document = {"id": text, "inputs": [tensor], "parameters": {"binary_data_output": form == "binary", text: text}}
    with Wire(address) as wire:
        answer = wire.send(post(json.dumps(document).encode())).response()
        _assert_plain(answer)
        text_length = int(answer.fields.get("inference-header-content-length", len(answer.body)))
        told = json.loads(answer.body[:text_length])
        assert (told["id"], told["outputs"][0]["name"]) == (text, text)


@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_errors_quote_in_bodies_only(address: Address, text: str) -> None:
    quoted = "".join(f"%{byte:02x}" for byte in text.encode())
    good = {"name": "x", "datatype": "INT8", "shape": [1], "data": [1]}
    documents = [
        {"inputs": [{**good, "datatype": text}]},
        {"inputs": [{**good, "name": text, "shape": [2]}]},
        {"inputs": [good, {**good, "name": text}, {**good, "name": text}]},
        {"inputs": [good], "outputs": [{"name": text}]},
        {"inputs": [{**good, "parameters": {"binary_data_size": text}}]},
        {"inputs": [good], text: 1, "id": [text]},
    ]
    requests = [
        head(f"/v2/models/{quoted}", method="GET"),
        head(f"/v2/models/identity/versions/{quoted}", method="GET"),
        head(f"/v2/{quoted}", method="GET"),
        post(b"{}", model=quoted),
        *(post(json.dumps(document).encode()) for document in documents),
        *(post(json.dumps(document).encode(), model="declared") for document in documents),
    ]
    with Wire(address) as wire:
        for request in requests:
            answer = wire.send(request).response()
            _assert_plain(answer)
            assert answer.status == 200 or answer.error


def test_a_method_comes_back_in_the_body_only(address: Address) -> None:
    with Wire(address) as wire:
        answer = wire.send(head("/v2", method="!#$%&'*+-.^_`|~")).response()
        _assert_plain(answer)
        assert answer.status == 405


@pytest.mark.parametrize("origin", ["https://a.example", "a\tb", "\u00e9", "null", "https://a.example, https://b"])
def test_an_origin_that_is_repeated_was_a_value_of_a_field_already(origin: str) -> None:
    service = Service(models(), cors_origins=["https://a.example"])
    with server_here(service) as (_, address), Wire(address) as wire:
        answer = wire.send(head("/v2", f"Origin: {origin}", method="GET")).response()
    assert answer.fields.get("access-control-allow-origin") in {None, "https://a.example"}
