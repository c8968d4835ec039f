"""The public codec: every name that `streamcodec` has, in one place. `streamcodec` loads it when it is first asked."""

from streamcodec.basics import (
    DEFAULT_LIMITS,
    ENCODINGS,
    NEED_DATA,
    NEED_TURN,
    EndOfMessage,
    ErrorCode,
    Inflater,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    MessageError,
    NeedData,
    NeedTurn,
    NotRepresentableError,
    OutOfMemoryError,
    ProtocolError,
    RemoteProtocolError,
    parse_content_encoding,
)
from streamcodec.engine.datatypes import DATATYPES, Datatype, datatype_of
from streamcodec.engine.decoder import Decoder
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.events import HeaderReceived, TensorReceived, WindowReceived
from streamcodec.engine.format import format_decoder
from streamcodec.engine.memory.memory_map import MemoryMap
from streamcodec.engine.memory.placement import Into, NewArray, Place, Placement, Slab, new_array
from streamcodec.engine.memory.pool import Pool
from streamcodec.engine.memory.rows import Rows, RowWriter
from streamcodec.engine.memory.windows import Discard, Windows, chosen
from streamcodec.engine.message import Message, Part, binary_form, message_of
from streamcodec.engine.reader import Fill, Reader, Reading
from streamcodec.engine.spec import Header, TensorSpec
from streamcodec.formats.v2.compressing import compress_message
from streamcodec.formats.v2.decoder import raw_request_decoder, request_decoder, response_decoder
from streamcodec.formats.v2.encoder import EncodedMessage, Tensor, encode_raw_request, encode_request, encode_response
from streamcodec.formats.v2.fields import (
    HEADER_LENGTH_FIELD,
    SAGEMAKER_MEDIA_TYPE,
    VERTEX_AI_MEDIA_TYPE,
    header_length_of,
    parse_header_length,
    parse_media_type,
)
from streamcodec.formats.v2.header.cache import HeaderCache
from streamcodec.formats.v2.header.parsing import parse_request_header, parse_response_header
from streamcodec.formats.v2.json.output import NonFiniteOutput
from streamcodec.formats.v2.model import Event, RequestedOutput, RequestHeader, ResponseHeader

__all__ = [
    "DATATYPES",
    "DEFAULT_LIMITS",
    "ENCODINGS",
    "HEADER_LENGTH_FIELD",
    "NEED_DATA",
    "NEED_TURN",
    "SAGEMAKER_MEDIA_TYPE",
    "VERTEX_AI_MEDIA_TYPE",
    "Datatype",
    "Decoder",
    "Discard",
    "Elements",
    "EncodedMessage",
    "EndOfMessage",
    "ErrorCode",
    "Event",
    "Fill",
    "Header",
    "HeaderCache",
    "HeaderReceived",
    "Inflater",
    "Into",
    "LimitExceededError",
    "Limits",
    "LocalProtocolError",
    "MemoryMap",
    "Message",
    "MessageError",
    "NeedData",
    "NeedTurn",
    "NewArray",
    "NonFiniteOutput",
    "NotRepresentableError",
    "OutOfMemoryError",
    "Part",
    "Place",
    "Placement",
    "Pool",
    "ProtocolError",
    "Reader",
    "Reading",
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
    "binary_form",
    "chosen",
    "compress_message",
    "datatype_of",
    "encode_raw_request",
    "encode_request",
    "encode_response",
    "format_decoder",
    "header_length_of",
    "message_of",
    "new_array",
    "parse_content_encoding",
    "parse_header_length",
    "parse_media_type",
    "parse_request_header",
    "parse_response_header",
    "raw_request_decoder",
    "request_decoder",
    "response_decoder",
]
