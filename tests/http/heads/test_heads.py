"""Heads: what is accepted as one, what is refused, with which status, and that the cut never matters."""

from __future__ import annotations

import re
from typing import Any

import pytest

from streamcodec import DEFAULT_LIMITS, NEED_DATA, ErrorCode, LimitExceededError, Limits, RemoteProtocolError
from streamcodec.formats.v2.fields import header_length_of
from streamcodec.http import ConnectionClosed, Fields, RequestHead, ResponseHead, ServerConnection
from streamcodec.http import connection as room
from streamcodec.http import server as heads_room
from streamcodec.http.heads.parsed import is_host
from streamcodec.http.scratch import SCRATCH_BYTES
from tests.http.driver import Driver, client, refuses, server, triad
from tests.http.messages import BODY, GET, IHCL, REQUEST, framed, head, length, post, response

MAX_HEAD = DEFAULT_LIMITS.max_head_bytes


def read(data: bytes) -> RequestHead:
    connection = ServerConnection()
    assert connection.feed(data) == len(data)
    event = connection.next_event()
    assert isinstance(event, RequestHead)
    return event


def filled_head(nbytes: int) -> bytes:
    """Make a head of exactly this length."""
    empty = head(b"GET / HTTP/1.1", b"Host: x", b"X: ")
    return empty[:-4] + b"y" * (nbytes - len(empty)) + empty[-4:]


def test_a_head_says_method_target_fields_and_length() -> None:
    event = read(post(b"X-Two:  a b \t", IHCL, length(BODY)) + BODY)
    assert (event.method, event.target) == ("POST", "/v2/models/m/infer")
    assert event.fields.values(b"x-two") == [b"a b"]
    assert event.fields.values(b"absent") == []
    assert header_length_of(event.fields) == REQUEST.header_length
    assert event.content_length == event.body_length == len(BODY)


@pytest.mark.parametrize("name", [b"inference-header-content-length", b"INFERENCE-HEADER-CONTENT-LENGTH"])
def test_names_of_fields_have_no_letter_case(name: bytes) -> None:
    assert header_length_of(read(post(name + b": 12")).fields) == 12


@pytest.mark.parametrize(
    "fields",
    [
        *([b"Inference-Header-Content-Length: " + value] for value in (
            b"+8", b"-8", b"-0", b"8 8", b"1\t2", b"0x10", b"8.0", b"1e3", b"8,8", b"8, 8", b"", b"   ", b"eight",
            b"1_0", b"\xb2", b"9" * 20, b"0" * 20, b'"8"', b"8;", b"NaN",
        )),
        [b"Inference-Header-Content-Length: 8"] * 2,
        [b"Inference-Header-Content-Length: 8", b"inference-header-content-length: 9"],
        [b"Inference-Header-Content-Length: 0", b"Inference-Header-Content-Length: 0"],
    ],
)  # fmt: skip
def test_an_odd_header_length_is_refused_and_never_read_as_zero(fields: list[bytes]) -> None:
    driver = triad(server, post(*fields, length(BODY)) + BODY, cuts=())
    assert refuses(driver, code=ErrorCode.INVALID_HEADER_LENGTH, status=400)


