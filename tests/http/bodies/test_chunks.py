"""Chunks: what is a line in front of a chunk or behind the last one, what is not, and how long it may be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    ErrorCode,
    LimitExceededError,
    Limits,
    RemoteProtocolError,
    Tensor,
    encode_request,
    request_decoder,
)
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import ClientConnection, Collector, RequestHead, ResponseHead, ServerConnection
from streamcodec.http.bodies import chunks as room
from streamcodec.http.bodies.chunks import Chunks
from tests.http.driver import Driver, refuses, server, triad
from tests.http.messages import GET, chunked, compress, head, post

CHUNKED = b"Transfer-Encoding: chunked"
LIMIT = 60
SMALL = Limits(max_head_bytes=LIMIT)


def collecting() -> Driver:
    return server(lambda _: Collector(1 << 20))


def read(framed: bytes, limits: Limits = SMALL) -> tuple[bytes, int]:
    """Read a body by its framing alone; return its data, and how many bytes it had."""
    chunks = Chunks(limits)
    view = memoryview(framed)
    data, position = b"", 0
    while position < len(framed) and not chunks.is_complete:
        if chunks.room:
            piece = framed[position : position + chunks.room]
            chunks.data_received(len(piece))
            data += piece
            position += len(piece)
        else:
            position += chunks.read(view[position:])
    assert chunks.is_complete
    return data, position


def read_bytewise(framed: bytes, limits: Limits) -> None:
    chunks = Chunks(limits)
    for index in range(len(framed)):
        if chunks.room:
            chunks.data_received(1)
        else:
            chunks.read(memoryview(framed)[index : index + 1])


def refusal(framed: bytes, limits: Limits = SMALL) -> RemoteProtocolError:
    """Return the error of a body, which must be the same byte by byte, and not come later than it has to."""
    with pytest.raises(RemoteProtocolError) as caught:
        read(framed, limits)
    with pytest.raises(RemoteProtocolError) as again:
        read_bytewise(framed, limits)
    assert (again.value.message, again.value.code) == (caught.value.message, caught.value.code)
    return caught.value


GOOD_LINES = [
    b"5",
    b"05",
    b"0000000000000005",
    b"5;name",
    b"5;name=value",
    b'5;name="a value; with \\" and \\\\ and ="',
    b'5;name=""',
    b"5 ; name = value\t;\tother",
    b"5;a;b;c=d;!#$%&'*+-.^_`|~=1",
    b'5;name="\t\xff"',
]


@pytest.mark.parametrize("line", GOOD_LINES)
def test_a_size_with_extensions(line: bytes) -> None:
    message = post(CHUNKED) + line + b"\r\nhello\r\n0\r\n\r\n"
    driver = triad(collecting, message, tail=GET)
    assert [entry[0] for entry in driver.log] == ["head", "end", "head", "end", "closed"]
    assert driver.log[1] == ("end", 5, b"hello")


BAD_LINES = [
    b"", b" 5", b"\t5", b"+5", b"-5", b"0x5", b"5 ", b"5\t", b"5 5", b"5,5", b"5.", b"5h", b"h", b"\xb2", b"_5", b"5_0",
    b"5\x00", b"5\x0b", b"5\r", b"\r5", b"5;", b"5;;a", b"5; ", b"5;a=", b"5;=a", b"5;a=b c", b"5;a b", b'5;a="',
    b'5;a="b',
    b'5;a="b"c', b'5;a="\x00"', b'5;a="\r"', b'5;a="\\\r"', b"5;a\r", b"5;a\x7f", b'5;a="\x7f"', b"5;a=\xff", b'5;"a"',
    b"8000000000000000", b"ffffffffffffffff", b"00000000000000005", b"fffffffffffffffffff", b"'5'", b"5;a=b;",
]  # fmt: skip


@pytest.mark.parametrize("line", BAD_LINES)
def test_what_is_no_size_or_no_extension(line: bytes) -> None:
    error = refusal(line + b"\r\nhello\r\n0\r\n\r\n")
    assert (error.code, error.status_hint) == (ErrorCode.INVALID_HTTP, 400)
    assert "before a chunk" in error.message


@pytest.mark.parametrize("line", [b"5", b"5;a", b"0"])
def test_a_bare_line_feed_behind_a_size(line: bytes) -> None:
    assert refusal(line + b"\nhello\r\n0\r\n\r\n").code is ErrorCode.INVALID_HTTP


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\r\n", b"\n\r", b"x\r\n", b"", b"\r\x00", b" \r\n"])
def test_a_chunk_that_does_not_end_where_its_size_says(end: bytes) -> None:
    error = refusal(b"5\r\nhello" + end + b"0\r\n\r\n")
    assert error.message == "the data of a chunk do not end where its size says"


@pytest.mark.parametrize("trailer", [b"", b"X: y\r\n", b"X:\r\n", b"x:\ty z \r\n", b"Content-Length: 9\r\nX: \xff\r\n"])
def test_trailers_are_read_over(trailer: bytes) -> None:
    body = b"5\r\nhello\r\n0\r\n" + trailer + b"\r\n"
    assert read(body + b"GET") == (b"hello", len(body))


BAD_TRAILERS = [
    b"no field\r\n", b": y\r\n", b"X : y\r\n", b" X: y\r\n", b"X: y\r\n z\r\n", b"X: y\n", b"X: \r y\r\n",
    b"X: \x00\r\n",
    b"X\x00: y\r\n", b"X: \x0b\r\n", b"\xff: y\r\n", b"GET / HTTP/1.1\r\n", b"\n", b"\r\r\n", b"X: y\r\r\n",
    b"X: \x7f\r\n",
]  # fmt: skip


@pytest.mark.parametrize("trailer", BAD_TRAILERS)
def test_trailers_that_are_none(trailer: bytes) -> None:
    error = refusal(b"5\r\nhello\r\n0\r\n" + trailer + b"\r\n")
    assert error.message == "the line after the last chunk is not a header field"


def test_a_line_at_the_limit_passes_and_one_byte_more_does_not() -> None:
    line = b"5;" + b"x" * (LIMIT - 4) + b"\r\n"
    assert len(line) == LIMIT
    assert read(line + b"hello\r\n0\r\n\r\n")[0] == b"hello"
    for longer in (line.replace(b";", b";x"), line[:-2].replace(b";", b";x"), b"0" * (LIMIT + 1)):
        error = refusal(longer + b"hello\r\n0\r\n\r\n")
        assert isinstance(error, LimitExceededError)
        assert (error.limit, error.status_hint) == ("max_head_bytes", 413)


def test_trailers_at_the_limit_pass_and_one_byte_more_does_not() -> None:
    body = b"5\r\nhello\r\n0\r\n"
    trailers = b"X: y\r\n" + b"X: " + b"y" * (LIMIT - 13) + b"\r\n" + b"\r\n"
    assert len(trailers) == LIMIT
    assert read(body + trailers)[0] == b"hello"
    for longer in (b"X: y\r\nY" + trailers[6:], b"X: y\r\n" * LIMIT, b"X" * LIMIT):
        error = refusal(body + longer)
        assert isinstance(error, LimitExceededError)
        assert (error.limit, error.status_hint) == ("max_head_bytes", 431)


def test_extensions_may_have_so_many_bytes_more_than_the_data_and_no_more() -> None:
    extension = b";" + b"x" * 19
    chunk = b"1%b\r\nd\r\n" % extension
    assert read(chunk * 3 + b"0\r\n\r\n")[0] == b"ddd"  # 60 bytes before the third piece of data: 2 have come
    error = refusal(chunk * 4 + b"0\r\n\r\n")
    assert isinstance(error, LimitExceededError)
    assert error.limit == "max_head_bytes"
    with_data = b"14%b\r\n%b\r\n" % (extension, b"d" * 20)
    assert len(read(with_data * 100 + b"0\r\n\r\n")[0]) == 2000


def test_a_chunk_of_all_that_can_be_counted_is_a_chunk() -> None:
    chunks = Chunks(SMALL)
    assert chunks.read(memoryview(b"7fffffffffffffff\r\nhello")) == 18
    assert chunks.room == (1 << 63) - 1


@pytest.mark.parametrize("line", [b"5;x=" + b"y" * 40_000, b"5 " + b" " * 40_000, b"0" * 40_000])
def test_a_line_without_end_is_refused_in_every_cut(line: bytes) -> None:
    """Which h11 did only if the whole line had not come at once."""
    message = post(CHUNKED) + line + b"\r\nhello\r\n0\r\n\r\n"
    cuts = [1, len(post(CHUNKED)), len(message) // 2, len(post(CHUNKED)) + (32 << 10), len(message) - 5]
    drivers = [collecting() for _ in cuts]
    for driver, cut in zip(drivers, cuts, strict=True):
        driver.push(message[:cut])
        driver.push(message[cut:])
        assert driver.log == drivers[0].log
    assert refuses(drivers[0], code=ErrorCode.LIMIT_EXCEEDED, status=413)


def test_bad_framing_says_nothing_of_what_was_sent() -> None:
    driver = triad(collecting, post(CHUNKED) + b"swordfish\r\n", tail=GET)
    assert refuses(driver, code=ErrorCode.INVALID_HTTP, status=400)
    assert "swordfish" not in str(driver.log)


# Where the bytes go

ARRAY = np.arange(1 << 18, dtype="<f4")
MESSAGE = encode_request([Tensor(name="x", array=ARRAY)])
BODY = b"".join(MESSAGE.buffers)


def begin(connection: ServerConnection) -> None:
    connection.feed(post(CHUNKED, b"Inference-Header-Content-Length: %d" % (MESSAGE.header_length or 0)))
    event = connection.next_event()
    assert isinstance(event, RequestHead)
    connection.receive_body(
        request_decoder(header_length=header_length_of(event.fields), body_length=event.body_length)
    )


@pytest.mark.parametrize("scatters", [False, True])
@pytest.mark.parametrize("size", [200_000, 1 << 20, 2 << 20])
def test_within_long_chunks_bytes_are_written_into_the_tensor(size: int, scatters: bool) -> None:
    driver = Driver(ServerConnection())
    begin(driver.connection)  # type: ignore[arg-type] # a server's, as made above
    driver.pump()
    (driver.scatter if scatters else driver.pull)(chunked(BODY, [size]) + GET, [1 << 16])
    assert [entry[0] for entry in driver.log] == ["header", "tensor", "end", "head", "end"]
    assert np.array_equal(driver.arrays[0], ARRAY)
    incoming = driver.connection.incoming
    assert incoming.received_direct + incoming.received_copied == len(BODY)
    # What is read with a line is copied, and so is the rest of a chunk that is shorter than a read.
    assert incoming.received_copied <= (len(BODY) // size + 1) * (128 << 10)
    assert incoming.received_direct > 0


def test_the_view_within_a_chunk_does_not_reach_beyond_it() -> None:
    connection = ServerConnection()
    begin(connection)
    connection.feed(b"%x\r\n" % (len(BODY) - 1))
    header = MESSAGE.header_length or 0
    connection.feed(BODY[:header])
    assert connection.next_event() is not NEED_DATA
    assert connection.next_event() is NEED_DATA
    assert len(connection.get_buffer()) == len(BODY) - 1 - header
    assert [len(buffer) for buffer in connection.get_buffers()] == [len(BODY) - 1 - header]


def test_a_body_that_ends_with_the_connection_is_received_in_place() -> None:
    body = b"x" * 100_000
    connection = ClientConnection()
    connection.send_request("GET", "/", [("Host", "x")])
    connection.feed(head(b"HTTP/1.1 200 OK"))
    assert isinstance(connection.next_event(), ResponseHead)
    collector = Collector(1 << 20)
    connection.receive_body(collector)
    connection.feed(body)
    connection.receive_eof()
    connection.next_event()
    assert collector.data == body
    assert (connection.incoming.received_direct, connection.incoming.received_copied) == (len(body), 0)
    assert not connection.is_reusable


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["plain", "gzip"])
def test_chunks_and_their_cuts_do_not_show_in_a_large_body(encoding: str) -> None:
    body = bytes(range(256)) * 1200
    sent = compress(body, encoding)
    fields = [CHUNKED] if encoding == "plain" else [CHUNKED, b"Content-Encoding: gzip"]
    message = post(*fields) + chunked(sent, [70_000, 1, 66_000])
    driver = triad(collecting, message, cuts=range(1, len(message), len(message) // 40 + 1), tail=GET)
    assert driver.log[1] == ("end", len(body), body)


def test_framing_is_looked_at_once_however_much_lies_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    pattern = room._LINE_FEED  # noqa: SLF001 - what the spy stands for

    class Counting:
        def search(self, data: memoryview) -> re.Match[bytes] | None:
            nonlocal looked
            found = pattern.search(data)
            looked += found.end() if found else len(data)
            return found

    monkeypatch.setattr(room, "_LINE_FEED", Counting())
    framed = chunked(bytes(20_000), [1])
    assert read(framed, Limits())[0] == bytes(20_000)
    assert looked < len(framed) - 20_000


def test_a_limit_below_a_usual_line_holds_as_well() -> None:
    """Two lines that are seen at once are what they are one by one."""
    tiny = Limits(max_head_bytes=5)
    assert read(b"1\r\nd\r\n001\r\nd\r\n0\r\n\r\n", tiny)[0] == b"dd"
    error = refusal(b"1\r\nd\r\n1000\r\nd\r\n0\r\n\r\n", tiny)
    assert isinstance(error, LimitExceededError)


@pytest.mark.parametrize("second", [b"1", b"01", b"1;a", b"0001"])
@pytest.mark.parametrize("cut", range(13))
def test_two_lines_in_a_row_are_read_alike_in_every_cut(second: bytes, cut: int) -> None:
    framed = b"1\r\nd\r\n" + second + b"\r\ne\r\n0\r\n\r\n"
    driver = collecting()
    driver.push((post(CHUNKED) + framed)[: len(post(CHUNKED)) + cut])
    driver.push(framed[cut:])
    assert driver.log[1:] == [("end", 2, b"de")]


def read_joined(framed: bytes, limits: Limits) -> bytes:
    """Read a body as a connection does, its short chunks joined; return its data."""
    chunks = Chunks(limits)
    view = memoryview(framed)
    data = b""
    while view:
        if chunks.room:
            piece = view[: chunks.room]
            chunks.data_received(len(piece))
            data, view = data + piece, view[len(piece) :]
            continue
        joined, taken = chunks.join_short(view)
        data += joined
        view = view[taken or chunks.read(view) :]
    assert chunks.is_complete
    return data


@pytest.mark.parametrize("way", [lambda framed: read(framed)[0], lambda framed: read_joined(framed, SMALL)])
@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_extensions_may_have_exactly_so_many_bytes_more_than_the_data(
    way: Callable[[bytes], bytes], count: int
) -> None:
    """However the data have come: as of chunks that were joined, or by themselves."""

    def framed(nbytes: int) -> bytes:
        first, second = (b"1;" + b"e" * (size - 1) + b"\r\nd\r\n" for size in (LIMIT // 2, nbytes))
        return b"1\r\nd\r\n" * count + first + second + b"0\r\n\r\n"

    exact = LIMIT - LIMIT // 2 + count + 1
    if exact < LIMIT - 4:  # or the line itself would be too long
        assert way(framed(exact)) == b"d" * (count + 2)
        with pytest.raises(LimitExceededError, match="extensions"):
            way(framed(exact + 1))
    else:
        assert way(framed(LIMIT - 4)) == b"d" * (count + 2)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[1], [3, 4096, 1], [4097, 5, 5], [1] * 31 + [5000], [1] * 32 + [70_000]])
def test_short_chunks_that_are_joined_are_what_they_were(sizes: list[int]) -> None:
    body = bytes(range(256)) * 600
    framed = chunked(body[: sum(sizes) * (1 + 20_000 // sum(sizes))], sizes)
    assert read_joined(framed, Limits()) == read(framed, Limits())[0]
    message = head(b"POST / HTTP/1.1", b"Host: x", CHUNKED) + framed
    driver = triad(collecting, message, cuts=range(1, len(message), 4999), tail=GET)
    assert driver.log[1] == ("end", min(len(body), sum(sizes) * (1 + 20_000 // sum(sizes))), read(framed, Limits())[0])


def test_chunks_that_are_joined_cost_a_fraction() -> None:
    """Counted by what the receiver is fed."""
    fed = 0

    class Counting(Collector):
        def feed(self, chunk: Any) -> int:  # noqa: ANN401 - any buffer
            nonlocal fed
            fed += 1
            return super().feed(chunk)

    driver = server(lambda _: Counting(1 << 20))
    driver.push(head(b"POST / HTTP/1.1", b"Host: x", CHUNKED) + chunked(bytes(9600), [1]))
    assert driver.log[1] == ("end", 9600, bytes(9600))
    assert fed < 400


@pytest.mark.parametrize("paced", [False, True])
def test_the_first_failure_of_a_body_is_reported(paced: bool) -> None:
    """Damaged data, and then a bad line, in one read."""
    damaged = bytearray(compress(b"x" * 5000, "gzip"))
    damaged[-8] ^= 1
    message = head(b"POST / HTTP/1.1", b"Host: x", CHUNKED, b"Content-Encoding: gzip")
    message += chunked(bytes(damaged), [10])[:-5] + b"x\r\n"
    driver = triad(lambda: server(lambda _: Collector(1 << 20), paced=paced), message)
    assert refuses(driver, code=ErrorCode.INVALID_COMPRESSION, status=400)
