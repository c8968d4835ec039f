"""Fields of one hop: what `Connection` names is not passed on. What says where a body ends is, whatever it names."""

from __future__ import annotations

from http.client import HTTPConnection

import numpy as np
import pytest

from streamcodec import Tensor, encode_request
from tests.client.scripted import scripted
from tests.guard.serving import guarding
from tests.server.models import models
from tests.server.programs import server_here
from tests.server.wire import Wire, head

EVIL = b"0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nPOISON"
BODY_FIELDS = {
    "Content-Type": "application/octet-stream",
    "Content-Encoding": "identity",
    "Inference-Header-Content-Length": "7",
    "Content-Length": str(len(EVIL)),
}
NAMED = [
    *BODY_FIELDS,
    "content-length",
    "keep-alive , content-Length,,x-y",
    "Transfer-Encoding",
    ", ".join(BODY_FIELDS),
]


def asked(address: tuple[str, int], count: int, path: str = "/v2/models/m") -> list[tuple[int, dict[str, str], bytes]]:
    """Ask several times over one connection; return statuses, fields and bodies."""
    connection = HTTPConnection(*address, timeout=10)
    answers = []
    for _ in range(count):
        connection.request("GET", path)
        answer = connection.getresponse()
        answers.append((answer.status, dict(answer.headers.items()), answer.read()))
    connection.close()
    return answers


MEDIA_TYPES = [
    "application/vnd.sagemaker-triton.binary+json;json-header-size=",
    "application/vnd.vertex-ai-triton.binary+json;json-header-size=",
]


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
@pytest.mark.parametrize("is_raw", [False, True])
def test_a_server_that_knows_no_such_media_type_reads_the_same_message(media_type: str, is_raw: bool) -> None:
    """Else a body that is raw for the guard, and so not checked, would be JSON for the server behind."""
    message = encode_request([Tensor(name="x", array=np.zeros(4, np.float32))])
    body = b"[" * 1000 if is_raw else b"".join(bytes(part) for part in message.buffers)
    length = 0 if is_raw else message.header_length or 0
    with (
        scripted([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"] * 3) as server,
        guarding(server.url) as guard,
    ):
        for _ in range(3):
            connection = HTTPConnection(*guard, timeout=60)
            fields = {"Content-Type": f"{media_type}{length}"}
            connection.request("POST", "/v2/models/m/infer", body, fields)
            assert connection.getresponse().status == 200
            connection.close()
        for request in server.requests:
            assert b"\r\ninference-header-content-length: %d\r\n" % length in bytes(request).lower()


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/models/m"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("Inference-Header-Content-Length", "x"), ("Content-Type", f"{MEDIA_TYPES[0]}x")],
)
def test_a_length_that_cannot_be_read_is_refused_whatever_is_asked(
    path: str, method: str, name: str, value: str
) -> None:
    with guarding("http://127.0.0.1:1") as guard:  # nobody is asked: that would be a 502
        for _ in range(3):
            connection = HTTPConnection(*guard, timeout=60)
            connection.request(method, path, headers={name: value})
            assert connection.getresponse().status == 400
            connection.close()


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_an_answer_is_framed_as_it_is_sent(named: str, is_chunked: bool) -> None:
    fields = BODY_FIELDS | {"X-Y": "z", "Connection": named}
    body = EVIL
    if is_chunked:
        fields |= {"Transfer-Encoding": "chunked"}
        del fields["Content-Length"]
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVIL), EVIL)
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with (
        scripted([b"HTTP/1.1 200 OK\r\n" + lines.encode() + b"\r\n" + body] * 5) as server,
        guarding(server.url) as guard,
    ):
        for status, given, content in asked(guard, 5):
            assert (status, content) == (200, EVIL)
            names = {name.lower(): value for name, value in given.items()}
            for name, value in BODY_FIELDS.items():
                assert names.get(name.lower()) == (None if is_chunked and name == "Content-Length" else value)
            assert ("x-y" in names) is ("x-y" not in named)
            assert "connection" not in names


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        b"HTTP/1.1 205 Reset Content\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    ],
)
def test_an_answer_without_content_ends_where_its_status_says(answer: bytes) -> None:
    answers_behind = [answer, answer, answer, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]
    # After a 204 that announces a body, which may follow, the guard does not use the connection again.
    script = [[step] for step in answers_behind] if b" 204 " in answer else [answers_behind]
    with scripted(*script) as server, guarding(server.url) as guard:
        answers = asked(guard, 4)
    assert [status for status, _, _ in answers] == [int(answer.split()[1])] * 3 + [200]
    assert [content for _, _, content in answers] == [b"", b"", b"", b"ok"]


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize("media_type", [None, "application/vnd.vertex-ai-triton.binary+json"])
def test_a_request_is_read_behind_the_guard_as_the_guard_has_read_it(named: str, media_type: str | None) -> None:
    message = encode_request([Tensor(name="x", array=np.arange(4, dtype=np.float32))])
    fields = message.headers if media_type is None else message.headers_with(media_type)
    lines = [f"{name}: {value}" for name, value in fields]
    request = b"".join((head("/v2/models/identity/infer", *lines, f"Connection: {named}"), *message.buffers))
    with (
        server_here(models()) as (_, (host, port)),
        guarding(f"http://{host}:{port}") as guard,
        Wire(guard) as wire,
    ):
        for _ in range(3):
            answer = wire.send(request).response()
            assert answer.status == 200, answer.body
            assert answer.document["outputs"][0]["data"] == [0.0, 1.0, 2.0, 3.0]
