"""Frames: self-delimiting V2 messages, for transports without HTTP heads; `docs/frame.md` is the specification."""

from streamcodec.formats.frame.encoder import encode_frame
from streamcodec.formats.frame.head import HEAD_BYTES, Checksum, Kind
from streamcodec.formats.frame.layout import request_frame_decoder, response_frame_decoder
from streamcodec.formats.frame.stream import EndOfStream, FrameReader, Skipped
from streamcodec.formats.frame.whole import WholeFrame, WholeFrames

__all__ = [
    "HEAD_BYTES",
    "Checksum",
    "EndOfStream",
    "FrameReader",
    "Kind",
    "Skipped",
    "WholeFrame",
    "WholeFrames",
    "encode_frame",
    "request_frame_decoder",
    "response_frame_decoder",
]
