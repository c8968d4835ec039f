"""Errors as replies: the fields that some statuses need."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import cast

import pytest

from streamcodec import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.service import Reply, error_reply, failure_reply
from streamcodec.service.replies import complete_headers, drop_tracebacks, lawful, sendable


@pytest.mark.parametrize(
    ("code", "status", "field"),
    [
        (ErrorCode.OUT_OF_MEMORY, 503, ("Retry-After", "1")),
        (ErrorCode.UNSUPPORTED_ENCODING, 415, ("Accept-Encoding", "gzip, deflate, identity")),
    ],
)
def test_error_says_what_would_work(code: ErrorCode, status: int, field: tuple[str, str]) -> None:
    error = RemoteProtocolError("not now", code=code, status_hint=status)
    reply = error_reply(error)
    assert (reply.status, reply.refusal) == (status, error)
    assert field in reply.headers
    assert json.loads(b"".join(cast("tuple[bytes, ...]", reply.buffers))) == {"error": "not now"}


def _text(reply: Reply) -> str:
    text = json.loads(b"".join(cast("tuple[bytes, ...]", reply.buffers)))["error"]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("char", ["a", "\x01", '"', "\U0001f600", "\u20ac"])
def test_a_long_error_is_cut_and_says_where_it_happened(char: str) -> None:
    error = RemoteProtocolError(100_000 * char, code=ErrorCode.INVALID_JSON, path="$.inputs[0].shape", offset=7)
    reply = error_reply(error)
    assert 300 < reply.body_length <= 2048
    assert _text(reply).startswith(char)
    assert _text(reply).endswith("($.inputs[0].shape, byte 7)")


def test_an_error_of_2_kib_is_left_as_it_is() -> None:
    text = "a" * (2048 - len('{"error":""}'))
    reply = failure_reply(text, status=500)
    assert (_text(reply), reply.body_length) == (text, 2048)
    assert failure_reply(text + "a", status=500).body_length < 2048


def test_an_error_can_hold_half_of_a_surrogate_pair() -> None:
    assert _text(failure_reply("\ud800", status=500)) == r"\ud800"


def test_a_reply_has_its_length_once_and_none_where_it_has_no_body() -> None:
    assert complete_headers(Reply(status=200, headers=[("A", "b")], body_length=3)) == [
        ("A", "b"),
        ("Content-Length", "3"),
    ]
    assert complete_headers(Reply(status=200, headers=[("content-length", "3")], body_length=3)) == [
        ("content-length", "3")
    ]
    assert complete_headers(Reply(status=204)) == []


@dataclass(frozen=True)
class _FrozenError(Exception):
    """Of a class that forbids to assign attributes."""


def _raised(error: Exception, cause: Exception | None = None) -> Exception:
    with pytest.raises(type(error)):
        raise error from cause
    assert error.__traceback__ is not None
    return error


def test_all_tracebacks_of_an_exception_are_dropped() -> None:
    first, one, two = _raised(KeyError()), _raised(_FrozenError()), _raised(ValueError(), _raised(OSError()))
    group = _raised(ExceptionGroup("both", [one, two]), first)
    first.__context__ = group  # the exceptions refer to each other in a circle
    two.__context__ = two.__cause__  # as always if it was raised while that was handled
    drop_tracebacks(group)
    found = [group, first, one, two, two.__cause__]
    assert [error.__traceback__ for error in found if error is not None] == [None] * 5


FIELDS = [("Content-Type", "text/plain"), ("X-Y", "z")]


@pytest.mark.parametrize(("status", "added"), [(204, []), (304, []), (205, [("Content-Length", "0")])])
def test_a_status_without_content_has_no_body_and_no_fields_about_it(status: int, added: list[tuple[str, str]]) -> None:
    reply = Reply(status=status, headers=FIELDS, buffers=(b"text",), body_length=4)
    for found in (lawful(reply), sendable(reply)):
        assert (found.status, found.buffers, found.body_length) == (status, (), 0)
        assert list(found.headers) == complete_headers(found) == [FIELDS[1], *added]


@pytest.mark.parametrize("status", [200, 206, 400, 499, 599])
def test_other_replies_are_sent_as_they_are(status: int) -> None:
    reply = Reply(status=status, headers=FIELDS, buffers=(b"text",), body_length=4)
    assert lawful(reply) is sendable(reply) is reply


@pytest.mark.parametrize("status", [0, 99, 100, 199, 600])
@pytest.mark.parametrize("call", ["", "page /x"])
def test_a_status_that_no_answer_can_have_is_a_failure(status: int, call: str) -> None:
    reply = Reply(status=status, call=call)
    with pytest.raises(LocalProtocolError, match=f"200 to 599, not {status}"):
        lawful(reply)
    found = sendable(reply)
    assert (found.status, found.call) == (500, call or "making an answer")
    assert isinstance(found.cause, LocalProtocolError)
