"""Documents: the JSON of extensions is checked before it is passed on, in every framing."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator

import pytest

from streamcodec import MessageError
from streamcodec.guard import GUARD_LIMITS
from streamcodec.guard.rules.documents import check_document
from tests.client.scripted import scripted
from tests.guard.serving import guarding, nobody
from tests.server.wire import Wire, chunked, head

GENERATE = "/v2/models/m/generate"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
DEEP = b'{"x":' + b"[" * 100_000 + b"1" + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"text_input":"[[[","parameters":{"stream":false,"stop":["a","b"],"n":null}}',
        b'{"INPUT0":[[1,2.5],[3,-4e9]],"flag":true}',
    ],
)
def test_inputs(text: bytes) -> None:
    for _ in check_document(bytearray(text), GUARD_LIMITS, is_generate=True):
        pass


@pytest.mark.parametrize(
    ("text", "code", "status"),
    [
        (b"", "invalid-json", 400),
        (b"nonsense", "invalid-json", 400),
        (b"[]", "invalid-header", 400),
        (b'{"a":1,"a":2}', "duplicate-key", 400),
        (b'{"a":NaN}', "non-finite-number", 400),
        (b'{"a":"\xff"}', "invalid-utf8", 400),
        (b'{"a":[{"b":1}]}', "invalid-member", 400),
        (b'{"parameters":{"a":{"b":1}}}', "invalid-member", 400),
        (b'{"a":' + b"[" * 130 + b"]" * 130 + b"}", "limit-exceeded", 400),
        (b'{"a":[' + b"1," * 4096 + b"1]}", "limit-exceeded", 413),
        (b'{"a":"' + b'\\"' * 70_000 + b'",' + b'"a":[],' * 4096 + b'"b":1}', "limit-exceeded", 413),
    ],
)
def test_what_is_refused(text: bytes, code: str, status: int) -> None:
    with pytest.raises(MessageError) as caught:
        for _ in check_document(bytearray(text), GUARD_LIMITS, is_generate=True):
            pass
    assert (caught.value.code, caught.value.status_hint) == (code, status)
    assert "header" not in str(caught.value)


def test_other_documents_may_be_missing_and_have_any_values() -> None:
    for text in (b"", b'{"parameters":{"config":{"a":[{"b":{}}]}}}'):
        assert len([*check_document(bytearray(text), GUARD_LIMITS, is_generate=False)]) == bool(text)
    with pytest.raises(MessageError):
        for _ in check_document(bytearray(b'"x"'), GUARD_LIMITS, is_generate=False):
            pass


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def alone(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """A guard with nobody behind it."""
    with guarding(nobody(), allowed=["all"], backend=request.param) as guard:
        yield guard


def _framed(path: str, body: bytes) -> list[bytes]:
    packed = gzip.compress(body, mtime=0)
    return [
        head(path, f"Content-Length: {len(body)}") + body,
        head(path, "Transfer-Encoding: chunked") + chunked(body, [1, 7000]),
        head(path, f"Content-Length: {len(packed)}", "Content-Encoding: gzip") + packed,
    ]


@pytest.mark.parametrize(
    "path", [GENERATE, "/v2/models/m/generate_stream", "/v2/repository/index", "/v2/logging", "/v2/trace/setting"]
)
def test_depth_does_not_reach_the_server_behind(path: str, alone: tuple[str, int]) -> None:
    for request in _framed(path, DEEP):
        with Wire(alone) as wire:
            answer = wire.send(request).response()
            assert answer.status in {400, 413}
            assert "the body" in answer.error


def test_a_long_document(alone: tuple[str, int]) -> None:
    for request in _framed(GENERATE, b'{"a":"%b"}' % (b"x" * (256 << 10))):
        with Wire(alone) as wire:
            assert wire.send(request).response().status == 413


def test_what_is_correct_passes_without_its_compression() -> None:
    body = b'{"text_input":"hello"}'
    came: list[bytes] = []

    def answer(sock: socket.socket) -> None:
        data = b""
        while body not in data:
            data += sock.recv(1 << 16)
        came.append(data)
        sock.sendall(OK)

    requests = _framed(GENERATE, body)
    with scripted([answer] * len(requests)) as server, guarding(server.url, allowed=["generate"]) as guard:
        for request in requests:
            with Wire(guard) as wire:
                assert wire.send(request).response().body == b"{}"
    for data in came:
        assert data.startswith(b"POST /v2/models/m/generate HTTP/1.1\r\n")
        assert b"Content-Length: 22\r\n" in data
        assert b"gzip" not in data
        assert b"chunked" not in data
