"""A paced connection does long work in pieces, each when it is told to; what comes of it is the same."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    ErrorCode,
    NeedData,
    NeedTurn,
    RemoteProtocolError,
    Tensor,
    encode_request,
    request_decoder,
)
from streamcodec.engine.compression.inflate import Inflater
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import ClientConnection, Collector, Receiver, RequestHead, ResponseHead, ServerConnection
from tests.cputime import ATTEMPTS, cpu_seconds
from tests.http.driver import client, raises_local, refuses, server, triad
from tests.http.messages import (
    BODY,
    GET,
    IHCL,
    REQUEST,
    RESPONSE,
    body_of,
    chunked,
    compress,
    framed,
    head,
    length,
    post,
    response,
)

CHUNKED = b"Transfer-Encoding: chunked"
GZIP = b"Content-Encoding: gzip"
MIB = 1 << 20


def paced_message(resolved: object) -> Receiver:
    """Have a body received by a decoder that is paced itself."""
    assert isinstance(resolved, RequestHead)
    if resolved.method != "POST":
        return Collector(100)
    return request_decoder(
        header_length=header_length_of(resolved.fields), body_length=resolved.body_length, paced=True
    )


def gzipped(body: bytes, *, sizes: list[int] | None = None) -> bytes:
    return framed(compress(body, "gzip"), IHCL, GZIP, sizes=sizes)


MESSAGES = {
    "a plain body": framed(BODY, IHCL),
    "chunks of a byte": framed(BODY, IHCL, sizes=[1]),
    "chunks of seven bytes": framed(BODY, IHCL, sizes=[7]),
    "compressed": gzipped(BODY),
    "compressed, in chunks": gzipped(BODY, sizes=[20]),
    "compressed, in chunks of a byte": gzipped(BODY, sizes=[1]),
    "two members": framed(gzip.compress(BODY[:100]) + gzip.compress(BODY[100:]), IHCL, GZIP),
    "many empty members": framed(gzip.compress(b"") * 20 + gzip.compress(BODY), IHCL, GZIP),
    "compressed, and too long": gzipped(BODY + b"more"),
    "compressed, and too short": gzipped(BODY[:-1]),
    "damaged": framed(compress(BODY, "gzip")[:-6] + b"damage", IHCL, GZIP),
    "damaged within": framed(compress(BODY, "deflate")[:-20] + bytes(30), IHCL, b"Content-Encoding: deflate"),
    "cut off": gzipped(BODY)[:-3],
    "not compressed": framed(BODY, IHCL, GZIP),
    "a bad chunk": post(IHCL, CHUNKED) + chunked(BODY, [50])[:-5] + b"x\r\n\r\n",
    "too many bytes in chunks": framed(BODY + bytes(300), IHCL, sizes=[1]),
    "a bad header": framed(b"[" + BODY[1:], IHCL, sizes=[1]),
    "a bad header, compressed": gzipped(b"[" + BODY[1:]),
    "nothing, compressed": framed(b"", GZIP),
}


@pytest.mark.parametrize("open_body", [None, paced_message], ids=["decoder", "paced decoder"])
@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_what_comes_out_is_the_same(message: bytes, open_body: Callable[[object], Receiver] | None) -> None:
    start = partial(server, paced=True) if open_body is None else partial(server, open_body, paced=True)
    plain = server()
    plain.push(message + GET)
    plain.end()
    driver = triad(start, message, cuts=range(1, len(message), max(13, len(message) // 60)), tail=GET)
    assert driver.log == plain.log
    assert driver.sent == plain.sent
    assert plain.turns == 0


def test_a_client_too() -> None:
    fields = (b"Inference-Header-Content-Length: %d" % (RESPONSE.header_length or 0), GZIP)
    message = response(gzip.compress(body_of(RESPONSE), mtime=0), *fields)
    driver = triad(partial(client, paced=True), message)
    assert [entry[0] for entry in driver.log] == ["head", "header", "tensor", "end"]
    assert driver.turns > 0


def start(body: bytes, *fields: bytes, receiver: Receiver | None = None, paced: bool = True) -> ServerConnection:
    """Bring a connection to the body of a request, and as much of that as it takes at once."""
    connection = ServerConnection(paced=paced)
    connection.feed(post(*fields))
    assert isinstance(connection.next_event(), RequestHead)
    connection.receive_body(receiver or Collector(MIB))
    connection.feed(body)
    return connection


def finish(connection: ServerConnection) -> object:
    """Do work until there is an event."""
    while (event := connection.next_event()) is NEED_TURN:
        connection.work()
    return event


def test_nothing_is_decompressed_but_by_work() -> None:
    body = gzip.compress(bytes(8 * MIB), mtime=0)
    collector = Collector(0)
    connection = start(body, length(body), GZIP, receiver=collector)
    assert not connection.inflates  # so few bytes may be one piece
    given = [0]
    while (event := connection.next_event()) is NEED_TURN:
        assert connection.next_event() is NEED_TURN
        assert collector.offset == given[-1]
        assert not connection.incoming.wants_data
        connection.work()
        given.append(collector.offset)
        assert connection.inflates is (collector.offset < 8 * MIB)
    assert event == EndOfMessage(nbytes=8 * MIB)
    assert max(after - before for before, after in pairwise(given)) == 64 << 10


def test_a_short_compressed_body_takes_one_turn_and_no_thread() -> None:
    body = gzip.compress(BODY, mtime=0)
    receiver = request_decoder(header_length=REQUEST.header_length, body_length=None)
    connection = start(body, length(body), GZIP, receiver=receiver)
    events = []
    while not isinstance(event := connection.next_event(), EndOfMessage):
        events.append(event)
        if event is NEED_TURN:
            assert not connection.inflates
            connection.work()
    assert events.count(NEED_TURN) == 1
    assert len(events) == 1 + 1 + 4  # the header, and the tensors


def test_work_says_whether_there_is_more_without_an_event() -> None:
    body = gzip.compress(bytes(3 * (64 << 10)), mtime=0)
    connection = start(body, length(body), GZIP)
    assert [connection.work() for _ in range(5)] == [True, True, False, False, False]
    assert connection.next_event() == EndOfMessage(nbytes=3 * (64 << 10))
    connection = start(chunked(bytes(3000), [1]), CHUNKED)
    assert [connection.work() for _ in range(7)] == [True] * 5 + [False] * 2
    assert connection.next_event() == EndOfMessage(nbytes=3000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: gzip.compress(b"", mtime=0) * 3000,
        lambda: gzip.compress(b"x", mtime=0) * 3000,
        lambda: b"\x1f\x8b\x08" + bytes(6) + b"\xff" + b"\0\0\0\xff\xff" * 12_000,
        lambda: zlib.compress(bytes(100 * MIB)),
    ],
    ids=["empty members", "members of a byte", "empty blocks", "zeros"],
)
def test_a_piece_is_bounded_whatever_is_compressed(make: Callable[[], bytes]) -> None:
    body = make()[: 60 << 10]
    encoding = GZIP if body.startswith(b"\x1f\x8b") else b"Content-Encoding: deflate"

    def seconds() -> list[float]:
        connection = start(body, length(body + b"more"), encoding, receiver=Collector(0))
        times = []
        while connection.next_event() is NEED_TURN:
            times.append(cpu_seconds(connection.work))
        assert connection.next_event() is NEED_DATA
        return times

    least = [min(pieces) for pieces in zip(*(seconds() for _ in range(ATTEMPTS)), strict=True)]
    assert len(least) > 3
    assert max(least) < 0.004


def test_many_small_chunks_are_read_in_pieces() -> None:
    body = bytes(9000)
    framing = chunked(body, [1])
    collector = Collector(0)
    connection = start(b"", CHUNKED, receiver=collector)
    given = [0]
    view = memoryview(framing)
    while view:
        view = view[connection.feed(view) :]
        given.append(collector.offset)
        while connection.next_event() is NEED_TURN:
            connection.work()
            given.append(collector.offset)
    assert connection.incoming.state.name == "DONE"
    assert collector.offset == len(body)
    assert max(after - before for before, after in pairwise(given)) <= 32 * 32


def test_the_end_of_input_waits_for_work() -> None:
    body = gzip.compress(BODY, mtime=0)
    for framing, fields in ((body[:-1], (length(body), GZIP)), (chunked(bytes(3000), [1])[:-1], (CHUNKED,))):
        connection = start(framing, *fields)
        connection.receive_eof()
        assert connection.next_event() is NEED_TURN
        with pytest.raises(RemoteProtocolError, match="in the middle of the body"):
            finish(connection)


def test_bytes_that_come_within_a_head_are_no_work() -> None:
    connection = ServerConnection(paced=True)
    assert connection.work() is False
    assert not connection.inflates
    connection.feed(head(b"POST / HTTP/1.1", b"Host: x", length(BODY)) + BODY)
    assert connection.work() is False


def test_the_turns_of_a_paced_receiver_come_through_where_the_connection_is_not_paced() -> None:
    message = encode_request([Tensor(name=f"t{index}", array=np.empty(0)) for index in range(100)])
    body = gzip.compress(body_of(message), mtime=0)
    decoder = request_decoder(header_length=message.header_length, body_length=None, paced=True)
    connection = start(body, length(body), GZIP, receiver=decoder, paced=False)
    turns = 0
    while not isinstance(event := connection.next_event(), EndOfMessage):
        if event is NEED_TURN:
            turns += 1
            assert connection.work() is False
    assert turns > 0


def test_callbacks_cannot_do_the_work_that_they_are_a_part_of() -> None:
    errors = []

    def check(_: object) -> None:
        errors.append(raises_local(connection.work))

    decoder = request_decoder(header_length=REQUEST.header_length, body_length=None, check=check)
    body = gzip.compress(BODY, mtime=0)
    connection = start(body, length(body), GZIP, receiver=decoder)
    while connection.next_event() is NEED_TURN:
        connection.work()
    assert errors == ["a connection cannot be used from the callbacks of a body's receiver"]


def test_the_rest_of_a_refused_body_asks_for_no_turn() -> None:
    body = gzip.compress(b"[" + bytes(range(256)), mtime=0)
    connection = start(body[:-50], length(body), GZIP, receiver=request_decoder(header_length=20, body_length=None))
    with pytest.raises(RemoteProtocolError, match="is not JSON"):
        finish(connection)
    assert connection.work() is False  # drops what had come before
    assert connection.feed(body[-50:-20]) == 30
    assert connection.feed(body[-20:]) == 20
    assert connection.work() is False


class Late(Collector):
    """Takes nothing before its work is done, as an upload that goes on from a file."""

    is_done = False

    @property
    def needs_data(self) -> bool:
        return self.is_done and super().needs_data

    @property
    def is_paused(self) -> bool:
        return not self.is_done

    def work(self) -> None:
        self.is_done = True

    def next_event(self) -> EndOfMessage | NeedData | NeedTurn:  # type: ignore[override]  # a Collector has no work
        return super().next_event() if self.is_done else NEED_TURN


@pytest.mark.parametrize("passes_on", [True, False])
def test_bytes_that_wait_for_a_receiver_come_before_those_of_the_next_read(passes_on: bool) -> None:
    """Even if it is ready, and nobody has asked for an event since: an upload that gives way reads at once."""
    body, late = bytes(range(200)), Late(1000)
    connection = ServerConnection(paced=True)
    connection.feed(post(length(body)) + body[:100])
    connection.next_event()
    connection.receive_body(late)
    assert connection.next_event() is NEED_TURN
    connection.work()
    assert not connection.incoming.wants_data
    raises_local(connection.get_buffer)
    assert connection.feed(body[100:]) == 0
    if passes_on:
        connection.incoming.pass_on()
    else:
        assert connection.next_event() is NEED_DATA
    assert connection.feed(body[100:]) == 100
    finish(connection)
    assert late.data == body


def test_a_body_that_is_given_up_leaves_no_work() -> None:
    connection = start(chunked(bytes(3000), [1]), CHUNKED)
    assert connection.next_event() is NEED_TURN
    connection.send_response(413)
    assert connection.work() is False


def test_interim_responses_are_read_one_in_a_turn() -> None:
    interim, count = b"HTTP/1.1 103 Early Hints\r\n\r\n", 20
    connection = ClientConnection(paced=True)
    connection.send_request("GET", "/", [("Host", "x")])
    connection.feed(interim * count + b"HTTP/1.1 204 No Content\r\n\r\n")
    for _ in range(count):
        assert connection.next_event() is NEED_TURN
        assert connection.work() is False
    assert isinstance(connection.next_event(), ResponseHead)


@pytest.mark.parametrize("paced", [False, True])
def test_without_memory_to_decompress_it_a_body_is_refused(paced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Iterator[bytes]:
        yield from ()
        raise MemoryError

    monkeypatch.setattr(Inflater, "inflate", fail)
    driver = server(paced=paced)
    driver.push(gzipped(BODY))
    assert refuses(driver, code=ErrorCode.OUT_OF_MEMORY, status=503)
