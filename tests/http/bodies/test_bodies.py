"""Bodies: three framings, three compressions, and everything that can be wrong with them."""

from __future__ import annotations

import gzip
from functools import partial

import pytest

from streamcodec import ErrorCode, LimitExceededError, Limits, RemoteProtocolError, request_decoder
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import Collector, Receiver, RequestHead, ResponseHead, ServerConnection
from tests.http.driver import Driver, client, refuses, server, triad
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

COMPLETE = ["head", "header", "tensor", "tensor", "tensor", "tensor", "end"]
CHUNKED = b"Transfer-Encoding: chunked"
JSON = b'{"inputs": []}'


def kinds(driver: Driver) -> list[object]:
    return [entry[0] for entry in driver.log]


def content(driver: Driver) -> list[object]:
    """What came out without the heads, which tell the framings apart."""
    return [entry for entry in driver.log if entry[0] not in {"head", "closed"}]


@pytest.fixture(scope="module")
def plain() -> list[object]:
    """What comes out of the body with `Content-Length`."""
    driver = server()
    driver.push(framed(BODY, IHCL))
    assert kinds(driver) == COMPLETE
    return content(driver)


@pytest.mark.parametrize("sizes", [[1], [2], [7], [64], [len(BODY) - 1], [len(BODY)], [1, 100, 3]])
def test_chunks_of_any_size_change_nothing(sizes: list[int], plain: list[object]) -> None:
    message = framed(BODY, IHCL, sizes=sizes)
    driver = triad(server, message, cuts=range(1, len(message), 11), tail=GET)
    assert content(driver)[: len(plain)] == plain
    assert kinds(driver)[-3:] == ["head", "end", "closed"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw"])
@pytest.mark.parametrize("sizes", [None, [1], [50], [1000]])
def test_compressed_bodies_come_out_as_they_were(encoding: str, sizes: list[int] | None, plain: list[object]) -> None:
    name = b"Content-Encoding: " + encoding.replace("raw", "deflate").encode()
    message = framed(compress(BODY, encoding), IHCL, name, sizes=sizes)
    driver = triad(server, message, cuts=range(1, len(message), 11), tail=GET)
    assert content(driver)[: len(plain)] == plain
    assert kinds(driver)[-3:] == ["head", "end", "closed"]


@pytest.mark.parametrize("name", [b"gzip", b"GZIP", b"identity", b"Identity", b""])
def test_names_of_encodings_have_no_letter_case(name: bytes) -> None:
    body = compress(BODY, "gzip") if name.lower() == b"gzip" else BODY
    driver = server()
    driver.push(framed(body, IHCL, b"Content-Encoding: " + name))
    assert kinds(driver) == COMPLETE


def test_a_large_compressed_body_passes_through_in_pieces() -> None:
    body = bytes(300_000)
    message = framed(gzip.compress(body[:200_000]) + gzip.compress(body[200_000:]), b"Content-Encoding: gzip")
    driver = triad(partial(server, lambda _: Collector(1 << 20)), message, cuts=range(1, len(message), 50))
    assert driver.log[1] == ("end", len(body), body)


@pytest.mark.parametrize(
    ("extension", "trailers"),
    [
        (b";name=value", b""),
        (b';a="b c";d', b"X-Check: 1\r\n"),
        (b" ;\ta", b"Content-Length: 9\r\nX: \xff\r\n"),
        (b";" + b"x" * 7000, b"X: " + b"y" * 9000 + b"\r\n"),
    ],
)
def test_extensions_and_trailers_are_read_over(extension: bytes, trailers: bytes, plain: list[object]) -> None:
    body = chunked(BODY, [200], extension=extension, trailers=trailers)
    message = post(CHUNKED, IHCL) + body
    driver = triad(server, message, cuts=range(len(message) - 90, len(message)), tail=GET)
    assert content(driver)[: len(plain)] == plain


@pytest.mark.parametrize("body", [b"0\r\n\r\n", b"000;x\r\n\r\n"])
def test_a_chunked_body_of_nothing_is_empty(body: bytes) -> None:
    driver = triad(server, post(CHUNKED) + body, tail=GET)
    assert refuses(driver, code=ErrorCode.EMPTY_BODY, status=400)
    assert kinds(driver) == ["head", "error", "closed"]


@pytest.mark.parametrize(
    "broken",
    [
        b"x\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b"\r\n",
        b" 1\r\n",
        b"1 1\r\n",
        b"f" * 21 + b"\r\n",
        b"1\nxx\r\n",
        b"2\r\n{}xx0\r\n\r\n",
        b"2\r\n{}\nx0\r\n\r\n",
        b"2\r\n{}\r\rx0\r\n\r\n",
        b"0\r\nno field\r\n\r\n",
        b"0\r\nX: \0\r\n\r\n",
    ],
)
def test_broken_chunks_close_the_connection(broken: bytes) -> None:
    data = b"3\r\n \r\n\r\n" + broken
    driver = triad(partial(server, lambda _: Collector(0)), post(CHUNKED) + data, tail=b"more\r\n\r\n" + GET)
    assert kinds(driver) == ["head", "error", "closed"]
    assert refuses(driver, code=ErrorCode.INVALID_HTTP, status=400)
    assert "b'" not in str(driver.log[1][3])


def test_broken_chunks_stay_the_error_whatever_follows() -> None:
    connection = ServerConnection()
    connection.feed(post(CHUNKED))
    assert isinstance(connection.next_event(), RequestHead)
    connection.receive_body(Collector(0))
    assert connection.feed(b"xx\r\n") == 4
    assert connection.feed(b"1\r\n") == 0
    connection.receive_eof()
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="before a chunk"):
            connection.next_event()
    assert b"Connection: close\r\n" in b"".join(connection.send_response(400))


