"""Hostile answers: those that never end, are none, or come when nobody has asked. Reading them is bounded, in bytes.

What breaks the rules of the protocol within a body is in `test_answers.py` and, in every cut, in the corpus.
"""

from __future__ import annotations

import gzip
import select
import socket
from collections.abc import Callable
from itertools import chain, repeat

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    RemoteProtocolError,
    Tensor,
    encode_request,
    encode_response,
)
from streamcodec.client import AsyncClient, Client, ServerError
from streamcodec.client.exchange import ClientExchange
from streamcodec.http import ClientConnection
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import response, scripted
from tests.server.wire import TIMEOUT

VALUES = np.arange(3, dtype="<f4")
MESSAGE = encode_response([Tensor(name="y", array=VALUES)], model_name="m")
BODY = b"".join(MESSAGE.buffers)
IHCL = f"Inference-Header-Content-Length: {MESSAGE.header_length}"
GOOD = response(BODY, IHCL)
CHUNKED = "Transfer-Encoding: chunked"
GZIP = "Content-Encoding: gzip"
INPUTS = {"x": [1.0]}
QUESTION = encode_request([Tensor(name="x", array=np.ones(1, np.int8))])
HOST = [("Host", "x")]
LIMITS = Limits(max_header_bytes=200_000, max_message_bytes=1 << 20)


def _head(*fields: str, status: str = "200 OK") -> bytes:
    return response(b"", *fields, status=status, is_counted=False)


def _chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n" % (len(data), extension, data)


ZEROS = gzip.compress(bytes(1 << 20))
READS = 128 << 10
"""More than what was read at once together with the byte that was too many."""

ENDLESS: dict[str, tuple[bytes, bytes, int]] = {
    "a first line": (b"HTTP/1.1 200 ", b"O", READS),
    "a field": (b"HTTP/1.1 200 OK\r\nX: ", b"y", READS),
    "fields": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", READS),
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", READS),
    "early hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", READS),
    "the size of a chunk": (_head(CHUNKED), b"0", READS),
    "an extension": (_head(CHUNKED) + b"1;", b"x", READS),
    "a quoted extension": (_head(CHUNKED) + b'1;x="', b";", READS),
    "trailers": (_head(CHUNKED, IHCL) + _chunk(BODY) + b"0\r\n", b"X: y\r\n", READS),
    "white space for JSON": (_head(), b" ", LIMITS.max_header_bytes + READS),
    "white space for JSON in chunks": (_head(CHUNKED), _chunk(b" " * 9), 2 * LIMITS.max_header_bytes + READS),
    "an array": (_head(CHUNKED), _chunk(b"[" * 1000), LIMITS.max_header_bytes + READS),
    "bytes behind the message": (_head(IHCL) + BODY, b"z", READS),
    "chunks behind the message": (_head(CHUNKED, IHCL) + _chunk(BODY), _chunk(b"z"), READS),
    "zeros, compressed": (_head(GZIP), ZEROS, 4 * READS),
    "zeros, compressed and in chunks": (_head(GZIP, CHUNKED), _chunk(ZEROS), 4 * READS),
    "a length of 10 EB": (_head(f"Content-Length: {10**19}"), b" ", READS),
    "a length of 30 digits": (_head(f"Content-Length: {'9' * 30}"), b" ", READS),
}
"""How each begins, what is repeated, and how many bytes may have been read when it is refused."""


