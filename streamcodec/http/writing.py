"""Writing: a message to buffers, for requests and responses alike. h11 writes the head; payload passes untouched."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import h11

from streamcodec.core.errors import LocalProtocolError

NOT_HTTP: Final = (h11.LocalProtocolError, UnicodeEncodeError)
"""What h11 raises when a head is made of fields that are not HTTP."""


def write_message(
    connection: h11.Connection, head: h11.Request | h11.Response, buffers: Iterable[bytes | memoryview]
) -> list[bytes | memoryview]:
    """Return head and body as the buffers to be sent; nothing is joined or copied.

    Args:
        connection: of this cycle.
        head: with the `Content-Length` of the buffers.
        buffers: byte views or bytes.

    Raises:
        LocalProtocolError: not the time for this message, or the buffers do not fill the declared length.
    """
    sent: list[bytes | memoryview] = []
    try:
        sent.append(connection.send(head) or b"")
        for buffer in buffers:
            data = h11.Data(data=buffer)  # type: ignore[arg-type] # h11 documents that any sized object passes
            sent += connection.send_with_data_passthrough(data) or []
        sent += connection.send_with_data_passthrough(h11.EndOfMessage()) or []
    except h11.LocalProtocolError as error:
        raise LocalProtocolError(str(error)) from None
    return sent
