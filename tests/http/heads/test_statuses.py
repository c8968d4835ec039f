"""Statuses: what an answer may have."""

from __future__ import annotations

from typing import Any

import pytest

from streamcodec import LocalProtocolError
from streamcodec.http import ServerConnection
from streamcodec.http.heads.statuses import checked_status, ends_with_head, fields_for, has_content, line_of, phrase_of

FIELDS = [("Content-Type", "a/b"), ("Content-Encoding", "gzip"), ("Inference-Header-Content-Length", "1"), ("X-Y", "z")]
REQUEST = b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("status", [0, 99, 100, 101, 199, 600, 999, 1000, -200, None, "200"])
def test_only_final_statuses_can_be_sent(status: Any) -> None:  # noqa: ANN401 - of any kind
    with pytest.raises(LocalProtocolError, match="200 to 599"):
        checked_status(status)


@pytest.mark.parametrize("status", [99, 199, 600, 999])
@pytest.mark.parametrize("way", ["send_response", "begin_response"])
def test_a_connection_sends_no_other_status(status: int, way: str) -> None:
    connection = ServerConnection()
    connection.feed(REQUEST)
    connection.next_event()
    with pytest.raises(LocalProtocolError):
        getattr(connection, way)(status)


def test_phrases() -> None:
    assert [phrase_of(status) for status in (204, 404, 499)] == ["No Content", "Not Found", ""]
    lines = [line_of(status) for status in (200, 299, 399, 499, 599)]
    assert lines == ["200 OK", "299 Success", "399 Redirection", "499 Client Error", "599 Server Error"]


def test_only_some_answers_have_content() -> None:
    assert [status for status in range(200, 600) if not has_content(status)] == [204, 205, 304]
    assert [status for status in range(200, 600) if ends_with_head(status)] == [204, 304]


@pytest.mark.parametrize("is_encoded", [False, True])
@pytest.mark.parametrize(("status", "added"), [(204, []), (304, []), (205, [("Content-Length", "0")])])
def test_fields_about_content_are_left_out_without_content(
    status: int, added: list[tuple[str, str]], is_encoded: bool
) -> None:
    given = [*FIELDS, ("Content-Length", "5")]
    fields: Any = [(name.encode(), value.encode()) for name, value in given] if is_encoded else given
    assert fields_for(status, fields, 5) == [fields[3], *added]


def test_a_length_is_added_once() -> None:
    assert fields_for(200, [], 5) == [("Content-Length", "5")]
    assert fields_for(200, [], None) == []
    for given in [("content-length", "5")], [(b"content-length", b"5")]:
        assert fields_for(200, given, 5) == given


@pytest.mark.parametrize("status", [204, 205, 304])
@pytest.mark.parametrize("in_pieces", [False, True])
def test_the_next_answer_begins_where_one_without_content_ends(status: int, in_pieces: bool) -> None:
    connection = ServerConnection()
    for _ in range(2):
        connection.feed(REQUEST)
        connection.next_event()
        if in_pieces:
            sent = [connection.begin_response(status, [("Content-Length", "5")])]
            sent += [*connection.response_piece(b"hello"), connection.end_response()]
        else:
            sent = connection.send_response(status, [("Content-Length", "5")], [b"hello"])
        head, _, rest = b"".join(sent).partition(b"\r\n\r\n")
        assert rest == b""
        assert (b"Content-Length: 0" in head) is (status == 205)
        assert head.count(b"Content-Length") == (status == 205)
