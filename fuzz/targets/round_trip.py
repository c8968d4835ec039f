"""Round trip: tensors made from an input, written by the encoder, come back bit for bit.

Here the fuzzer is on the writing side. Tensors of all datatypes, shapes and memory layouts, as arrays, `Elements` and
`Rows`, go into a request, a response or a raw request. What has no form in the protocol must be refused, and nothing
else; what is written must be as long as it says, be read alike by the oracle, and come back by either face, in any
pieces, placed whole or in windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import numpy as np

from streamcodec import (
    DATATYPES,
    EncodedMessage,
    LocalProtocolError,
    NonFiniteOutput,
    Placement,
    RequestedOutput,
    TensorSpec,
    Windows,
    encode_raw_request,
    encode_request,
    encode_response,
    new_array,
    raw_request_decoder,
    request_decoder,
    response_decoder,
)
from streamcodec.testing import Outcome, assert_read_as_by_oracle, run_pull, run_push, run_scatter
from targets.case import AnyDecoder, Face, Kind
from targets.choices import Choices, ChoicesWriter
from targets.cuts import cut, piece_sizes
from targets.recipe import Recipe, are_named

_BOTH = (False, True)
_KINDS = tuple(Kind)
_FACES = tuple(Face)
_SIZES = range(256)
_MODES = tuple(NonFiniteOutput)
_COUNTS: Final = range(4)
_PIECES: Final = 12
_ALIGNMENT: Final = 64
_IDS: Final = (None, "", "id", 'é"\\\0', "\ud800")
"""The last one cannot be written."""


_RUNS: Final = {Face.PUSH: run_push, Face.PULL: run_pull, Face.SCATTER: run_scatter}


class Placing(Enum):
    """Where tensors go when they come back."""

    WHOLE = auto()
    WINDOWS = auto()
    """One row at a time."""


_PLACINGS = tuple(Placing)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A message to be written, and how it comes back."""

    recipes: tuple[Recipe, ...]
    kind: Kind = Kind.REQUEST
    id: str | None = None
    nonfinite: NonFiniteOutput = NonFiniteOutput.LITERAL
    """Of a response; a request always has literals."""
    has_outputs: bool = False
    placing: Placing = Placing.WHOLE
    face: Face = Face.PULL
    first_piece: int = 0
    """Bytes of the first piece; 0 leaves it out."""
    piece: int = 0
    """Bytes of each of the next few pieces; 0 is all that there is, as is the last piece."""

    @classmethod
    def read(cls, data: bytes) -> Case:
        """Take a case from an input."""
        choices, payload = Choices(data), data[_HEAD_BYTES:]
        count, kind = choices.pick(_COUNTS), choices.pick(_KINDS)
        identity, mode, has_outputs = choices.pick(_IDS), choices.pick(_MODES), choices.pick(_BOTH)
        placing, face = choices.pick(_PLACINGS), choices.pick(_FACES)
        first_piece, piece = choices.number(), choices.pick(_SIZES)
        recipes = tuple(Recipe.read(choices, payload[index:]) for index in _COUNTS[:-1])
        return cls(
            recipes=recipes[: 1 if kind is Kind.RAW else count],
            kind=kind,
            id=identity,
            nonfinite=mode if kind is Kind.RESPONSE else NonFiniteOutput.LITERAL,
            has_outputs=has_outputs,
            placing=placing,
            face=face,
            first_piece=first_piece,
            piece=piece,
        )

    def write(self) -> bytes:
        """Return the input that gives this case."""
        choices = ChoicesWriter()
        choices.pick(_COUNTS, len(self.recipes))
        choices.pick(_KINDS, self.kind)
        choices.pick(_IDS, self.id)
        choices.pick(_MODES, self.nonfinite)
        choices.pick(_BOTH, self.has_outputs)
        choices.pick(_PLACINGS, self.placing)
        choices.pick(_FACES, self.face)
        choices.number(self.first_piece)
        choices.pick(_SIZES, self.piece)
        for index in _COUNTS[1:]:
            (self.recipes[index - 1] if index <= len(self.recipes) else Recipe()).write(choices)
        # Each recipe's payload begins one byte behind that of the one before it.
        return choices.finish(self.recipes[0].payload if self.recipes else b"")

    @property
    def is_refused(self) -> bool:
        """Whether something of it has no form in the protocol."""
        if self.kind is Kind.RAW:
            recipe = self.recipes[0]
            return recipe.is_bytes and math.prod(recipe.shape) != 1
        is_wrong = any(recipe.is_refused(self.nonfinite) for recipe in self.recipes)
        return is_wrong or self.id == _IDS[-1] or not all(are_named(self.recipes))

    def encode(self) -> EncodedMessage:
        """Have it written."""
        tensors = [recipe.tensor() for recipe in self.recipes]
        if self.kind is Kind.RAW:
            return encode_raw_request(tensors[0].array)
        if self.kind is Kind.RESPONSE:
            return encode_response(tensors, model_name="m", request_id=self.id, nonfinite=self.nonfinite)
        outputs = [RequestedOutput(name="y", binary_data=False)] if self.has_outputs else None
        return encode_request(tensors, outputs=outputs, request_id=self.id, parameters={"k": self.has_outputs})

    def decoder(self, message: EncodedMessage) -> AnyDecoder:
        """Make a decoder for it."""
        place = _in_windows if self.placing is Placing.WINDOWS else new_array
        if self.kind is Kind.RAW:
            return raw_request_decoder(self._raw_spec(message.body_length), place=place)
        make = response_decoder if self.kind is Kind.RESPONSE else request_decoder
        return make(header_length=message.header_length, body_length=message.body_length, place=place)

    def pieces(self, body: bytes) -> Iterator[bytes]:
        """Cut a message."""
        return cut(body, piece_sizes(self.first_piece, self.piece, len(body), count=_PIECES))

    def _raw_spec(self, nbytes: int) -> TensorSpec:
        recipe = self.recipes[0]
        return TensorSpec(
            name=recipe.name,
            datatype=DATATYPES[recipe.datatype_name],
            shape=recipe.shape,
            nbytes=nbytes,
            offset=0,
            is_single_element=recipe.is_bytes,
        )


