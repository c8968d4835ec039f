"""Plain heads against h11: what `plainheads` reads is exactly what the ordinary way makes of the same bytes.

`python -m tests.http.heads.plainheads 1000000` compares as many mutants of heads, and tells how many of them are plain.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Final

import h11

from streamcodec import DEFAULT_LIMITS, Limits, RemoteProtocolError
from streamcodec.http import Fields, RequestHead, ResponseHead
from streamcodec.http.heads.parsed import check_head, framing_length, parse_head, parse_request, request_head
from streamcodec.http.heads.plain import read_plain_head, read_plain_response
from tests.http.messages import head

LIMITS: Final = Limits(max_head_fields=14, max_field_bytes=60)
"""Limits that mutants reach."""

CLIENTS: Final = {
    "curl": head(b"GET /v2/health/ready HTTP/1.1", b"Host: localhost:8000", b"User-Agent: curl/8.5.0", b"Accept: */*"),
    "wrk": head(
        b"POST /v2/models/identity/infer HTTP/1.1",
        b"Host: 127.0.0.1:8000",
        b"Content-Type: application/octet-stream",
        b"Inference-Header-Content-Length: 137",
        b"Content-Length: 4233",
    ),
    "kserve": head(
        b"POST /v2/models/identity/infer HTTP/1.1",
        b"Host: [::1]:8000",
        b"Accept: */*",
        b"Accept-Encoding: gzip, deflate",
        b"Connection: keep-alive",
        b"User-Agent: python-httpx/0.28",
        b"content-type: application/json",
        b"content-length: 96",
    ),
    "tritonclient": head(
        b"POST /v2/models/a%20b/versions/1/infer?x=y HTTP/1.1",
        b"Host: triton.default.svc",
        b"content-length:96",
        b"Inference-Header-Content-Length:\t96",
    ),
    "ingress": head(
        b"POST /v2/models/m/infer HTTP/1.1",
        b"Host: models.example.com",
        b"X-Request-ID: 6f1d2c3b4a5968778695a4b3",
        b"X-Real-IP: 10.1.2.3",
        b"X-Forwarded-For: 10.1.2.3, 10.2.3.4",
        b"X-Forwarded-Proto: https",
        b"X-Empty:",
        b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
    ),
    "browser": head(
        b"OPTIONS /v2/models/m/infer HTTP/1.1",
        b"Host: 127.0.0.1:8000",
        b"Connection: Keep-Alive",
        b"Access-Control-Request-Method: POST",
        b"Origin: http://127.0.0.1:3000",
        b"Sec-Fetch-Mode: cors",
        b"User-Agent: Mozilla/5.0 (X11; Linux x86_64) K\xf6nig/1.0",
        b"Accept-Encoding: gzip, deflate, br",
    ),
    "uploader": head(b"HEAD /uploads/7 HTTP/1.1", b"Host: x", b"Upload-Draft-Interop-Version: 8", b"Content-Length: 0"),
}
"""Heads as clients send them; all are plain."""

SERVERS: Final = {
    "ours": head(
        b"HTTP/1.1 200 OK",
        b"Content-Type: application/octet-stream",
        b"Inference-Header-Content-Length: 137",
        b"Date: Mon, 23 Nov 2026 21:06:13 GMT",
        b"Content-Length: 4233",
    ),
    "triton": head(b"HTTP/1.1 400 Bad Request", b"Content-Type: application/json", b"Content-Length: 75"),
    "uvicorn": head(
        b"HTTP/1.1 503 ",
        b"date: Mon, 23 Nov 2026 21:06:13 GMT",
        b"server: uvicorn",
        b"connection: close",
        b"transfer-encoding: chunked",
    ),
    "another": head(b"HTTP/1.1 404", b"Server: nginx/1.26.3", b"Content-Encoding: gzip", b"X-Name: K\xf6nig"),
    "without content": head(b"HTTP/1.1 204 No Content", b"Connection: keep-alive"),
}
"""Heads as servers send them; all are plain."""

TELLING: Final = (
    b"\0", b"\t", b"\n", b"\r", b"\r\n", b"\r\n ", b" ", b"\x0b", b"\x0c", b"\x1f", b"\x7f", b"\x80", b"\xff", b":",
    b",", b";", b"/", b"0", b"9", b"9" * 14, b"+", b"-", b"_", b"\xb2", b"%", b"%2", b"[", b"]", b"@", b'"', b"close",
    b"chunked", b"keep-alive", b"gzip", b", ", b"HTTP/1.0", b"HTTP/1.1", b"HTTP/1.2", b"HTTP/2.0", b"CONNECT",
    b"x" * 60, b"\r\n\r\n", b"Host: y\r\n", b"host:\r\n", b"Content-Length: 5\r\n", b"Content-Length: 5, 5\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: Chunked\r\n", b"Expect: 100-continue\r\n",
    b"Upgrade: h2c\r\n", b"Connection: close\r\n", b"Connection: close, x\r\n", b"X: y\r\n", b"X : y\r\n", b" y\r\n",
    b"X: y \r\n", b"X: y\n", b"X:\r\n", b": y\r\n",
)  # fmt: skip


def ordinary(text: bytes, limits: Limits) -> tuple[RequestHead, h11.Connection] | None:
    """Return what `heads` makes of a head, and h11's connection; None if it is refused."""
    http = h11.Connection(h11.SERVER)
    try:
        check_head(text, limits)
        request = parse_request(http, text)
        fields, version = Fields(tuple(request.headers)), request.http_version.decode()
        return request_head(request.method.decode(), request.target.decode(), fields, version, default=0), http
    except RemoteProtocolError:
        return None


