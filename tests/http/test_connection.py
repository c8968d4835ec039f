"""One server connection over its life: requests one after the other, pipelined, and how it comes to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamcodec import NEED_DATA, EndOfMessage, ErrorCode
from streamcodec.http import Collector, ConnectionClosed, RequestHead, ServerConnection
from streamcodec.http.scratch import SCRATCH_BYTES
from tests.http.driver import Driver, refuses, server, triad
from tests.http.messages import BODY, GET, IHCL, framed, head, length, post

ROOT = Path(__file__).parents[2]

REQUEST = framed(BODY, IHCL)


def get(target: bytes, *fields: bytes, version: bytes = b"1.1") -> bytes:
    return head(b"GET %b HTTP/%b" % (target, version), b"Host: x", *fields)


def targets(driver: Driver) -> list[str]:
    return [entry[1].target for entry in driver.log if isinstance(entry[1:] and entry[1], RequestHead)]  # type: ignore[attr-defined] # narrowed by isinstance


def answered(connection: ServerConnection, **arguments: str) -> bytes:
    """Answer the next request, which has no body, and return what was sent."""
    assert isinstance(connection.next_event(), RequestHead)
    return b"".join(connection.send_response(200, [*arguments.items()]))


def test_three_requests_follow_each_other_on_one_connection() -> None:
    driver = server()
    for _ in range(3):
        driver.push(REQUEST)
        assert driver.log[-1] == ("end", len(BODY), None)
    assert driver.sent.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert b"Connection: close" not in driver.sent
    driver.end()
    assert driver.log[-1] == ("closed",)


@pytest.mark.parametrize("face", [Driver.push, Driver.pull])
def test_pipelined_requests_are_answered_in_order(face: object) -> None:
    deliver = Driver.push if face is Driver.push else Driver.pull
    driver = server()
    deliver(driver, get(b"/1") + REQUEST + get(b"/2") + framed(BODY, IHCL, sizes=[50]) + get(b"/3"))
    assert targets(driver) == ["/1", "/v2/models/m/infer", "/2", "/v2/models/m/infer", "/3"]


def test_pipelined_requests_in_every_cut() -> None:
    message = get(b"/1") + framed(b"{}") + get(b"/2") + framed(b'{"inputs":[]}', sizes=[1]) + get(b"/3")
    assert targets(triad(server, message)) == ["/1", "/v2/models/m/infer", "/2", "/v2/models/m/infer", "/3"]


@pytest.mark.slow
def test_a_flood_of_pipelined_requests_is_not_taken_in() -> None:
    connection = ServerConnection()
    flood = GET * 10_000
    taken = connection.feed(flood)
    assert taken == SCRATCH_BYTES
    connection.next_event()
    for _ in range(5):
        assert connection.feed(flood[taken:]) == 0
    answers = 1
    connection.send_response(200)
    while taken < len(flood) or connection.incoming.has_input:
        taken += connection.feed(flood[taken:])
        if connection.next_event() is not NEED_DATA:
            connection.send_response(200)
            answers += 1
    assert answers == 10_000


def test_a_body_that_has_come_keeps_the_next_request_waiting() -> None:
    connection = ServerConnection()
    connection.feed(post(length(b"abc")))
    connection.next_event()
    assert connection.receive_body(Collector(9)) == b""
    assert connection.feed(b"abc" + GET) == 3
    assert connection.feed(GET) == 0
    assert isinstance(connection.next_event(), EndOfMessage)
    assert connection.feed(GET) == 0
    connection.send_response(200)
    assert connection.feed(GET) == len(GET)


def test_the_next_event_takes_no_time_before_a_head_and_after_the_last() -> None:
    connection = ServerConnection()
    found = [connection.incoming.is_light]
    connection.feed(get(b"/", b"Connection: close"))
    found.append(connection.incoming.is_light)
    connection.next_event()
    connection.send_response(200)
    found.append(connection.incoming.is_light)
    assert found == [True, False, True]


@pytest.mark.parametrize(
    "last",
    [get(b"/", b"Connection: close"), get(b"/", version=b"1.0"), get(b"/", b"Connection: keep-alive", version=b"1.0")],
)
def test_the_last_request_closes_the_connection(last: bytes) -> None:
    driver = triad(server, GET + last, tail=GET)
    assert [entry[0] for entry in driver.log] == ["head", "end", "head", "end", "closed"]
    assert driver.sent.endswith(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    connection = ServerConnection()
    connection.feed(last)
    connection.next_event()
    connection.send_response(200)
    assert not connection.has_unread_body
    assert connection.next_event() == ConnectionClosed()
    assert connection.next_event() == ConnectionClosed()
    assert connection.feed(GET) == 0


def test_a_request_of_http_1_0_may_have_a_body() -> None:
    message = post(IHCL, length(BODY), version=b"1.0") + BODY
    driver = triad(server, message, cuts=range(1, len(message), 7))
    assert [entry[0] for entry in driver.log][-2:] == ["end", "closed"]
    assert driver.log[-2] == ("end", len(BODY), None)


def test_the_owner_may_close() -> None:
    connection = ServerConnection()
    connection.feed(GET + GET)
    assert b"Connection: close\r\n" in answered(connection, Connection="close")
    assert connection.next_event() == ConnectionClosed()


def test_a_post_without_length_has_an_empty_body() -> None:
    driver = triad(server, post(IHCL), tail=GET)
    assert refuses(driver, code=ErrorCode.HEADER_EXCEEDS_BODY, status=400)
    driver = triad(server, post(), tail=GET)
    assert refuses(driver, code=ErrorCode.EMPTY_BODY, status=400)
    assert [entry[0] for entry in driver.log] == ["head", "error", "head", "end", "closed"]


def test_a_post_to_a_raw_model_without_length_is_no_raw_request_of_nothing() -> None:
    connection = ServerConnection()
    connection.feed(post(b"Inference-Header-Content-Length: 0"))
    event = connection.next_event()
    assert isinstance(event, RequestHead)
    assert event.content_length == event.body_length == 0


@pytest.mark.parametrize(
    ("method", "status", "expected"),
    [
        (b"HEAD", 200, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        (b"HEAD", 404, b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\n"),
        (b"GET", 200, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
        (b"GET", 204, b"HTTP/1.1 204 No Content\r\n\r\n"),
        (b"GET", 304, b"HTTP/1.1 304 Not Modified\r\n\r\n"),
        (b"GET", 299, b"HTTP/1.1 299 \r\nContent-Length: 5\r\n\r\nhello"),
        (b"GET", 599, b"HTTP/1.1 599 \r\nContent-Length: 5\r\n\r\nhello"),
    ],
)
def test_a_body_is_left_out_where_http_allows_none(method: bytes, status: int, expected: bytes) -> None:
    connection = ServerConnection()
    connection.feed(head(method + b" / HTTP/1.1", b"Host: x") + GET)
    connection.next_event()
    assert b"".join(connection.send_response(status, (), [b"hel", b"lo"])) == expected
    assert isinstance(connection.next_event(), RequestHead)


def test_a_given_length_is_kept() -> None:
    connection = ServerConnection()
    connection.feed(GET)
    connection.next_event()
    sent = b"".join(connection.send_response(200, [("content-length", "2"), ("X", "y")], [b"ok"]))
    assert sent == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX: y\r\n\r\nok"


def test_the_end_of_input_does_not_lose_the_requests_before_it() -> None:
    driver = server()
    connection = driver.connection
    connection.feed(GET * 2)
    connection.receive_eof()
    assert connection.feed(GET) == 0
    driver.pump()
    assert [entry[0] for entry in driver.log] == ["head", "end", "head", "end", "closed"]


@pytest.mark.parametrize("body", [BODY, b'{"inputs": []}'])
@pytest.mark.parametrize("is_early", [False, True])
def test_the_end_of_input_anywhere_in_a_body_is_an_error(body: bytes, is_early: bool) -> None:
    fields = [IHCL] if body is BODY else []
    for sizes in (None, [5]):
        message = framed(body, *fields, sizes=sizes)
        for cut in range(message.index(b"\r\n\r\n") + 4, len(message)):
            driver = server()
            if is_early:  # the connection knows of the end before the body has been let in
                driver.connection.feed(message[:cut])
            else:
                driver.push(message[:cut])
            driver.end()
            assert refuses(driver, code=ErrorCode.TRUNCATED, status=400), (cut, sizes)
            assert driver.log[-1] == ("closed",)


def test_an_empty_connection_just_ends() -> None:
    driver = server()
    driver.pump()
    driver.end()
    assert driver.log == [("closed",)]
    assert driver.sent == b""


def test_it_is_known_how_much_of_a_request_has_not_come() -> None:
    connection = ServerConnection()
    connection.feed(post(length(b"1234567890")) + b"1234")
    assert isinstance(connection.next_event(), RequestHead)
    assert connection.missing == 6
    connection.receive_body(Collector(10))
    assert connection.next_event() is NEED_DATA
    assert connection.missing == 6
    connection.feed(b"567890" + get(b"/"))
    assert connection.missing == 0


def test_it_is_not_known_of_chunks() -> None:
    connection = ServerConnection()
    connection.feed(post(b"Transfer-Encoding: chunked") + b"1\r\n")
    assert isinstance(connection.next_event(), RequestHead)
    assert connection.missing is None


_CONNECTIONS_WITHOUT_BYTES = """
import os
from streamcodec.http import ServerConnection
from tests.processes import resident
before = resident(os.getpid())
connections = [ServerConnection() for _ in range(400)]
print(resident(os.getpid()) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells how much memory a process has in RAM")
def test_scratch_memory_costs_nothing_before_bytes_come() -> None:
    """In a process of its own: others keep what earlier tests have left."""
    found = subprocess.run(
        [sys.executable, "-c", _CONNECTIONS_WITHOUT_BYTES], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert int(found.stdout) < 400 * SCRATCH_BYTES / 4
