"""The public codec: every name that `streamcodec` has, in one place. `streamcodec` loads it when it is first asked."""

from streamcodec.core.compression import ENCODINGS, Inflater
from streamcodec.core.datatypes import DATATYPES, Datatype, datatype_of
from streamcodec.core.decoder import Decoder, raw_request_decoder, request_decoder, response_decoder
from streamcodec.core.deflating import compress_message
from streamcodec.core.elements import Elements
from streamcodec.core.encoder import EncodedMessage, Tensor, encode_raw_request, encode_request, encode_response
from streamcodec.core.errors import (
    ErrorCode,
    LimitExceededError,
    LocalProtocolError,
    NotRepresentableError,
    ProtocolError,
    RemoteProtocolError,
)
from streamcodec.core.events import (
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    Event,
    HeaderReceived,
    NeedData,
    NeedTurn,
    TensorReceived,
    WindowReceived,
)
from streamcodec.core.framing import HEADER_LENGTH_FIELD, parse_content_encoding, parse_header_length
from streamcodec.core.header import parse_request_header, parse_response_header
from streamcodec.core.jsonoutput import NonFiniteOutput
from streamcodec.core.limits import DEFAULT_LIMITS, Limits
from streamcodec.core.memorymap import MemoryMap
from streamcodec.core.model import RequestedOutput, RequestHeader, ResponseHeader, TensorSpec
from streamcodec.core.placement import Into, NewArray, Place, Placement, Slab, new_array
from streamcodec.core.pool import Pool
from streamcodec.core.remembered import RememberedHeaders
from streamcodec.core.rows import Rows, RowWriter
from streamcodec.core.windows import Discard, Windows

__all__ = [
    "DATATYPES",
    "DEFAULT_LIMITS",
    "ENCODINGS",
    "HEADER_LENGTH_FIELD",
    "NEED_DATA",
    "NEED_TURN",
    "Datatype",
    "Decoder",
    "Discard",
    "Elements",
    "EncodedMessage",
    "EndOfMessage",
    "ErrorCode",
    "Event",
    "HeaderReceived",
    "Inflater",
    "Into",
    "LimitExceededError",
    "Limits",
    "LocalProtocolError",
    "MemoryMap",
    "NeedData",
    "NeedTurn",
    "NewArray",
    "NonFiniteOutput",
    "NotRepresentableError",
    "Place",
    "Placement",
    "Pool",
    "ProtocolError",
    "RememberedHeaders",
    "RemoteProtocolError",
    "RequestHeader",
    "RequestedOutput",
    "ResponseHeader",
    "RowWriter",
    "Rows",
    "Slab",
    "Tensor",
    "TensorReceived",
    "TensorSpec",
    "WindowReceived",
    "Windows",
    "compress_message",
    "datatype_of",
    "encode_raw_request",
    "encode_request",
    "encode_response",
    "new_array",
    "parse_content_encoding",
    "parse_header_length",
    "parse_request_header",
    "parse_response_header",
    "raw_request_decoder",
    "request_decoder",
    "response_decoder",
]
