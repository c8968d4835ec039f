"""Frames for tests: what peers might send, and heads that are put together by hand."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from streamcodec import EncodedMessage, Rows, Tensor, encode_request, encode_response
from streamcodec.formats.frame import Checksum, Kind, encode_frame, request_frame_decoder, response_frame_decoder

MAKERS: dict[Kind, Any] = {Kind.REQUEST: request_frame_decoder, Kind.RESPONSE: response_frame_decoder}
NONE = Checksum.NONE

REQUESTS: dict[str, EncodedMessage] = {
    "small": encode_request({"x": np.array([1, -2, 300], np.int16)}, request_id="7"),
    "several": encode_request({str(i): np.full(i + 1, i, np.float32) for i in range(5)}),
    "no tensors": encode_request({}),
    "no bytes": encode_request({"x": np.zeros((0, 3))}),
    "texts": encode_request({"x": np.array([[b"abc", b""], [b"\x89V2F", b"d"]], object), "b": np.array([True, False])}),
    "JSON": encode_request([Tensor(name="x", array=np.arange(5.0), is_binary=False)]),
    "both": encode_request([Tensor(name="x", array=np.arange(3), is_binary=False), Tensor(name="y", array=np.ones(2))]),
    "long header": encode_request([Tensor(name=str(i), array=np.arange(300.0), is_binary=i > 20) for i in range(30)]),
    "rows": encode_request({"x": Rows("INT32", (4, 3), [np.ones((2, 3), "<i4"), np.zeros((2, 3), "<i4")])}),
}
RESPONSES: dict[str, EncodedMessage] = {
    "small": encode_response({"y": np.array([[0.5]], np.float32)}, model_name="m", model_version="1"),
    "JSON": encode_response([Tensor(name="y", array=np.arange(4), is_binary=False)], model_name="m"),
}
MESSAGES = [
    *((Kind.REQUEST, name, message) for name, message in REQUESTS.items()),
    *((Kind.RESPONSE, name, message) for name, message in RESPONSES.items()),
]


def joined(message: EncodedMessage, kind: Kind = Kind.REQUEST, checksum: Checksum = Checksum.CRC32) -> bytes:
    """Return a frame."""
    return b"".join(encode_frame(message, kind, checksum).buffers)


def with_head(body: bytes, header_length: int, **fields: int) -> bytes:
    """Put a frame with any head together; its check is right unless `check` says otherwise."""
    head = {"version": 1, "kind": 0, "checksum": 0, "reserved": 0, "body_length": len(body)} | fields
    names = ("version", "kind", "checksum", "reserved")
    data = struct.pack("<4BIQ", *(head[name] for name in names), header_length, head["body_length"])
    start = struct.pack("<4sI", b"\x89V2F", head.get("check", zlib.crc32(data))) + data
    return start + body
