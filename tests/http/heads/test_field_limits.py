"""Fields that are taken apart, and the first line of an answer, have a bound of their own."""

from __future__ import annotations

import pytest

from streamcodec import LimitExceededError, Limits
from streamcodec.http import ClientConnection, ResponseHead, ServerConnection

LIMITS = Limits(max_field_bytes=64)


def answered(head: bytes) -> object:
    connection = ClientConnection(LIMITS)
    connection.send_request("GET", "/", [("Host", "x")])
    connection.feed(head)
    return connection.next_event()


@pytest.mark.parametrize("fields", [b"Accept-Encoding: " + b"a" * 65, b"Origin: a\r\n" * 2 + b"Origin: " + b"b" * 63])
def test_a_long_field_that_is_taken_apart_is_refused(fields: bytes) -> None:
    connection = ServerConnection(LIMITS)
    connection.feed(b"GET / HTTP/1.1\r\nHost: x\r\nX-Unknown: " + b"a" * 1000 + b"\r\n" + fields + b"\r\n\r\n")
    with pytest.raises(LimitExceededError, match="has more than 64 bytes") as caught:
        connection.next_event()
    assert (caught.value.limit, caught.value.status_hint) == ("max_field_bytes", 431)


def test_a_field_of_an_answer_that_is_folded_counts_as_one() -> None:
    lines = b"Content-Type: " + b"a" * 40 + b"\r\n " + b"b" * 25
    with pytest.raises(LimitExceededError, match="Content-Type has more than 64 bytes"):
        answered(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + lines + b"\r\n\r\n")


def test_the_first_line_of_an_answer_is_bounded() -> None:
    with pytest.raises(LimitExceededError, match="first line has more than 64 bytes"):
        answered(b"HTTP/1.1 200 " + b"a" * 60 + b"\r\n\r\n")
    head = b"HTTP/1.1 200 " + b"a" * 40 + b"\r\nContent-Length: 0\r\nX: " + b"a" * 100 + b"\r\n\r\n"
    assert isinstance(answered(head), ResponseHead)