@pytest.mark.parametrize(("value", "expected"), [(b"0", 0), (b" 8 ", 8), (b"008", 8), (b"9" * 19, 10**19 - 1)])
def test_a_plain_header_length_is_read(value: bytes, expected: int) -> None:
    assert header_length_of(read(post(b"Inference-Header-Content-Length:" + value)).fields) == expected


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (post(b"Content-Length: +8"), 400),
        (post(b"Content-Length: -8"), 400),
        (post(b"Content-Length: 0x8"), 400),
        (post(b"Content-Length: 8 8"), 400),
        (post(b"Content-Length:"), 400),
        (post(b"Content-Length: " + b"9" * 21), 400),
        (post(b"Content-Length: 8", b"Content-Length: 9"), 400),
        (post(b"Content-Length: 8, 9"), 400),
        (post(b"Transfer-Encoding: gzip"), 501),
        (post(b"Transfer-Encoding: gzip, chunked"), 501),
        (post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 501),
        (post(b"Transfer-Encoding: identity"), 501),
        (post(b"Transfer-Encoding: "), 501),
        (post(b"X: a\0b"), 400),
        (post(b"X: a\rb"), 400),
        (post(b"X: a\r"), 400),
        (post(b"X : a"), 400),
        (post(b"X"), 400),
        (post(b": a"), 400),
        (post(b"Host: y"), 400),
        (head(b"GET / HTTP/1.1"), 400),
        (head(b"GET / HTTP/1.1", b" folded: at once", b"Host: x"), 400),
        (head(b"GET /a b HTTP/1.1", b"Host: x"), 400),
        (head(b"GET /\xff HTTP/1.1", b"Host: x"), 400),
        (head(b"GET", b"Host: x"), 400),
        (head(b"SSH-2.0-OpenSSH_9.6"), 400),
        (b"GET / HTTP/1.1\nHost: x\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\n\r\n", 400),
        (b" " + GET, 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ],
)
def test_what_is_no_http_is_refused_and_the_connection_closed(data: bytes, status: int) -> None:
    driver = triad(server, data)
    assert [entry[0] for entry in driver.log] == ["error", "closed"]
    assert refuses(driver, code=ErrorCode.INVALID_HTTP, status=status)
    assert b"Connection: close" in driver.sent


@pytest.mark.parametrize(
    "data",
    [
        post(b"Transfer-Encoding: chunked", b"Content-Length: 8"),
        post(b"Content-Length: 8", b"Transfer-Encoding: chunked"),
        post(b"Transfer-Encoding: chunked", version=b"1.0"),
    ],
)
def test_framing_that_can_be_read_two_ways_is_refused(data: bytes) -> None:
    driver = triad(server, data, tail=b"8\r\nabcdefgh\r\n0\r\n\r\n")
    assert refuses(driver, code=ErrorCode.AMBIGUOUS_FRAMING, status=400)
    assert [entry[0] for entry in driver.log] == ["error", "closed"]


@pytest.mark.parametrize("fields", [[b"Content-Length: 8, 8"], [b"Content-Length: 8"] * 2])
def test_equal_lengths_are_one_length(fields: list[bytes]) -> None:
    assert read(post(*fields)).content_length == 8


@pytest.mark.parametrize("fold", [b" b", b"\tb", b" \t b", b" ", b" Content-Length: 5"])
def test_a_folded_line_is_refused_in_a_request_and_joined_by_one_blank_in_a_response(fold: bytes) -> None:
    driver = triad(server, post(b"X: a", fold), tail=GET)
    assert refuses(driver, code=ErrorCode.INVALID_HTTP, status=400)
    assert driver.log[-1] == ("closed",)
    driver = triad(client, head(b"HTTP/1.1 204 No Content", b"X: a", fold))
    event = driver.log[0][1]
    assert isinstance(event, ResponseHead)
    assert event.fields.values(b"x") == [(b"a " + fold.lstrip()).rstrip()]


HOSTS = ["", "x", "x:8000", "x:", "127.0.0.1", "[::1]", "[::1]:80", "my_model.default.svc", "a%20b", "x;y", "user:80"]
NO_HOSTS = [
    "a b", "a/b", "a@b", "a,b c", "http://a", "a:b", "a:80:80", "::1", "[::1", "[::1]x", "[]", "[x]", "a?b", "a#b",
    "a%2", "a\\b", '"a"', "<a>", "a|b", "\xe9", "a:80 ", "a, b", "{a}", "^",
]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_hosts(host: str, version: bytes) -> None:
    assert read(head(b"GET / HTTP/" + version, b"Host: " + host.encode())).target == "/"


@pytest.mark.parametrize("host", NO_HOSTS)
def test_hosts_that_are_none(host: str) -> None:
    assert not is_host(host)
    if host.strip() != host:  # of white space around it nobody is told
        return
    driver = triad(server, head(b"GET / HTTP/1.0", b"Host: " + host.encode("latin-1")), tail=GET, cuts=())
    assert refuses(driver, code=ErrorCode.INVALID_HTTP, status=400)
    assert driver.log[-1] == ("closed",)


CONTROLS = [*range(9), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F]


PLACES = [
    b"G%bET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /a%bb HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1%b\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x%b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX%b: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: a%bb\r\n\r\n",
]


