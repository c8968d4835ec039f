"""Screening: what is passed on is what came, what is refused never passes whole, and only the header is kept."""

from __future__ import annotations

import gzip
import tracemalloc

import numpy as np
import pytest

from streamcodec import NEED_DATA, EndOfMessage, HeaderReceived, MessageError, Tensor, WindowReceived, encode_request
from streamcodec.engine.events import NEED_TURN
from streamcodec.engine.limits import Limits
from streamcodec.guard.pieces import PIECE_BYTES
from streamcodec.guard.rules.screening import Screening
from streamcodec.http import RequestHead, ServerConnection
from streamcodec.testing.chunkings import bytewise, seeded
from tests.server.wire import chunked, head

ARRAY = np.arange(50, dtype=np.float32)
MESSAGE = encode_request(
    [Tensor(name="x", array=ARRAY), Tensor(name="t", array=np.array([b"a", b"", b"bcd"], object))], request_id="7"
)
BODY = b"".join(MESSAGE.buffers)
LENGTH = f"Inference-Header-Content-Length: {MESSAGE.header_length}"
PATH = "/v2/models/m/infer"

FORMS = {
    "whole": head(PATH, LENGTH, f"Content-Length: {len(BODY)}") + BODY,
    "chunks": head(PATH, LENGTH, "Transfer-Encoding: chunked") + chunked(BODY, [3, 50, 7]),
    "gzip": head(PATH, LENGTH, "Content-Encoding: gzip", f"Content-Length: {len(gzip.compress(BODY, mtime=0))}")
    + gzip.compress(BODY, mtime=0),
}


def _screened(chunks: list[bytes], limits: Limits = Limits()) -> tuple[bytes, int | None]:  # noqa: B008 - immutable
    """Return what passes, and how much of it was announced after the header."""
    connection = ServerConnection(limits)
    screening: Screening | None = None
    passed = b""
    for chunk in chunks:
        left = memoryview(chunk)
        while True:
            left = left[connection.feed(left) :]
            event = connection.next_event()
            if isinstance(event, RequestHead):
                screening = Screening(event, limits, lambda _: True)
                connection.receive_body(screening)
            elif isinstance(event, WindowReceived):
                passed += event.array.tobytes()
            elif isinstance(event, EndOfMessage):
                assert screening is not None
                assert screening.is_complete
                return bytes(screening.text) + passed, screening.tensor_bytes
            elif event is NEED_TURN:
                connection.work()
            elif event is NEED_DATA and not left:
                break
            else:
                assert isinstance(event, HeaderReceived) or event is NEED_DATA
    connection.receive_eof()
    while (event := connection.next_event()) is not NEED_DATA:
        assert not isinstance(event, EndOfMessage)
    return passed, None


@pytest.mark.parametrize("form", FORMS)
def test_what_comes_is_passed_on(form: str) -> None:
    sent = FORMS[form]
    for chunks in ([sent], bytewise(sent), *seeded(sent, seed=1, count=10)):
        assert _screened(chunks) == (BODY, len(BODY) - (MESSAGE.header_length or 0))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (head(PATH, LENGTH, "Transfer-Encoding: chunked") + chunked(BODY + b"x", [9]), "trailing-bytes"),
        (head(PATH, LENGTH, "Transfer-Encoding: chunked") + chunked(BODY[:-1], [9]), "truncated"),
        (head(PATH, LENGTH, f"Content-Length: {len(BODY) + 1}") + BODY + b"x", "body-length-mismatch"),
        (head(PATH, f"Content-Length: {len(BODY)}") + BODY, "invalid-utf8"),
        (head(PATH, LENGTH, LENGTH, f"Content-Length: {len(BODY)}") + BODY, "invalid-header-length"),
        (head(PATH, LENGTH, "Content-Length: 3") + b"{}}", "header-exceeds-body"),
        (head(PATH, "Content-Length: 2") + b"{}", "missing-member"),
        (head(PATH), "empty-body"),
    ],
)
def test_what_breaks_a_rule_is_refused(request_: bytes, code: str) -> None:
    for chunks in ([request_], bytewise(request_)):
        with pytest.raises(MessageError) as caught:
            _screened(chunks)
        assert caught.value.code == code


def test_tensors_are_not_kept() -> None:
    message = encode_request([Tensor(name="x", array=np.zeros(16 << 20, np.uint8))])
    text, data = bytes(next(iter(message.buffers))), bytes(PIECE_BYTES)
    connection = ServerConnection()
    fields = [f"{name}: {value}" for name, value in message.headers]
    connection.feed(head(PATH, *fields))
    request = connection.next_event()
    assert isinstance(request, RequestHead)
    connection.receive_body(Screening(request, Limits(), lambda _: True))
    connection.feed(text)
    assert isinstance(connection.next_event(), HeaderReceived)
    tracemalloc.start()
    try:
        passed = 0
        while not isinstance(event := connection.next_event(), EndOfMessage):
            passed += event.array.nbytes if isinstance(event, WindowReceived) else 0
            if event is NEED_DATA:
                assert connection.feed(data) == len(data)
        assert passed == 16 << 20
        assert tracemalloc.get_traced_memory()[1] < 2 * PIECE_BYTES
    finally:
        tracemalloc.stop()
