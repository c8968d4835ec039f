"""Whole responses, and forms of requests: the short ways of a client come to what the ordinary ones come to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamcodec import NEED_DATA, EndOfMessage, Limits, LocalProtocolError
from streamcodec.http import ClientConnection, Collector, ResponseHead
from streamcodec.http.client import PlainHead
from streamcodec.http.requests import RequestForm
from tests.http.messages import head

TARGET = "/v2/models/m/infer"
FIELDS = [("Host", "here"), ("X-A", "1")]
FORM = RequestForm(TARGET, FIELDS)
BODY = b'{"a":1}12345678'

WHOLE = {
    "usual": head(b"HTTP/1.1 200 OK", b"Content-Length: 15", b"Content-Type: application/octet-stream") + BODY,
    "with a header": head(b"HTTP/1.1 200 OK", b"Inference-Header-Content-Length: 7", b"Content-Length: 15") + BODY,
    "last": head(b"HTTP/1.1 200 OK", b"Connection: close", b"Content-Length: 15") + BODY,
    "kept": head(b"HTTP/1.1 200 OK", b"Connection: keep-alive", b"Content-Length: 15") + BODY,
    "refusal": head(b"HTTP/1.1 400 Bad Request", b"X: y", b"Content-Length: 15") + BODY,
    "empty": head(b"HTTP/1.1 500", b"Content-Length: 0"),
}
NOT_WHOLE = {
    "not plain": head(b"HTTP/1.1 200 OK", b"Content-Length: 15", b"Upgrade: x") + BODY,
    "old": head(b"HTTP/1.0 200 OK", b"Content-Length: 15") + BODY,
    "without a length": head(b"HTTP/1.1 200 OK", b"Content-Type: a/b") + BODY,
    "chunks": head(b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "compressed": head(b"HTTP/1.1 200 OK", b"Content-Length: 15", b"Content-Encoding: gzip") + BODY,
    "more than it": WHOLE["usual"] + b"H",
    "interim": head(b"HTTP/1.1 103 Early Hints"),
    "without a body": head(b"HTTP/1.1 204 No Content", b"Content-Length: 0"),
    "a long head": head(b"HTTP/1.1 200 OK", b"X: " + b"y" * 2100, b"Content-Length: 15") + BODY,
}


def asked(limits: Limits | None = None, method: str = "POST") -> ClientConnection:
    connection = ClientConnection(limits or Limits())
    fields = [*FIELDS, ("Content-Length", "0")] if method == "POST" else FIELDS
    connection.send_request(method, TARGET, fields)
    return connection


def received(connection: ClientConnection) -> tuple[ResponseHead, bytes]:
    """Read a response event by event."""
    found = connection.next_event()
    assert isinstance(found, ResponseHead)
    collector = Collector(1 << 10)
    connection.receive_body(collector)
    assert isinstance(connection.next_event(), EndOfMessage)
    return found, bytes(collector.data)


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_response_is_what_its_events_are(name: str) -> None:
    data = WHOLE[name]
    ordinary = asked()
    ordinary.feed(data)
    found, body = received(ordinary)
    connection = asked()
    for at in range(len(data)):
        assert connection.whole_response() is None, "a part is missing"
        connection.feed(data[at : at + 1])
    response = connection.whole_response()
    assert response is not None
    head = response.head
    assert (head.status, head.text + response.body) == (found.status, data)
    assert bytes(response.body) == body
    assert response.described.fields.items == found.fields.items
    assert response.described.content_length == head.length == found.content_length
    assert head.header_lengths == found.fields.values(b"inference-header-content-length")
    assert head.media_types == found.fields.values(b"content-type")
    connection.take_whole(response)
    assert connection.incoming.received == ordinary.incoming.received == len(data)
    assert connection.is_reusable is ordinary.is_reusable is not head.is_last


ALL = {**WHOLE, **NOT_WHOLE, "cut": WHOLE["usual"][:-1], "head": WHOLE["usual"].removesuffix(BODY)}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("before", WHOLE)
def test_what_came_before_decides_nothing(before: str, name: str) -> None:
    connection, first = asked(), asked()
    connection.feed(WHOLE[before])
    response = connection.whole_response()
    assert response is not None
    connection.take_whole(response)
    if not connection.is_reusable:
        return
    connection.send_request("POST", TARGET, [*FIELDS, ("Content-Length", "0")])
    for each in (connection, first):
        each.feed(ALL[name])
    assert _described(connection) == _described(first)


def _described(connection: ClientConnection) -> tuple[object, ...] | None:
    response = connection.whole_response()
    if response is None:
        return None
    return (*(getattr(response.head, name) for name in PlainHead.__slots__), bytes(response.body))


@pytest.mark.parametrize("name", WHOLE)
def test_who_does_not_take_it_reads_it_from_the_beginning(name: str) -> None:
    connection, ordinary = asked(), asked()
    for each in (connection, ordinary):
        each.feed(WHOLE[name])
    response = connection.whole_response()
    assert response is not None
    del response
    assert received(connection) == received(ordinary)


@pytest.mark.parametrize("name", NOT_WHOLE)
def test_all_others_are_read_event_by_event(name: str) -> None:
    connection = asked()
    connection.feed(NOT_WHOLE[name])
    assert connection.whole_response() is None


def test_what_has_been_asked_matters() -> None:
    nothing = ClientConnection()
    nothing.feed(WHOLE["usual"])
    assert nothing.whole_response() is None
    for_head = asked(method="HEAD")
    for_head.feed(WHOLE["usual"].removesuffix(BODY))
    assert for_head.whole_response() is None


def test_after_an_interim_response_events_decide() -> None:
    connection = asked()
    connection.feed(NOT_WHOLE["interim"])
    assert connection.next_event() is NEED_DATA
    connection.feed(WHOLE["usual"])
    assert connection.whole_response() is None
    assert received(connection)[1] == BODY


def test_after_the_end_of_a_connection_events_decide() -> None:
    connection = asked()
    connection.feed(WHOLE["usual"])
    connection.receive_eof()
    assert connection.whole_response() is None


def test_limits_hold() -> None:
    connection = asked(Limits(max_field_bytes=50))
    connection.feed(WHOLE["usual"])
    assert connection.whole_response() is None


@pytest.mark.parametrize("header_length", [None, 0, 7])
@pytest.mark.parametrize("parts", [[], [BODY], [BODY[:7], memoryview(BODY)[7:]]])
def test_a_form_writes_what_a_request_with_its_fields_has(
    header_length: int | None, parts: Sequence[bytes | memoryview]
) -> None:
    length = sum(map(len, parts))
    lengths = [] if header_length is None else [("Inference-Header-Content-Length", str(header_length))]
    lengths.append(("Content-Length", str(length)))
    expected = ClientConnection().send_request("POST", TARGET, [*FIELDS, *lengths], parts)
    connection = ClientConnection()
    sent = connection.send_form(FORM, length, header_length, parts)
    assert b"".join(sent) == b"".join(expected)
    assert sent[1:] == [*parts]
    connection.feed(WHOLE["usual"])
    assert received(connection)[1] == BODY
    assert connection.is_reusable


def test_a_form_waits_for_its_turn() -> None:
    connection = asked()
    with pytest.raises(LocalProtocolError, match="read the last response"):
        connection.send_form(FORM, 0, None, [])


@pytest.mark.parametrize("fields", [[], [("Host", "a"), ("Host", "b")], [("Host", "a"), ("X Y", "1")]])
def test_a_form_that_is_no_http(fields: list[tuple[str, str]]) -> None:
    with pytest.raises(LocalProtocolError):
        RequestForm(TARGET, fields)