@pytest.mark.parametrize("place", PLACES)
def test_no_control_character_gets_into_a_head(place: bytes) -> None:
    for control in CONTROLS:
        driver = triad(server, place % bytes([control]), tail=GET, cuts=(20,))
        assert refuses(driver, code=ErrorCode.INVALID_HTTP, status=400)
        assert driver.log[-1] == ("closed",)


@pytest.mark.parametrize("control", CONTROLS)
def test_no_control_character_comes_with_an_answer(control: int) -> None:
    for place in (b"HTTP/1.1 200 O%bK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: a%bb\r\n\r\n"):
        assert refuses(triad(client, place % bytes([control]), cuts=()), code=ErrorCode.INVALID_HTTP, status=400)


def test_as_many_fields_as_may_be_and_one_more() -> None:
    def start() -> Driver:
        return Driver(ServerConnection(Limits(max_head_fields=5)))

    fields = [b"Host: x", b"a:", b"a:", b"b: c", b"d:"]
    assert triad(start, head(b"GET / HTTP/1.1", *fields)).log[0][0] == "head"
    driver = triad(start, head(b"GET / HTTP/1.1", *fields, b"e:"))
    assert refuses(driver, code=ErrorCode.LIMIT_EXCEEDED, status=431)


def test_a_head_of_more_fields_than_anybody_sends_is_not_even_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_room, "parse_request", None)
    driver = server()
    driver.push(GET[:-2] + b"a:\r\n" * 8000 + b"\r\n")
    assert refuses(driver, code=ErrorCode.LIMIT_EXCEEDED, status=431)


def test_what_the_peer_sent_is_not_quoted_in_the_error() -> None:
    for bad in (head(b"GET / HTTP/1.1", b"secret"), head(b"secret"), head(b"GET / HTTP/1.1", b"Host: secret/")):
        driver = server()
        driver.push(bad)
        message = str(driver.log[0][3])
        assert re.fullmatch(r"illegal (header line|request line)|the field Host is not a valid host", message)


@pytest.mark.parametrize("value", [b"100-continue", b"100-Continue"])
def test_the_one_known_expectation(value: bytes) -> None:
    assert read(post(b"Expect: " + value)).method == "POST"


@pytest.mark.parametrize("fields", [[b"Expect: 200-ok"], [b"Expect: 100-continue, x"], [b"Expect: 100-continue"] * 2])
def test_any_other_expectation_is_417(fields: list[bytes]) -> None:
    driver = triad(server, post(*fields, b"Content-Length: 5"), tail=b"12345")
    assert refuses(driver, code=ErrorCode.UNSUPPORTED_EXPECTATION, status=417)
    assert driver.sent.startswith(b"HTTP/1.1 417 Expectation Failed\r\n")


@pytest.mark.parametrize("length_field", [b"5000000000", b"99999999999999999999"])
def test_lengths_beyond_32_and_64_bits_are_just_numbers(length_field: bytes) -> None:
    assert read(post(IHCL, b"Content-Length: " + length_field)).content_length == int(length_field)


@pytest.mark.parametrize("line", [b"OPTIONS * HTTP/1.1", b"FROB /x HTTP/1.1", b"connect host:80 HTTP/1.1"])
def test_unusual_methods_are_the_services_business(line: bytes) -> None:
    connection = ServerConnection()
    connection.feed(head(line, b"Host: x") + GET)
    event = connection.next_event()
    assert isinstance(event, RequestHead)
    assert event.method == line.split()[0].decode()
    assert bytes(connection.send_response(405)[0]).startswith(b"HTTP/1.1 405 ")
    assert isinstance(connection.next_event(), RequestHead)


@pytest.mark.parametrize("fields", [(), (b"Expect: 100-continue", length(BODY)), (b"Transfer-Encoding: chunked",)])
def test_what_stands_behind_connect_is_no_request(fields: tuple[bytes, ...]) -> None:
    driver = triad(server, head(b"CONNECT host:80 HTTP/1.1", b"Host: x", *fields), tail=GET)
    assert [entry[0] for entry in driver.log] == ["error", "closed"]
    assert refuses(driver, code=ErrorCode.METHOD_NOT_ALLOWED, status=501)
    assert driver.sent.startswith(b"HTTP/1.1 501 Not Implemented\r\n")