def test_one_input(data: bytes) -> None:
    """Write one message, read it back, and compare."""
    check(Case.read(data))


def check(case: Case) -> None:
    """Write one message, read it back, and compare."""
    try:
        message = case.encode()
        body = b"".join(message.buffers)
    except LocalProtocolError as error:  # it has no form in the protocol
        if not case.is_refused:
            raise AssertionError("what can be written is refused") from error
        return
    assert not case.is_refused, "what cannot be written is accepted"
    _check_lengths(case, message, body)
    outcome = _read_back(case, message, body)
    assert outcome.end is not None, f"what was written is refused: {outcome.error}"
    _check_values(case, outcome)
    if case.kind is not Kind.RAW and case.placing is Placing.WHOLE:
        assert_read_as_by_oracle(outcome, body, message.header_length, is_response=case.kind is Kind.RESPONSE)


def explain(data: bytes) -> str:
    """Say what an input means, and what comes back of it."""
    case = Case.read(data)
    try:
        message = case.encode()
        body = b"".join(message.buffers)
    except LocalProtocolError as error:
        return f"{case}\nnot written: {error}"
    return f"{case}\nwritten: {body!r}\nread: {_read_back(case, message, body).log}"


def _read_back(case: Case, message: EncodedMessage, body: bytes) -> Outcome:
    return _RUNS[case.face](lambda: case.decoder(message), case.pieces(body))


def _check_lengths(case: Case, message: EncodedMessage, body: bytes) -> None:
    assert message.body_length == len(body)
    assert ("Content-Length", str(len(body))) in message.headers
    if case.kind is Kind.RAW:
        assert message.header_length == 0
    elif any(recipe.is_binary for recipe in case.recipes):
        assert message.header_length is not None
        assert message.header_length % _ALIGNMENT == 0
    else:
        assert message.header_length is None


def _check_values(case: Case, outcome: Outcome) -> None:
    tensors = {event.spec.name: event for event in outcome.tensors}
    for recipe in case.recipes:
        if recipe.name in tensors:
            assert recipe.is_same(tensors[recipe.name].array, case.nonfinite), "a tensor came back differently"
            if recipe.is_bytes:
                elements = tensors[recipe.name].elements
                assert [*elements] == [elements[index] for index in range(len(elements))] == recipe.elements
        else:
            windows = [window for window in outcome.windows if window.name == recipe.name]
            octets = b"".join(window.array.values for window in windows)
            assert windows, "a tensor did not come back"
            array = np.frombuffer(octets, recipe.dtype).reshape(recipe.shape)
            assert recipe.is_same(array, case.nonfinite), "windows came back differently"
            assert [window.is_last for window in windows] == [False] * (len(windows) - 1) + [True]
    if case.kind is not Kind.RAW:
        assert outcome.header is not None
        assert outcome.header.id == case.id


def _in_windows(spec: TensorSpec) -> Placement:
    return Windows(max_window_bytes=max(1, math.prod(spec.shape[1:]) * spec.datatype.itemsize))


_HEAD_BYTES: Final = len(Case(recipes=()).write())
"""Bytes of all choices; what follows are values."""
