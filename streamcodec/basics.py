"""The names of the public codec that need no numpy: `streamcodec` loads these alone for a program that forwards."""

from streamcodec.engine.compression.inflate import ENCODINGS, Inflater, parse_content_encoding
from streamcodec.engine.errors import (
    ErrorCode,
    LimitExceededError,
    LocalProtocolError,
    MessageError,
    NotRepresentableError,
    OutOfMemoryError,
    ProtocolError,
    RemoteProtocolError,
)
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.receiving import NEED_DATA, NEED_TURN, EndOfMessage, NeedData, NeedTurn

__all__ = [
    "DEFAULT_LIMITS",
    "ENCODINGS",
    "NEED_DATA",
    "NEED_TURN",
    "EndOfMessage",
    "ErrorCode",
    "Inflater",
    "LimitExceededError",
    "Limits",
    "LocalProtocolError",
    "MessageError",
    "NeedData",
    "NeedTurn",
    "NotRepresentableError",
    "OutOfMemoryError",
    "ProtocolError",
    "RemoteProtocolError",
    "parse_content_encoding",
]