def test_one_empty_line_before_each_request_is_skipped() -> None:
    request = b"\r\n" + framed(BODY, IHCL) + b"\r\n" + GET + GET + b"\r\n"
    driver = triad(server, request, cuts=(*range(1, 60), *range(len(request) - 90, len(request))))
    kinds = [entry[0] for entry in driver.log]
    assert [kind for kind in kinds if kind not in {"header", "tensor"}] == ["head", "end"] * 3 + ["closed"]


@pytest.mark.parametrize("start", [b"\r\n\r\n", b"\n", b"\r\r\n", b"\rG", b" \r\n", b"\r\n ", b"\r\n\n", b"\r\n\x16"])
def test_other_empty_lines_are_refused(start: bytes) -> None:
    for before in (b"", GET, framed(b'{"inputs":[]}', sizes=[5])):
        driver = triad(server, before + start + GET)
        assert [entry[0] for entry in driver.log][-2:] == ["error", "closed"]
        assert refuses(driver, code=ErrorCode.INVALID_HTTP, status=400)


def test_an_empty_line_is_not_counted_as_a_part_of_the_head() -> None:
    for size, expected in ((MAX_HEAD, "head"), (MAX_HEAD + 1, "error")):
        driver = server()
        driver.push(b"\r\n" + filled_head(size))
        assert driver.log[0][0] == expected


@pytest.mark.parametrize(("begun", "kind"), [(b"\r", "error"), (b"\r\n", "closed"), (b"\r\nG", "error")])
def test_the_end_of_input_behind_an_empty_line(begun: bytes, kind: str) -> None:
    assert triad(server, begun).log[0][0] == kind


def test_an_answer_has_no_empty_line_before_it() -> None:
    driver = triad(client, b"\r\n" + response(b"{}"))
    assert refuses(driver, code=ErrorCode.INVALID_HTTP, status=400)


REFUSED_HEADS = {
    "an expectation": (417, head(b"HEAD / HTTP/1.1", b"Host: x", b"Expect: foo")),
    "another version": (505, head(b"HEAD / HTTP/2.0", b"Host: x")),
    "no version": (400, head(b"HEAD /", b"Host: x")),
    "a bad host": (400, head(b"HEAD / HTTP/1.1", b"Host: a b")),
    "no host": (400, head(b"HEAD / HTTP/1.1")),
    "a bad host, of 1.0": (400, head(b"HEAD / HTTP/1.0", b"Host: a b")),
    "no end for sure": (400, head(b"HEAD / HTTP/1.1", b"Host: x", b"Transfer-Encoding: chunked", b"Content-Length: 3")),
    "two lengths": (400, head(b"HEAD / HTTP/1.1", b"Host: x", b"Content-Length: 3", b"Content-Length: 4")),
    "a folded field": (400, head(b"HEAD / HTTP/1.1", b"Host: x", b"X: y\r\n z")),
    "a control character": (400, head(b"HEAD / HTTP/1.1", b"Host: x", b"X: \x01")),
    "too many fields": (431, head(b"HEAD / HTTP/1.1", b"Host: x", *[b"X: y"] * 300)),
    "too long a line": (414, b"HEAD /" + b"x" * MAX_HEAD),
    "too long": (431, head(b"HEAD / HTTP/1.1", b"Host: x", b"X: " + b"y" * MAX_HEAD)),
    "no end": (400, b"HEAD / HTTP/1.1\r\nHost: x\r\n"),
}


