"""The content coding of a head is parsed once, however many rooms ask for it, and when the first of them asks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamcodec import ErrorCode, RemoteProtocolError
from streamcodec.engine.compression.inflate import parse_content_encoding
from streamcodec.http import Collector, RequestHead, ServerConnection
from streamcodec.http.heads import messages
from tests.http.messages import BODY, GET, IHCL, compress, framed


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[bytes]]:
    """Collect what is parsed."""
    values: list[Sequence[bytes]] = []

    def parse(found: Sequence[bytes]) -> str | None:
        values.append(found)
        return parse_content_encoding(found)

    monkeypatch.setattr(messages, "parse_content_encoding", parse)
    return values


def received(request: bytes) -> tuple[ServerConnection, RequestHead]:
    connection = ServerConnection()
    connection.feed(request)
    head = connection.next_event()
    assert isinstance(head, RequestHead)
    return connection, head


@pytest.mark.parametrize("encoding", [None, "gzip"])
def test_a_head_is_parsed_once(encoding: str | None, parsed: list[Sequence[bytes]]) -> None:
    fields = [] if encoding is None else [f"Content-Encoding: {encoding}".encode()]
    body = BODY if encoding is None else compress(BODY, encoding)
    connection, head = received(framed(body, IHCL, *fields))
    assert parsed == []
    for _ in range(2):
        assert head.fields.encoding_of(head.content_length) == encoding
        assert head.body_length == (None if encoding else len(body))
    connection.receive_body(Collector(1 << 20))
    assert parsed == ([] if encoding is None else [[encoding.encode()]])


def test_a_head_without_a_body_is_not_parsed(parsed: list[Sequence[bytes]]) -> None:
    connection, head = received(GET)
    assert head.body_length == 0
    connection.receive_body(Collector(0))
    assert parsed == []


def test_a_coding_that_is_refused_is_refused_at_each_question() -> None:
    connection, head = received(framed(BODY, b"Content-Encoding: br"))
    for _ in range(2):
        with pytest.raises(RemoteProtocolError) as caught:
            _ = head.body_length
        assert caught.value.code is ErrorCode.UNSUPPORTED_ENCODING
    with pytest.raises(RemoteProtocolError):
        connection.receive_body(Collector(0))


def test_what_was_asked_makes_no_difference_between_heads() -> None:
    heads = [received(framed(BODY, b"Content-Encoding: gzip"))[1] for _ in range(2)]
    assert heads[0].body_length is None
    assert heads[0] == heads[1]
    assert hash(heads[0].fields) == hash(heads[1].fields)
    assert repr(heads[0]) == repr(heads[1])
