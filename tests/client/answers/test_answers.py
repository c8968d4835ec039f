"""Answers of other servers: sloppy ones are understood, wrong and hostile ones are refused, and nothing hangs."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import time

import numpy as np
import pytest

from streamcodec import LocalProtocolError, RemoteProtocolError, Tensor, encode_response
from streamcodec.client import AsyncClient, Client, ServerError
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import Step, hung_up, response, scripted, stalling
from tests.server.wire import chunked
from tests.waiting import until

VALUES = np.arange(3, dtype="<f4")
MESSAGE = encode_response([Tensor(name="y", array=VALUES)], model_name="m")
BODY = b"".join(MESSAGE.buffers)
IHCL = f"Inference-Header-Content-Length: {MESSAGE.header_length}"
GOOD = response(BODY, IHCL)
JSON = b'{"model_name":"m","outputs":[{"name":"y","datatype":"FP32","shape":[3],"data":[0,1,2]}]}'
CHUNKED = "Transfer-Encoding: chunked"
INPUTS = {"x": [1.0]}


def _head(body: bytes, *fields: str) -> bytes:
    """Make a response whose framing the fields say, or the end of the connection."""
    return response(body, *fields, is_counted=False)


SLOPPY: dict[str, bytes] = {
    "as ours": GOOD,
    "lower case": response(BODY, IHCL.lower()),
    "JSON by its type": response(BODY, IHCL, "Content-Type: application/json"),
    "chunked": _head(chunked(BODY, [1, 2, 100]), IHCL, CHUNKED),
    "until the end of the connection": _head(BODY, IHCL),
    "gzip": response(gzip.compress(BODY), IHCL, "Content-Encoding: gzip"),
    "gzip, chunked": _head(chunked(gzip.compress(BODY), [9] * 100), IHCL, CHUNKED, "Content-Encoding: gzip"),
    "JSON where binary was asked for": response(JSON),
    "JSON until the end of the connection": _head(JSON),
    "null members": response(JSON.replace(b'"model_name":"m"', b'"id":null,"parameters":null')),
    "another 200": response(BODY, IHCL, status="201 Created"),
    "100 Continue before it": b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD,
    "HTTP/1.0": GOOD.replace(b"HTTP/1.1", b"HTTP/1.0"),
}


@KINDS
@pytest.mark.parametrize("case", SLOPPY)
def test_sloppy_answers_are_understood(kind: Kind, case: str) -> None:
    with scripted([SLOPPY[case]], [GOOD]) as server, kind.client(server.url) as client:
        assert np.array_equal(client.infer("m", INPUTS)["y"], VALUES)
        assert server.has_closed()
        assert np.array_equal(client.infer("m", INPUTS)["y"], VALUES)
    assert server.accepted == 2, "the server closed, so the client made a new connection"


@KINDS
def test_nan_and_empty_outputs(kind: Kind) -> None:
    entry = '{"name":"y","datatype":"FP64","shape":[3],"data":[NaN,Infinity,-Infinity]}'
    empty = '{"name":"e","datatype":"FP64","shape":[0]},{"name":"f","datatype":"BYTES","shape":[0,2],"data":[]}'
    with scripted([response(f'{{"outputs":[{entry},{empty}]}}'.encode())]) as server, kind.client(server.url) as client:
        outputs = client.infer("m", INPUTS).outputs
    assert np.array_equal(outputs["y"], [np.nan, np.inf, -np.inf], equal_nan=True)
    assert (outputs["e"].shape, outputs["f"].shape) == ((0,), (0, 2))


def _binary(size: int, *, shape: object = None, count: int = 12, declared: int | None = None) -> bytes:
    entry = {"name": "y", "datatype": "FP32", "shape": shape or [3], "parameters": {"binary_data_size": size}}
    text = json.dumps({"outputs": [entry]}).encode()
    return response(text + bytes(count), f"Inference-Header-Content-Length: {declared or len(text)}")


HOSTILE: dict[str, bytes] = {
    "not HTTP": b"hello\r\n\r\n",
    "TLS alert": b"\x15\x03\x01\x00\x02\x02\x0a",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000,
    "two lengths": _head(BODY, IHCL, "Content-Length: 5", "Content-Length: 6"),
    "length and chunked": response(chunked(BODY, []), IHCL, CHUNKED),
    "101 Switching Protocols": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "no answer": b"",
    "cut in the head": GOOD[:20],
    "cut in the header": GOOD[:150],
    "cut in the tensor": GOOD[:-1],
    "cut in a chunk": _head(chunked(BODY, [10] * 9)[:-20], IHCL, CHUNKED),
    "cut without length": _head(BODY[:-1], IHCL),
    "cut gzip": response(gzip.compress(BODY)[:-1], IHCL, "Content-Encoding: gzip"),
    "damaged gzip": response(b"\x1f\x8b" + bytes(50), IHCL, "Content-Encoding: gzip"),
    "an unknown encoding": response(BODY, IHCL, "Content-Encoding: br"),
    "a bomb": response(gzip.compress(bytes(100 << 20)), "Content-Encoding: gzip"),
    "no content": response(b"", status="204 No Content"),
    "an empty body": response(b""),
    "a page": response(b"<html>Welcome!</html>"),
    "JSON that is no answer": response(b'{"ok": true}'),
    "JSON of the wrong kind": response(b"[]"),
    "deep JSON": response(b"[" * 900_000),
    "trailing bytes": _binary(12, count=13),
    "missing bytes": _binary(12, count=11),
    "size and shape differ": _binary(16, count=16),
    "a negative size": _binary(-12),
    "a petabyte": _binary(1 << 50, shape=[1 << 48]),
    "a shape that overflows": _binary(12, shape=[1 << 62, 4]),
    "a header length of nonsense": response(BODY, "Inference-Header-Content-Length: 0x10"),
    "a header length of 0": response(BODY, "Inference-Header-Content-Length: 0"),
    "a header length beyond the body": response(BODY, f"Inference-Header-Content-Length: {len(BODY) + 1}"),
    "two header lengths": response(BODY, IHCL, IHCL),
    "a length of 10 EB": _head(BODY, IHCL, f"Content-Length: {10**19}"),
    "an unknown datatype": response(JSON.replace(b"FP32", b"FP31")),
    "outputs repeated": response(JSON.replace(b"]}]", b"]},%b]" % JSON[28:-2])),
    "values that do not fit": response(JSON.replace(b"[0,", b'["0",')),
}


@KINDS
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_answers_are_refused_and_the_next_call_is_fine(kind: Kind, case: str) -> None:
    with scripted([HOSTILE[case]], [GOOD]) as server, kind.client(server.url) as client:
        with pytest.raises((RemoteProtocolError, ConnectionError)) as caught:
            client.infer("m", INPUTS)
        assert not isinstance(caught.value, ServerError)
        assert np.array_equal(client.infer("m", INPUTS)["y"], VALUES)
    assert server.accepted == 2


ERRORS: dict[str, tuple[bytes, str]] = {
    "as ours": (b'{"error":"the reason"}', "the reason"),
    "as FastAPI's": (b'{"detail":"Not Found"}', '{"detail":"Not Found"}'),
    "text": (b"Bad Gateway", "Bad Gateway"),
    "nothing": (b"", "no further text"),
    "not UTF-8": (b"\xff\xfe", "\ufffd\ufffd"),
    "an object in error": (b'{"error":{"a":1}}', '{"error":{"a":1}}'),
    "null in error": (b'{"error":null}', '{"error":null}'),
    "an array": (b"[1]", "[1]"),
    "deep JSON": (b"[" * 900_000, "[" * 500),
    "long text": (b"x" * (3 << 20), "x" * 500),
    "control characters": (b'{"error":"a\\u0000b"}', "a\0b"),
}


@KINDS
@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.parametrize("framing", ["length", "chunked", "closing"])
def test_errors_of_all_kinds_of_servers(kind: Kind, case: str, framing: str) -> None:
    body, text = ERRORS[case]
    status = "502 Bad Gateway"
    answer = {
        "length": response(body, status=status),
        "chunked": response(chunked(body, []), CHUNKED, status=status, is_counted=False),
        "closing": response(body, status=status, is_counted=False),
    }[framing]
    with scripted([answer], [answer]) as server, kind.client(server.url) as client:
        for call in (lambda: client.infer("m", INPUTS), lambda: client.call("server_metadata")):
            with pytest.raises(ServerError) as caught:
                call()
            assert (caught.value.status, caught.value.text) == (502, text)
            assert server.has_closed()


@KINDS
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"7", b"[" * 200_000, b'{"a":' + b"1" * 5000 + b"}"])
def test_documents_that_are_none(kind: Kind, body: bytes) -> None:
    refused = pytest.raises(RemoteProtocolError, match="not a JSON object")
    with scripted([response(body)]) as server, kind.client(server.url) as client, refused:
        client.call("server_metadata")


@KINDS
def test_one_connection_for_many_calls(kind: Kind) -> None:
    error = response(b'{"error":"no"}', status="404 Not Found")
    with scripted([GOOD, response(b"{}"), error, GOOD]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        assert client.call("server_metadata") == {}
        assert not client.call("is_model_ready", "m")
        client.infer("m", INPUTS)
    assert server.accepted == 1
    assert server.requests[0].startswith(b"POST /v2/models/m/infer HTTP/1.1\r\n")
    assert server.requests[1].startswith(b"GET /v2 HTTP/1.1\r\n")


@KINDS
@pytest.mark.parametrize("last", [response(BODY, IHCL, "Connection: close"), GOOD + b"HTTP/1.1 200 OK\r\n"])
def test_a_connection_that_was_ended_or_holds_more_than_the_answer_is_not_used_again(kind: Kind, last: bytes) -> None:
    with scripted([last], [GOOD]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        assert server.has_closed()
        client.infer("m", INPUTS)
    assert server.accepted == 2


@KINDS
def test_a_failure_whose_words_cannot_be_read_is_still_one(kind: Kind) -> None:
    error = response(b"?", "Content-Encoding: br", status="429 Too Many Requests")
    with scripted([error], [GOOD]) as server, kind.client(server.url) as client:
        with pytest.raises(ServerError, match=r"429: no text that can be read: .* 'br'"):
            client.infer("m", INPUTS)
        assert server.has_closed()
        client.infer("m", INPUTS)


@KINDS
@pytest.mark.parametrize("status", ["500 Internal Server Error", "503 Service Unavailable"])
def test_after_a_failure_of_the_server_its_connection_is_not_used_again(kind: Kind, status: str) -> None:
    # uvicorn, below KServe, closes it a moment later without having said so.
    with (
        scripted([response(b'{"error":"no"}', status=status), b""], [GOOD]) as server,
        kind.client(server.url) as client,
    ):
        with pytest.raises(ServerError):
            client.infer("m", INPUTS)
        client.infer("m", INPUTS)
    assert server.accepted == 2


def _reset(sock: socket.socket) -> None:
    sock.recv(1000)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@KINDS
@pytest.mark.parametrize("end", ["/v2", "/v2/"])
def test_a_url_that_ends_in_v2(kind: Kind, end: str) -> None:
    missing = response(b"", status="404 Not Found")
    with scripted([missing, missing]) as server, kind.client(server.url + end) as client:
        for call in (lambda: client.infer("identity", INPUTS), lambda: client.call("model_metadata", "identity")):
            with pytest.raises(ServerError, match="404") as caught:
                call()
            said = "the URL of the server ends in /v2, which every path begins with: leave it off"
            assert caught.value.__notes__ == [said]


@KINDS
def test_a_server_that_breaks_the_connection_after_its_refusal_is_still_heard(kind: Kind) -> None:
    refusal = response(b'{"error":"too large for me"}', status="413 Content Too Large")

    def refuse_and_reset(sock: socket.socket) -> None:
        """Answer at the first bytes, wait for the client to have read them, and break the connection."""
        sock.recv(1000)
        sock.sendall(refusal)
        until(lambda: client.client.received_bytes == len(refusal))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with scripted([refuse_and_reset], [GOOD]) as server, kind.client(server.url) as client:
        with pytest.raises(ServerError, match="413: too large for me"):
            client.infer("m", {"x": np.zeros(16 << 20, np.uint8)})
        client.infer("m", INPUTS)


@KINDS
def test_a_server_that_breaks_the_connection_without_a_word(kind: Kind) -> None:
    with scripted([_reset], [GOOD]) as server, kind.client(server.url) as client:
        with pytest.raises(ConnectionError):
            client.infer("m", {"x": np.zeros(16 << 20, np.uint8)})
        client.infer("m", INPUTS)


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize(
    "steps",
    [[b"", hung_up], [GOOD[:30], hung_up], [GOOD[:-1], hung_up], []],
    ids=["no answer", "half a head", "most of the body", "not even reading"],
)
def test_time_without_progress_is_limited(kind: Kind, steps: list[Step]) -> None:
    with scripted(steps) if steps else stalling() as server, kind.client(server.url, timeout=0.2) as client:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            client.infer("m", {"x": np.zeros(16 << 20, np.uint8)})
        assert time.monotonic() - began > 0.1


@KINDS
def test_nobody_is_there(kind: Kind) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with kind.client(f"http://127.0.0.1:{port}") as client, pytest.raises(ConnectionRefusedError):
        client.infer("m", INPUTS)
    with kind.client("http://nobody.invalid") as client, pytest.raises(OSError, match=r"."):
        client.call("is_server_live")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "localhost",
        "ftp://127.0.0.1",
        "http://",
        "http://:8000",
        "http://127.0.0.1:eight",
        "http://127.0.0.1:70000",
        "http://[::1",
        "http://a..b",
        f"http://{'a' * 70}",
        "http://127.0.0.1/?x",
        "http://127.0.0.1/#x",
    ],
)
def test_urls_that_are_none(url: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(LocalProtocolError):
            kind(url)


@pytest.mark.parametrize("path", ["/a b", "/ä", "/\x7f"])
def test_paths_that_are_none(path: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(LocalProtocolError):
            kind("http://127.0.0.1:1" + path)


@KINDS
def test_a_service_below_the_root(kind: Kind) -> None:
    with scripted([response(b"{}")]) as server, kind.client(server.url + "/gateway/one/") as client:
        client.call("server_metadata")
    assert server.requests[0].startswith(b"GET /gateway/one/v2 HTTP/1.1\r\n")
