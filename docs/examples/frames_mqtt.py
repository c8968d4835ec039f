"""Frames in pieces, as through an MQTT broker with small payloads, of which some are lost, come twice, or are damaged.

The topic of a piece has the number of its frame, and its own number within the frame. So a lost piece costs one frame:
the next one has a decoder of its own. Here a function is the broker. With paho-mqtt, `client.publish(topic, payload)`
takes its place, and `on_message` calls `received(message.topic, message.payload)`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamcodec import NEED_DATA, Decoder, EndOfMessage, MessageError, RequestHeader, TensorReceived, encode_request
from streamcodec.formats.frame import Kind, encode_frame, request_frame_decoder

PAYLOAD_BYTES = 1024


def published(number: int) -> Iterator[tuple[str, bytes]]:
    message = encode_request({"reading": np.full(1000, number, np.float32)})
    data = b"".join(encode_frame(message, Kind.REQUEST).buffers)
    for piece, start in enumerate(range(0, len(data), PAYLOAD_BYTES)):
        yield f"robot/frames/{number}/{piece}", data[start : start + PAYLOAD_BYTES]


def broker(topic: str, payload: bytes) -> Iterator[tuple[str, bytes]]:
    """Deliver a payload: mostly as it is."""
    if topic.endswith("/1/2"):
        return  # lost
    if topic.endswith("/3/1"):
        payload = payload[:500] + bytes([payload[500] ^ 1]) + payload[501:]
    yield topic, payload
    if topic.endswith(("/2/0", "/2/4")):
        yield topic, payload


class Subscriber:
    """Puts the pieces of one frame after the other together."""

    def __init__(self) -> None:
        self._number, self._piece = -1, 0
        self._decoder: Decoder[RequestHeader] | None = None

    def received(self, topic: str, payload: bytes) -> None:
        number, piece = map(int, topic.split("/")[-2:])
        if number != self._number:
            self.end()
            self._number, self._piece, self._decoder = number, 0, request_frame_decoder()
        if self._decoder is not None and piece == self._piece:
            self._piece += 1
            self._decoder.feed(payload)
            self._take(self._decoder)
        elif piece > self._piece:
            self.end()

    def end(self) -> None:
        """Give up the current frame, if it is not complete."""
        if self._decoder is not None:
            self._decoder.receive_eof()
            self._take(self._decoder)

    def _take(self, decoder: Decoder[RequestHeader]) -> None:
        try:
            while (event := decoder.next_event()) is not NEED_DATA:
                if isinstance(event, TensorReceived):
                    self._mean = event.array.mean()  # to be used when the checksum was right
                elif isinstance(event, EndOfMessage):
                    print(self._number, self._mean)
                    self._decoder = None
                    return
        except MessageError as error:
            print(self._number, error)
            self._decoder = None


subscriber = Subscriber()
for number in range(5):
    for topic, payload in published(number):
        for delivered in broker(topic, payload):
            subscriber.received(*delivered)
subscriber.end()
