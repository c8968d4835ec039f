"""A case: one message and how it is delivered, as the bytes of a fuzzer's input say it and as a corpus is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import TypeAlias

import numpy as np

from streamcodec import (
    DATATYPES,
    Decoder,
    Into,
    Limits,
    Placement,
    RequestHeader,
    ResponseHeader,
    TensorSpec,
    new_array,
    raw_request_decoder,
    request_decoder,
    response_decoder,
)
from targets.choices import Choices, ChoicesWriter
from targets.cuts import piece_sizes

AnyDecoder: TypeAlias = Decoder[RequestHeader] | Decoder[ResponseHeader]

SMALL_LIMITS = Limits(
    max_header_bytes=400,
    max_json_depth=5,
    max_tensors=2,
    max_rank=3,
    max_elements=64,
    max_tensor_bytes=100,
    max_message_bytes=450,
    max_bytes_elements=3,
    max_json_tensor_bytes=60,
    max_element_bytes=20,
)
# The defaults, but with little enough memory for a tensor that the verdict is the same on every machine.
USUAL_LIMITS = Limits(max_tensor_bytes=16 << 20, max_message_bytes=32 << 20)


class Kind(Enum):
    """What the message is."""

    REQUEST = auto()
    RESPONSE = auto()
    RAW = auto()


class Length(Enum):
    """What is said of a length beforehand."""

    FITTING = auto()
    """The length that the bytes suggest, so that a mutated text keeps its frame."""
    UNKNOWN = auto()
    NUMBER = auto()
    """Any number: right or wrong."""


class Face(Enum):
    """Which face the second decoding uses; the first one is a single `feed`."""

    PULL = auto()
    PUSH = auto()
    SCATTER = auto()
    """Pulling into several buffers at once."""


_BOTH = (False, True)
_KINDS = tuple(Kind)
_LENGTHS = tuple(Length)
_FACES = tuple(Face)
_DATATYPES = tuple(DATATYPES)
_SIZES = range(256)
_PIECES = 8


@dataclass(frozen=True, kw_only=True)
class Case:
    """A message and how it is delivered."""

    message: bytes
    kind: Kind = Kind.REQUEST
    header: Length = Length.FITTING
    header_number: int = 0
    body: Length = Length.FITTING
    body_number: int = 0
    padding: int = 0
    """Zeros after the message: enough bytes for a tensor that a mutation made larger, or bytes of somebody else."""
    is_limited: bool = False
    """Whether limits apply that small messages can exceed."""
    has_eof: bool = True
    face: Face = Face.PULL
    first_piece: int = 0
    """Bytes of the first piece of the second decoding; 0 leaves it out."""
    piece: int = 0
    """Bytes of each of the next few pieces; 0 is all that there is, as is the last piece."""
    is_placed: bool = False
    """Whether tensors go into arrays of the caller."""
    allow_headerless: bool = False
    """Whether the end of a header of unknown length is looked for."""
    datatype: str = "FP32"
    """Of a raw request."""

    @classmethod
    def read(cls, data: bytes) -> Case:
        """Take a case from an input."""
        choices = Choices(data)
        return cls(
            kind=choices.pick(_KINDS),
            header=choices.pick(_LENGTHS),
            header_number=choices.number(),
            body=choices.pick(_LENGTHS),
            body_number=choices.number(),
            padding=choices.pick(_SIZES),
            is_limited=choices.pick(_BOTH),
            has_eof=choices.pick(_BOTH),
            face=choices.pick(_FACES),
            first_piece=choices.number(),
            piece=choices.pick(_SIZES),
            is_placed=choices.pick(_BOTH),
            allow_headerless=choices.pick(_BOTH),
            datatype=choices.pick(_DATATYPES),
            message=choices.rest(),
        )

    def write(self) -> bytes:
        """Return the input that gives this case."""
        choices = ChoicesWriter()
        choices.pick(_KINDS, self.kind)
        choices.pick(_LENGTHS, self.header)
        choices.number(self.header_number)
        choices.pick(_LENGTHS, self.body)
        choices.number(self.body_number)
        choices.pick(_SIZES, self.padding)
        choices.pick(_BOTH, self.is_limited)
        choices.pick(_BOTH, self.has_eof)
        choices.pick(_FACES, self.face)
        choices.number(self.first_piece)
        choices.pick(_SIZES, self.piece)
        choices.pick(_BOTH, self.is_placed)
        choices.pick(_BOTH, self.allow_headerless)
        choices.pick(_DATATYPES, self.datatype)
        return choices.finish(self.message)

    @cached_property
    def stream(self) -> bytes:
        """All bytes that arrive."""
        return self.message + bytes(self.padding)

    @cached_property
    def header_length(self) -> int | None:
        """What `Inference-Header-Content-Length` says."""
        match self.header:
            case Length.FITTING:
                # To the last brace, and over the spaces that align the first tensor.
                text, brace, rest = self.message.rpartition(b"}")
                return len(text + brace) + len(rest) - len(rest.lstrip(b" ")) if brace else 0
            case Length.UNKNOWN:
                return None
            case Length.NUMBER:
                return self.header_number

    @cached_property
    def body_length(self) -> int | None:
        """What `Content-Length` says."""
        match self.body:
            case Length.FITTING:
                return len(self.stream)
            case Length.UNKNOWN:
                return None
            case Length.NUMBER:
                return self.body_number

    @property
    def pieces(self) -> Iterator[int]:
        """Sizes of the pieces of the second decoding."""
        return piece_sizes(self.first_piece, self.piece, len(self.stream), count=_PIECES)

    def decoder(self) -> AnyDecoder:
        """Make a decoder for it."""
        limits = SMALL_LIMITS if self.is_limited else USUAL_LIMITS
        place = _into_array if self.is_placed else new_array
        if self.kind is Kind.RAW:
            return raw_request_decoder(self._raw_spec(), limits=limits, place=place)
        make = request_decoder if self.kind is Kind.REQUEST else response_decoder
        return make(
            header_length=self.header_length,
            body_length=self.body_length,
            allow_headerless=self.allow_headerless,
            limits=limits,
            place=place,
        )

    def _raw_spec(self) -> TensorSpec:
        datatype = DATATYPES[self.datatype]
        nbytes = len(self.message) if self.body_length is None else self.body_length
        if datatype.is_bytes:
            return TensorSpec(
                name="raw", datatype=datatype, shape=(1,), nbytes=nbytes, offset=0, is_single_element=True
            )
        count = nbytes // datatype.itemsize
        return TensorSpec(name="raw", datatype=datatype, shape=(count,), nbytes=count * datatype.itemsize, offset=0)


def _into_array(spec: TensorSpec) -> Placement:
    """Place a tensor in memory of the caller, which is not fresh."""
    memory = np.full(spec.count * spec.datatype.itemsize + 64, 0xEE, np.uint8)
    start = -memory.ctypes.data % 64
    memory = memory[start : start + spec.count * spec.datatype.itemsize]
    return Into(memory.view(spec.datatype.dtype).reshape(spec.shape))