@pytest.mark.parametrize(("status", "message"), REFUSED_HEADS.values(), ids=REFUSED_HEADS)
def test_a_refused_head_request_is_answered_by_a_head_alone(status: int, message: bytes) -> None:
    """In any cut, and behind another request, whose answer comes before."""
    cuts = range(1, len(message), max(1, len(message) // 50))
    for before in (b"", GET, b"\r\n"):
        driver = triad(server, before + message, cuts=cuts)
        assert [entry[0] for entry in driver.log][-2:] == ["error", "closed"]
        head_of_it, end, body = driver.sent[driver.sent.rindex(b"HTTP/1.1 ") :].partition(b"\r\n\r\n")
        assert (end, body) == (b"\r\n\r\n", b"")
        assert head_of_it.startswith(b"HTTP/1.1 %d " % status)
        assert b"\r\nContent-Length: " in head_of_it
        assert b"\r\nConnection: close" in head_of_it
        assert driver.sent.count(b"HTTP/1.1 200 ") == (before == GET)
    as_get = server()
    as_get.push(message.replace(b"HEAD", b"GET", 1))
    as_get.end()
    assert as_get.sent.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("begun", [b"HEAD / HT", b"HEAD ", b"HEA", b"\r\nHEAD "])
def test_a_head_that_is_given_up_is_answered_by_what_is_known_of_it(begun: bytes) -> None:
    connection = ServerConnection()
    connection.feed(begun)
    assert connection.next_event() is NEED_DATA
    connection.give_up(RemoteProtocolError("too slow", code=ErrorCode.TOO_SLOW, status_hint=408))
    sent = b"".join(connection.send_response(408, (), [b"late"]))
    assert sent.endswith(b"late") == (b"HEAD" not in begun)
    assert connection.next_event() == ConnectionClosed()


@pytest.mark.parametrize("line", [b"PRI * HTTP/2.0", b"GET / HTTP/0.9", b"GET / HTTP/9.9"])
def test_other_major_versions_are_refused_with_the_status_for_it(line: bytes) -> None:
    driver = triad(server, line + b"\r\n\r\nSM\r\n\r\n")
    assert [entry[0] for entry in driver.log] == ["error", "closed"]
    assert refuses(driver, code="invalid-http", status=505)


def test_a_higher_minor_version_is_taken_for_1_1_and_needs_a_host_as_well() -> None:
    driver = triad(server, head(b"GET / HTTP/1.2", b"Host: x"))
    assert [entry[0] for entry in driver.log] == ["head", "end", "closed"]
    assert refuses(triad(server, head(b"GET / HTTP/1.2")), code="invalid-http", status=400)


def test_an_answer_of_another_major_version_is_refused() -> None:
    driver = triad(client, head(b"HTTP/2.0 200 OK", b"Content-Length: 0"))
    assert refuses(driver, code="invalid-http", status=505)


def test_an_upgrade_is_ignored() -> None:
    upgrade = head(b"GET / HTTP/1.1", b"Host: x", b"Connection: Upgrade", b"Upgrade: websocket")
    driver = server()
    driver.push(upgrade + GET)
    assert [entry[0] for entry in driver.log] == ["head", "end"] * 2
    assert driver.sent.count(b"HTTP/1.1 200 OK\r\n") == 2


@pytest.mark.parametrize("limit", [64, 512, MAX_HEAD, 70_000, 200_000])
def test_a_head_at_the_limit_passes_and_one_byte_more_does_not(limit: int) -> None:
    limits = Limits(max_head_bytes=limit)

    def start() -> Driver:
        return Driver(ServerConnection(limits))

    borders = (1, limit - 5, limit - 1)
    driver = triad(start, filled_head(limit), cuts=borders) if limit < 1000 else start()
    driver.push(filled_head(limit) if limit >= 1000 else b"")
    assert driver.log[0][0] == "head"
    driver = start()
    driver.push(filled_head(limit + 1))
    assert refuses(driver, code=ErrorCode.LIMIT_EXCEEDED, status=431)
    assert driver.sent.startswith(b"HTTP/1.1 431 ")
    assert driver.log[0][1] == LimitExceededError.__name__


@pytest.mark.parametrize(
    ("data", "status"), [(b"GET /" + b"a" * (1 << 20), 414), (filled_head(1 << 20), 431), (b"G" * 80_000, 414)]
)
def test_a_huge_head_is_refused_after_one_scratch(data: bytes, status: int) -> None:
    connection = ServerConnection()
    assert connection.feed(data) == SCRATCH_BYTES
    with pytest.raises(LimitExceededError) as caught:
        connection.next_event()
    assert (caught.value.limit, caught.value.status_hint) == ("max_head_bytes", status)
    assert bytes(connection.send_response(status)[0]).startswith(b"HTTP/1.1 %d " % status)
    assert connection.has_unread_body


def test_of_a_long_head_no_more_is_taken_than_shows_that_it_is_too_long() -> None:
    connection = ServerConnection(Limits(max_head_bytes=100_000))
    assert connection.feed(b"GET /" + bytes(200_000)) == 100_001


def test_a_control_character_is_the_error_even_before_the_length() -> None:
    driver = triad(server, b"\x16" + b"x" * 40, cuts=range(1, 40))
    large = server()
    large.push(b"\x16" + b"x" * 100_000)
    assert driver.log == large.log[:1] + driver.log[1:]


def test_the_refusal_after_answered_requests_is_still_an_answer() -> None:
    driver = server()
    driver.push(GET + head(b"HEAD / HTTP/1.1", b"Host: x"))
    driver.push(b"\x16")
    assert refuses(driver, code=ErrorCode.INVALID_HTTP, status=400)
    assert driver.sent.endswith(b"\r\n\r\ninvalid-http")


def test_searching_the_end_of_a_head_looks_at_each_byte_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = 0
    pattern = re.compile(rb"\n\r?\n")

    class Counting:
        def search(self, data: Any, start: int, end: int) -> re.Match[bytes] | None:  # noqa: ANN401 - any buffer
            nonlocal scanned
            scanned += end - start
            return pattern.search(data, start, end)

    monkeypatch.setattr(room, "_HEAD_END", Counting())
    driver = server()
    for byte in filled_head(MAX_HEAD):
        driver.push(bytes([byte]))
    assert driver.log[0][0] == "head"
    assert scanned <= 4 * MAX_HEAD


def test_a_head_in_small_pieces_is_not_copied_again_and_again() -> None:
    connection = ServerConnection()
    copied = 0
    for byte in filled_head(MAX_HEAD)[:-1]:
        connection.feed(bytes([byte]))
        copied += len(connection.incoming.peek())
        assert connection.next_event() is NEED_DATA
    assert copied < 10
    connection.feed(b"\n")
    assert connection.incoming.peek() == filled_head(MAX_HEAD)
    assert isinstance(connection.next_event(), RequestHead)
    assert connection.incoming.peek() == b""


@pytest.mark.parametrize("cut", range(1, len(GET)))
def test_the_end_of_input_within_a_head_is_an_error(cut: int) -> None:
    driver = server()
    driver.push(GET[:cut])
    driver.end()
    assert refuses(driver, code=ErrorCode.CONNECTION_CLOSED, status=400)
    assert driver.log[-1] == ("closed",)


def test_fields_that_do_not_fit_the_service_are_reported_where_they_are_asked_for() -> None:
    event = read(post(b"Content-Encoding: br", b"Content-Length: 3"))
    with pytest.raises(RemoteProtocolError) as caught:
        _ = event.body_length
    assert caught.value.status_hint == 415
    assert read(post(b"Content-Encoding: gzip", b"Content-Length: 3")).body_length is None
    assert read(post(b"Content-Encoding: identity", b"Content-Length: 3")).body_length == 3
    assert read(post(b"Content-Encoding: br", b"Content-Length: 0")).body_length == 0


@pytest.mark.parametrize(("place", "status"), [(-2, 431), (-1, 431), (0, 431), (1, 414), (2, 414)])
def test_whether_the_first_line_is_too_long_is_told_by_exactly_its_bytes(place: int, status: int) -> None:
    """Where the line feed is the first byte too many, it has come in every cut."""
    limit = 100
    line = b"GET /".ljust(limit + place - 1, b"x") + b"\r\n"
    assert line.index(b"\n") == limit + place

    def start() -> Driver:
        return Driver(ServerConnection(Limits(max_head_bytes=limit)))

    driver = triad(start, line + b"Host: x" + b"y" * limit)
    assert refuses(driver, code=ErrorCode.LIMIT_EXCEEDED, status=status)


@pytest.mark.parametrize(
    "lines", [(), (b"A: b",), (b"A:b", b"a: \t c:d \t ", b"X-Empty:", b"X-Blank:  "), (b"X: \xff\x80", b"Y: a\tb")]
)
def test_the_fields_of_an_accepted_head_are_those_that_were_read(lines: tuple[bytes, ...]) -> None:
    text = head(b"GET /v2 HTTP/1.1", b"Host: x", *lines)
    assert Fields.of_accepted(text) == read(text).fields
