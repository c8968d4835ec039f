"""Errors as replies: the fields that some statuses need."""

from __future__ import annotations

import json
from typing import cast

import pytest

from streamcodec import ErrorCode, RemoteProtocolError
from streamcodec.service import error_reply


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
