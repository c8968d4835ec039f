"""Frames: self-delimiting V2 messages, for transports without HTTP heads; `docs/frame.md` is the specification.

What reads or writes arrays is loaded when it is first asked for, and numpy with it. A forwarder asks for none of it.
"""

import importlib
import typing

from streamcodec.formats.frame.forwarding import ForwardedFrame, FramePiece
from streamcodec.formats.frame.head import HEAD_BYTES, Checksum, Kind
from streamcodec.formats.frame.stream import EndOfStream, FrameReader, Skipped

__all__ = [
    "HEAD_BYTES",
    "Checksum",
    "EndOfStream",
    "ForwardedFrame",
    "FramePiece",
    "FrameReader",
    "Kind",
    "Skipped",
    "WholeFrame",
    "WholeFrames",
    "encode_frame",
    "request_frame_decoder",
    "response_frame_decoder",
]

if typing.TYPE_CHECKING:
    from streamcodec.formats.frame.encoder import encode_frame
    from streamcodec.formats.frame.layout import request_frame_decoder, response_frame_decoder
    from streamcodec.formats.frame.whole import WholeFrame, WholeFrames
else:  # to type checkers, a module with `__getattr__` has every name
    _LATER = {
        "WholeFrame": "whole",
        "WholeFrames": "whole",
        "encode_frame": "encoder",
        "request_frame_decoder": "layout",
        "response_frame_decoder": "layout",
    }

    def __getattr__(name: str) -> object:
        """Load a name that needs numpy."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
        return globals()[name]
