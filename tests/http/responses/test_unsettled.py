"""What has been written to a receiver's memory counts at once, although the receiver is told later."""

from __future__ import annotations

from streamcodec.formats.v2.decoder import request_decoder
from streamcodec.http.heads.messages import RequestHead
from streamcodec.http.server import ServerConnection


def test_bytes_that_the_receiver_has_not_been_told_of() -> None:
    connection = ServerConnection()
    connection.feed(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
    head = connection.next_event()
    assert isinstance(head, RequestHead)
    decoder = request_decoder(header_length=500_000, body_length=1_000_000)
    connection.receive_body(decoder)
    connection.next_event()
    assert connection.incoming.unsettled == 0
    connection.get_buffer()[:300] = b" " * 300
    connection.buffer_updated(300)
    assert (connection.incoming.unsettled, decoder.offset) == (300, 0)