def check(text: bytes, limits: Limits = DEFAULT_LIMITS) -> bool:
    """Compare the two ways for a head, if it is plain; return whether it is."""
    plain = read_plain_head(text, limits)
    if plain is None:
        return False
    expected = ordinary(text, limits)
    assert expected is not None, f"{text!r} is refused by h11"
    wanted, http = expected
    assert plain == wanted, text
    assert plain.fields.items == wanted.fields.items, text
    for name in {b"absent", *dict(wanted.fields.items)}:
        assert plain.fields.values(name) == wanted.fields.values(name), text
    assert http.their_http_version == b"1.1", text
    assert not http.they_are_waiting_for_100_continue, text
    assert plain.fields.closes == wanted.fields.closes == _closes(http), text
    return True


def check_response(text: bytes, limits: Limits = DEFAULT_LIMITS, method: str = "GET") -> bool:
    """Compare the two ways for the head of a response, if it is plain; return whether it is."""
    plain = read_plain_response(text, limits, is_for_head=method == "HEAD")
    if plain is None:
        return False
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    http.send(h11.EndOfMessage())
    check_head(text, limits)
    event = parse_head(http, text)
    assert isinstance(event, h11.Response), text
    fields = Fields(tuple(event.headers))
    has_none = method == "HEAD" or event.status_code in {204, 304}
    length = 0 if has_none else framing_length(fields, event.http_version.decode(), default=None)
    assert plain == ResponseHead(status=event.status_code, fields=fields, content_length=length), text
    assert event.status_code in range(200, 600), text
    assert plain.fields.closes == fields.closes == (http.our_state is h11.MUST_CLOSE), text
    return True


def _closes(http: h11.Connection) -> bool:
    """Whether h11 closes the connection after the response to its request."""
    http.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
    http.send(h11.EndOfMessage())
    return http.our_state is h11.MUST_CLOSE


def mutants(heads: list[bytes], count: int, seed: int = 0) -> Iterator[bytes]:
    """Yield heads with one to three changes, the same each time."""
    choice = random.Random(seed)  # noqa: S311 - to be repeated, not secret
    for _ in range(count):
        text = choice.choice(heads)
        for _ in range(choice.choice((1, 1, 1, 2, 3))):
            text = _changed(text, choice)
        yield text


def _changed(text: bytes, choice: random.Random) -> bytes:
    place = choice.randrange(len(text))
    start = text.rfind(b"\n", 0, place) + 1
    end = text.find(b"\n", start) + 1
    begin, until, new = choice.choice((
        (place, place + 1, bytes([choice.randrange(256)])),
        (place, place + 1, b""),
        (place, place, choice.choice(TELLING)),
        (start, start, choice.choice(TELLING)),
        (start, start, text[start:end]),
        (start, end, b""),
        (place, place + 9, text[place : place + 9].swapcase()),
    ))  # fmt: skip
    return text[:begin] + new + text[until:]


def compared(count: int, seed: int = 0) -> Counter[bool]:
    """Compare the two ways for so many mutants of requests; return how many were plain, and not."""
    texts = enumerate(mutants([*CLIENTS.values()], count, seed))
    return Counter(check(text, LIMITS if number % 2 else DEFAULT_LIMITS) for number, text in texts)


def compared_responses(count: int, seed: int = 0) -> Counter[bool]:
    """Compare the two ways for so many mutants of responses; return how many were plain, and not."""
    texts = enumerate(mutants([*SERVERS.values()], count, seed))
    return Counter(
        check_response(text, LIMITS if number % 2 else DEFAULT_LIMITS, "GET" if number % 5 else "HEAD")
        for number, text in texts
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--responses", action="store_true", help="of servers, not of clients")
    options = parser.parse_args()
    kinds = (compared_responses if options.responses else compared)(options.count, options.seed)
    sys.stdout.write(
        f"{options.count:,} heads: {kinds[True]:,} plain, as h11 reads them; {kinds[False]:,} left to it\n"
    )
