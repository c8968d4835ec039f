"""Messages whose parts do not exist yet: they are counted by what they declare, and pass by untouched."""

from __future__ import annotations

import numpy as np
import pytest

from streamcodec import LocalProtocolError, Rows, Tensor, encode_request
from streamcodec.engine.message import Part
from streamcodec.http import ClientConnection
from streamcodec.http.writing import length_of

LARGE = Rows("FP64", (1 << 20, 1 << 20), ())
"""8 TiB."""

HOST = ("Host", "x")


def test_rows_pass_by_without_being_asked_for() -> None:
    message = encode_request([Tensor(name="a", array=LARGE), Tensor(name="b", array=np.arange(3, dtype=np.int64))])
    head, header, rows, values = ClientConnection().send_request("POST", "/", [HOST, *message.headers], message.parts)
    assert f"Content-Length: {message.body_length}\r\n".encode() in bytes(head)  # type: ignore[arg-type] # it is bytes
    assert header is message.parts[0]
    assert rows is LARGE
    assert values is message.parts[2]
    assert length_of(message.parts) == message.body_length == len(message.parts[0]) + LARGE.nbytes + 24  # type: ignore[arg-type] # the header


@pytest.mark.parametrize("excess", [-1, 1, -LARGE.nbytes])
def test_rows_are_held_against_the_declared_length(excess: int) -> None:
    parts: list[Part] = [b"abc", LARGE]
    connection = ClientConnection()
    with pytest.raises(LocalProtocolError, match="declared Content-Length"):
        connection.send_request("POST", "/", [HOST, ("Content-Length", str(3 + LARGE.nbytes + excess))], parts)


def test_rows_in_chunks() -> None:
    rows = Rows("UINT8", (26,), ())
    parts: list[Part] = [b"ab", rows]
    sent = ClientConnection().send_request("POST", "/", [HOST, ("Transfer-Encoding", "chunked")], parts)
    assert sent[1:] == [b"2\r\n", b"ab", b"\r\n", b"1a\r\n", rows, b"\r\n", b"0\r\n\r\n"]


def test_the_length_of_views_is_their_bytes() -> None:
    assert length_of([b"abc", np.arange(2, dtype="<i4").data, Rows("BOOL", (2, 3), ())]) == 17