def test_a_tensor_that_came_before_the_chunks_broke_is_reported_first() -> None:
    body = chunked(BODY, [len(BODY)])[:-5]
    driver = triad(server, post(CHUNKED, IHCL) + body + b"zz\r\n", cuts=())
    assert kinds(driver) == [*COMPLETE[:-1], "error", "closed"]
    assert driver.log[-2][4] == len(BODY)


@pytest.mark.parametrize("encoding", ["plain", "gzip", "deflate"])
def test_a_chunked_body_longer_than_its_message_is_refused_where_it_shows(encoding: str) -> None:
    fields = [] if encoding == "plain" else [b"Content-Encoding: " + encoding.encode()]
    message = framed(compress(BODY + b"!", encoding), IHCL, *fields, sizes=[40])
    driver = triad(server, message)
    assert refuses(driver, code=ErrorCode.TRAILING_BYTES, status=400)
    assert driver.log[-2][4] == len(BODY)


@pytest.mark.parametrize("missing", [1, 5, 30, len(BODY) - 10, len(BODY) - 1])
def test_a_chunked_body_shorter_than_its_message_is_refused_where_it_ends(missing: int) -> None:
    message = framed(BODY[:-missing], IHCL, sizes=[40])
    driver = triad(server, message, tail=GET)
    assert refuses(driver, code=ErrorCode.TRUNCATED, status=400)
    error = next(entry for entry in driver.log if entry[0] == "error")
    assert error[4] == len(BODY) - missing


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_body_of_another_length_is_refused_before_any_tensor_byte(difference: int) -> None:
    message = post(IHCL, b"Content-Length: %d" % (len(BODY) + difference)) + BODY
    driver = server()
    driver.push(message[: message.index(b"\r\n\r\n") + 4 + (REQUEST.header_length or 0)])
    assert refuses(driver, code=ErrorCode.BODY_LENGTH_MISMATCH, status=400)
    assert kinds(driver) == ["head", "error"]


@pytest.mark.parametrize("sizes", [None, [30]])
def test_trailing_bytes_show_also_when_the_decoder_was_not_told_the_length(sizes: list[int] | None) -> None:
    def open_untold(event: RequestHead | ResponseHead) -> Receiver:
        return request_decoder(header_length=header_length_of(event.fields), body_length=None)

    driver = triad(partial(server, open_untold), framed(BODY + b"??", IHCL, sizes=sizes))
    assert refuses(driver, code=ErrorCode.TRAILING_BYTES, status=400)
    assert driver.log[-2][4] == len(BODY)
    cut_short = server(open_untold)
    cut_short.push(framed(BODY + b"??", IHCL, sizes=sizes)[: -9 if sizes else -2])
    cut_short.end()
    assert refuses(cut_short, code=ErrorCode.TRUNCATED, status=400)


def damaged(encoding: str, damage: str) -> bytes:
    data = compress(JSON, encoding)
    match damage:
        case "truncated":
            return data[:-3]
        case "trailing":
            return data + b"rest"
        case "checksum":
            return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]
        case "start":
            return b"\x1f\x8b\x07" + data[3:]
        case _:
            return b"x"