def _taken(start: bytes, again: bytes, exchange: ClientExchange) -> tuple[int, Exception]:
    """Bring an endless answer until it is refused; return the bytes that were read, and why they are no more."""
    connection = ClientConnection(LIMITS)
    exchange.start(connection)
    taken = 0
    try:
        for piece in chain([start], repeat(again * max(1, 60_000 // len(again)))):
            view = memoryview(piece)
            while view:
                count = connection.feed(view)
                taken += count
                view = view[count:]
                while (event := connection.next_event()) is not NEED_DATA:
                    assert event is not NEED_TURN
                    exchange.receive(connection, event)
    except RemoteProtocolError as error:
        return taken, error
    raise AssertionError


@pytest.mark.parametrize("case", ENDLESS)
def test_an_endless_answer_is_refused_after_so_many_bytes(case: str) -> None:
    start, again, most = ENDLESS[case]
    taken, _ = _taken(start, again, ClientExchange("POST", "/v2/models/m/infer", HOST, QUESTION, LIMITS))
    assert taken <= most


DOCUMENTS: dict[str, tuple[bytes, bytes]] = {
    "chunks": (_head(CHUNKED), _chunk(b"x" * 1000)),
    "short chunks": (_head(CHUNKED), _chunk(b"x" * 40)),
    "until the end of the connection": (_head(), b"x" * 1000),
    "of 10 EB": (_head(f"Content-Length: {10**19}"), b"x" * 1000),
    "zeros, compressed": (_head(GZIP), ZEROS),
}
MAX_DOCUMENT = LIMITS.max_document_bytes + LIMITS.max_drain_bytes
MAX_ERROR = (16 << 10) + LIMITS.max_drain_bytes


@pytest.mark.parametrize("case", DOCUMENTS)
@pytest.mark.parametrize("status", ["200 OK", "500 Internal Server Error"])
def test_an_endless_document_or_error_is_refused_after_so_many_bytes(case: str, status: str) -> None:
    start, again = DOCUMENTS[case]
    exchange = ClientExchange("GET", "/v2", HOST, None, LIMITS)
    taken, error = _taken(start.replace(b"200 OK", status.encode()), again, exchange)
    assert isinstance(error, LimitExceededError)
    most = MAX_DOCUMENT if status == "200 OK" else MAX_ERROR
    assert (error.limit, error.offset) == ("max_drain_bytes", most)
    assert taken <= 2 * most
    refusal = exchange.refusal(error)
    assert (refusal is None) == (status == "200 OK")
    assert refusal is None or len(refusal.text) == 500


def test_a_document_at_the_limit_is_one_and_a_byte_more_is_none() -> None:
    for excess, is_read in ((0, True), (1, False)):
        connection = ClientConnection(LIMITS)
        exchange = ClientExchange("GET", "/v2", HOST, None, LIMITS)
        exchange.start(connection)
        body = b"{}".ljust(MAX_DOCUMENT + excess)
        data = memoryview(response(body))
        try:
            while data:
                data = data[connection.feed(data) :]
                while not exchange.has_ended and (event := connection.next_event()) is not NEED_DATA:
                    assert event is not NEED_TURN
                    exchange.receive(connection, event)
        except LimitExceededError:
            assert not is_read
        assert exchange.has_ended == is_read


def _for_ever(start: bytes, again: bytes) -> Callable[[socket.socket], None]:
    """Send, as one does who will not stop, until the client hangs up."""

    def send(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(start)
        piece = again * max(1, 60_000 // len(again))
        while True:  # until ConnectionError, or the time limit of the socket
            sock.sendall(piece)

    return send


@KINDS
@pytest.mark.parametrize(
    "case", ["fields", "interim responses", "an extension", "white space for JSON", "bytes behind the message",
             "zeros, compressed and in chunks"],
)  # fmt: skip
def test_a_server_that_never_stops_is_hung_up_on(kind: Kind, case: str) -> None:
    start, again, _ = ENDLESS[case]
    with (
        scripted([_for_ever(start, again)], [GOOD]) as server,
        kind.client(server.url, limits=LIMITS) as client,
    ):
        with pytest.raises(RemoteProtocolError) as caught:
            client.infer("m", INPUTS)
        assert not isinstance(caught.value, ServerError)
        assert server.has_closed()
        assert np.array_equal(client.infer("m", INPUTS)["y"], VALUES)


@KINDS
def test_an_error_that_never_stops_is_one_in_the_servers_first_words(kind: Kind) -> None:
    start, again = DOCUMENTS["chunks"]
    endless = _for_ever(start.replace(b"200 OK", b"503 Service Unavailable"), again)
    with scripted([endless], [endless], [GOOD]) as server, kind.client(server.url) as client:
        for call in (lambda: client.infer("m", INPUTS), lambda: client.call("server_metadata")):
            with pytest.raises(ServerError, match="x" * 500) as caught:
                call()
            assert caught.value.status == 503
            assert server.has_closed()
        client.infer("m", INPUTS)


@KINDS
@pytest.mark.parametrize("cut", [1, 20])
def test_an_error_that_breaks_off_is_still_one(kind: Kind, cut: int) -> None:
    error = response(b'{"error": "no such model"}', status="404 Not Found")[:-cut]
    with scripted([error]) as server, kind.client(server.url) as client, pytest.raises(ServerError) as caught:
        client.infer("m", INPUTS)
    assert caught.value.status == 404


STATUS_LINES = [
    b"HTTP/1.1 000 Zero", b"HTTP/1.1 099 Nearly", b"HTTP/1.1 600 Beyond", b"HTTP/1.1 999 Far", b"HTTP/1.1 1000 Too far",
    b"HTTP/1.1 20 Short", b"HTTP/1.1 -20 Minus", b"HTTP/1.1 +200 Plus", b"HTTP/1.1 2e2 Float", b"HTTP/1.1 0xC8 Hex",
    b"HTTP/1.1 \xb200 Square", b"HTTP/1.1  200 Two blanks", b"HTTP/1.1\t200 Tab", b"HTTP/1.1", b"HTTP/1.1 ",
    b"HTTP/1.1 OK",
    b"HTTP/2.0 200 OK", b"HTTP/0.9 200 OK", b"HTTP/11 200 OK", b"http/1.1 200 OK", b"ICY 200 OK", b"HTTP/1.1 200OK",
    b"HTTP/1.1 200 O\x00K", b"HTTP/1.1 200 O\rK", b"HTTP/1.1 200 O\x1bK", b"HTTP/1.1 101 Switching Protocols",
    b"POST /v2/models/m/infer HTTP/1.1", b"\x16\x03\x01\x02", b"", b" HTTP/1.1 200 OK",
]  # fmt: skip


@pytest.mark.parametrize("line", STATUS_LINES)
def test_a_status_line_that_is_none(line: bytes) -> None:
    with scripted([GOOD.replace(b"HTTP/1.1 200 OK", line)]) as server, Client(server.url, timeout=TIMEOUT) as client:
        with pytest.raises(RemoteProtocolError) as caught:
            client.infer("m", INPUTS)
        assert not isinstance(caught.value, ServerError)


# What comes when nobody has asked

EVIL = GOOD.replace(b'"m"', b'"e"')
assert EVIL != GOOD


@KINDS
@pytest.mark.parametrize("extra", [EVIL, EVIL[:20], b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n", b"\x00"])
def test_bytes_behind_an_answer_are_not_the_next_one(kind: Kind, extra: bytes) -> None:
    with scripted([GOOD + extra], [GOOD]) as server, kind.client(server.url) as client:
        for _ in range(2):
            result = client.infer("m", INPUTS)
            assert result.header.model_name == "m"
    assert server.accepted == 2


@KINDS
@pytest.mark.parametrize("extra", [EVIL, EVIL[:20], b"\r\n"])
def test_bytes_that_come_after_an_answer_has_been_taken_are_not_the_next_one(kind: Kind, extra: bytes) -> None:
    """A response that a proxy was tricked into: whoever asks next would get it."""
    sockets: list[socket.socket] = []

    def keep(sock: socket.socket) -> None:
        sockets.append(sock.dup())

    with scripted([GOOD, keep], [GOOD]) as server, kind.client(server.url) as client:
        client.infer("m", INPUTS)
        assert server.has_closed()  # its own end of it; the connection lives on in `sockets`
        with sockets[0] as sock:
            sock.sendall(extra)
            _wait_for_input(client.client)
            assert client.infer("m", INPUTS).header.model_name == "m"
    assert server.accepted == 2


def _wait_for_input(client: Client | AsyncClient) -> None:
    methods = client._methods if isinstance(client, Client) else client  # noqa: SLF001 - as below
    ((_, kept),) = methods._common.pool._kept  # noqa: SLF001 - nobody else knows when the bytes have arrived
    sock = kept.socket
    assert select.select([sock], [], [], TIMEOUT)[0]


def test_bytes_that_come_before_the_request_are_not_its_answer() -> None:
    connection = ClientConnection()
    assert connection.feed(EVIL) == len(EVIL)
    assert not connection.is_reusable
    with pytest.raises(LocalProtocolError):
        connection.send_request("GET", "/", [("Host", "x")])


# What the caller says must not become a line of its own

NO_URLS = [
    "http://h\r\nX: y", "http://h\nX: y/", "http://h/a\r\nX: y", "http://h/\tb", "http://h\r", "http://h y/", "http://h\x00/",
    "http://\u212a.example/", "http://gr\u00f6\u00dfe.example/", "http://h\\i/", 'http://"h"/', "http://[::1%25lo]/",
]  # fmt: skip


@pytest.mark.parametrize("url", NO_URLS)
def test_a_url_with_more_than_a_host_in_its_host(url: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(LocalProtocolError):
            kind(url)


@KINDS
@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_be_another_path_is_not_sent(kind: Kind, name: str) -> None:
    with scripted() as server, kind.client(server.url) as client:
        for call in (
            lambda: client.infer(name, INPUTS),
            lambda: client.infer("m", INPUTS, version=name),
            lambda: client.call("infer_raw", name, [1.0]),
            lambda: client.call("is_model_ready", name),
            lambda: client.call("model_metadata", "m", name),
        ):
            with pytest.raises(LocalProtocolError, match="another path"):
                call()
    assert server.accepted == 0


@pytest.mark.parametrize(
    "text", ["a\r\nX: y", "\r\n\r\nGET / HTTP/1.1\r\n\r\n", "\u2028\u0085\u560d\u560a", "\0", "%0d%0a"]
)
def test_names_of_all_kinds_are_one_segment_and_one_head(text: str) -> None:
    good = response(b"{}", status="404 Not Found")
    with scripted([good]) as server, Client(server.url) as client, pytest.raises(ServerError):
        client.infer(text, {text: [1.0]}, request_id=text, version=text, outputs=[text], parameters={text: text})
    head, _, _ = server.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0].startswith(b"POST /v2/models/")
    assert [line.partition(b":")[0] for line in lines[1:]] == [
        b"Host", b"User-Agent", b"Content-Type", b"Inference-Header-Content-Length", b"Content-Length",
    ]  # fmt: skip
    assert head.isascii()
    assert not set(head) - set(range(0x20, 0x7F)) - set(b"\r\n")