@pytest.mark.parametrize("damage", ["truncated", "trailing", "checksum", "start", "one byte"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("sizes", [None, [1], [9]])
def test_damaged_compression_is_refused(encoding: str, damage: str, sizes: list[int] | None) -> None:
    message = framed(damaged(encoding, damage), b"Content-Encoding: " + encoding.encode(), sizes=sizes)
    for step in (1, 7, len(message)):
        driver = server()
        for start in range(0, len(message), step):
            driver.push(message[start : start + step])
        assert refuses(driver, code=ErrorCode.INVALID_COMPRESSION, status=400)
        assert "end" not in kinds(driver)


@pytest.mark.parametrize("cut", range(1, len(compress(JSON, "gzip")), 3))
def test_the_end_of_input_in_a_compressed_body_is_a_truncation(cut: int) -> None:
    data = compress(JSON, "gzip")
    driver = server()
    driver.push(post(b"Content-Encoding: gzip", length(data)) + data[:cut])
    driver.end()
    assert refuses(driver, code=ErrorCode.TRUNCATED, status=400)


def test_no_more_is_decompressed_than_the_limits_allow() -> None:
    body = gzip.compress(bytes(1 << 20))
    connection = ServerConnection(Limits(max_compression_ratio=2))
    connection.feed(post(b"Content-Encoding: gzip", length(body)) + body)
    connection.next_event()
    collector = Collector(0)
    connection.receive_body(collector)
    with pytest.raises(LimitExceededError) as caught:
        connection.next_event()
    assert caught.value.limit == "max_compression_ratio"
    assert collector.offset < 200_000
    connection.send_response(413)
    connection.feed(GET)
    assert isinstance(connection.next_event(), RequestHead)


@pytest.mark.parametrize("sizes", [None, [100]])
def test_a_refused_compressed_body_is_dropped_as_it_is(sizes: list[int] | None) -> None:
    body = b"not JSON" + bytes(range(256)) * 900
    message = framed(
        compress(body, "gzip"), b"Inference-Header-Content-Length: 8", b"Content-Encoding: gzip", sizes=sizes
    )
    driver = triad(server, message, cuts=())
    assert refuses(driver, code=ErrorCode.INVALID_JSON, status=400)


@pytest.mark.parametrize("encoding", [b"gzip", b"br"])
def test_a_body_of_nothing_has_no_encoding(encoding: bytes) -> None:
    driver = triad(server, post(b"Content-Encoding: " + encoding), tail=GET)
    assert refuses(driver, code=ErrorCode.EMPTY_BODY, status=400)


# Responses, that also end with the connection


@pytest.mark.parametrize("encoding", ["plain", "gzip"])
def test_a_response_may_end_with_the_connection(encoding: str) -> None:
    name = b"Content-Encoding: " + (b"identity" if encoding == "plain" else encoding.encode())
    ihcl = b"Inference-Header-Content-Length: %d" % (RESPONSE.header_length or 0)
    message = head(b"HTTP/1.1 200 OK", ihcl, name) + compress(body_of(RESPONSE), encoding)
    driver = triad(client, message)
    assert kinds(driver) == ["head", "header", "tensor", "end"]
    assert driver.connection.incoming.is_eof


def test_a_response_that_ends_with_the_connection_too_early_is_refused() -> None:
    ihcl = b"Inference-Header-Content-Length: %d" % (RESPONSE.header_length or 0)
    for end in range(1, len(body_of(RESPONSE))):
        driver = client()
        driver.push(head(b"HTTP/1.1 200 OK", ihcl) + body_of(RESPONSE)[:end])
        driver.end()
        assert refuses(driver, code=ErrorCode.TRUNCATED, status=400)


@pytest.mark.parametrize("sizes", [None, [3]])
def test_a_collected_response_that_is_cut_off_is_refused(sizes: list[int] | None) -> None:
    start = partial(client, lambda _: Collector(100))
    body = b'{"error": "x"}'
    whole = response(body) if sizes is None else head(b"HTTP/1.1 200 OK", CHUNKED) + chunked(body, sizes)
    assert triad(start, whole).log[-1] == ("end", len(body), body)
    for end in range(len(whole) - len(body), len(whole)):
        driver = start()
        driver.push(whole[:end])
        driver.end()
        assert refuses(driver, code=ErrorCode.TRUNCATED, status=400)


def test_a_collector_keeps_the_first_bytes_and_counts_all() -> None:
    for face in (Driver.push, Driver.pull):
        collector = Collector(4)
        driver = client(lambda _, keep=collector: keep)  # type: ignore[misc] # mypy does not infer a default's type
        face(driver, response(bytes(range(256)) * 40))
        assert collector.data == bytes(range(4))
        assert (collector.offset, collector.is_complete, collector.needs_data) == (10_240, True, False)
