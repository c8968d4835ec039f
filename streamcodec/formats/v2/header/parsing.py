"""The JSON header: parsing and validation.

This module converts the text of a header to a `RequestHeader` or `ResponseHeader` (see `model.py`), which is fully
checked: the name, datatype, shape and size of each tensor, where in the body each binary tensor starts, and where the
message ends. It allocates no memory for binary tensors, and does not know how bytes arrive. `tensors.py` reads the
entries of tensors, and `members.py` reads single members.

Unknown members are ignored. Unknown `parameters` are kept for the model. An optional member that is `null` counts as
absent; KServe writes such members. The model's name and version in a request are ignored, because the URL decides.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic

import numpy as np

from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.json.scan import DIGITS_PER_VALUE, LONG_BYTES
from streamcodec.engine.json.text import parse_json
from streamcodec.engine.limits import Limits
from streamcodec.engine.record import constructor
from streamcodec.engine.spec import NOTHING, TensorSpec
from streamcodec.formats.v2.header.compact import compact_header, compact_object, match_compactly
from streamcodec.formats.v2.header.members import (
    checked_object,
    optional,
    read_entries,
    read_parameters,
    read_unique_name,
    refuse_constants,
)
from streamcodec.formats.v2.header.plain import read_plainly
from streamcodec.formats.v2.header.stream import ENTRIES_PER_TURN, HeaderStream, Items, Turns
from streamcodec.formats.v2.header.tensors import TensorReader
from streamcodec.formats.v2.json.slices import SlicedData
from streamcodec.formats.v2.model import MessageT, RequestedOutput, RequestHeader, ResponseHeader

_new_output: Final = constructor(RequestedOutput)
_new_request_header: Final = constructor(RequestHeader)
_new_response_header: Final = constructor(ResponseHeader)


def parse_request_header(
    data: bytes | bytearray | memoryview, limits: Limits, *, null_is_nan: bool = False
) -> RequestHeader:
    """Parse and validate the JSON header of an inference request.

    Args:
        data: exactly the header; the tensors start at its end.
        limits: caps on what the header may declare.
        null_is_nan: whether `null` may stand in the data of FP32 and FP64, as KServe's client writes NaN.

    Raises:
        RemoteProtocolError: a rule is broken; `code`, `path` or `offset` say which and where.
        LimitExceededError: the header declares more than `limits` allow.
    """
    if len(data) > LONG_BYTES:
        return _parse_long(partial(long_request_header, limits, len(data), null_is_nan=null_is_nan), data)
    found = match_compactly(data)
    if found is not None and (compact := compact_header(found, limits)) is not None:
        return compact
    constants, members = 0, None if found is None else compact_object(found, limits)
    if members is None:
        if (plain := read_plainly(data, "inputs", limits)) is not None:
            root, tensors = plain
            return _request_header(root, tensors, 0, _OutputReader(limits) if "outputs" in root else None)
        members, constants = _parse_object(data, limits)
    root = members
    tensors = TensorReader("inputs", start=len(data), limits=limits, null_is_nan=null_is_nan).read_all(root)
    return _request_header(root, tensors, constants, _OutputReader(limits))


def parse_response_header(data: bytes | bytearray | memoryview, limits: Limits) -> ResponseHeader:
    """Parse and validate the JSON header of an inference response.

    Two rules are less strict than for requests, because real servers answer like that. First, a tensor without elements
    may have neither data nor size. This is no risk: there is only one such tensor. Second, `null` in the data of FP32
    and FP64 is NaN. A server that writes NaN and the infinities as `null` has lost them already, and no other value is
    misread.

    Args:
        data: exactly the header; the tensors start at its end.
        limits: caps on what the header may declare.

    Raises:
        RemoteProtocolError: a rule is broken; `code`, `path` or `offset` say which and where.
        LimitExceededError: the header declares more than `limits` allow.
    """
    if len(data) > LONG_BYTES:
        return _parse_long(partial(long_response_header, limits, len(data)), data)
    if (plain := read_plainly(data, "outputs", limits)) is not None:
        root, tensors = plain
        return _response_header(root, tensors, 0)
    root, constants = _parse_object(data, limits)
    tensors = TensorReader("outputs", start=len(data), limits=limits, is_tolerant=True).read_all(root)
    return _response_header(root, tensors, constants)


WHOLE_BYTES: Final = 64 << 10
"""A long header that has no more bytes than this is parsed at once if it is a plain one. It takes half the time then,
and no more than a turn."""

_MOST_OBJECTS: Final = 256
"""Objects in a text that is parsed at once. A tensor with its values costs some microseconds."""

_BACKSLASH: Final = ord("\\")
_OPENING_BRACE: Final = ord("{")


class LongHeader(Generic[MessageT]):
    """Reads a long header, block by block; `jsonstream.py` says how. Or at once, if it is a plain one."""

    def __init__(
        self,
        tensors: TensorReader,
        others: Mapping[str, Items],
        make: Callable[[dict[str, Any], tuple[TensorSpec, ...], int], MessageT],
        limits: Limits,
    ) -> None:
        """Begin before the first byte.

        Args:
            tensors: reads the array of tensors.
            others: read the other arrays of the root, by their keys.
            make: returns the header for its root, its tensors and the number of `NonFinite` in the root.
            limits: caps on what the header may declare.
        """
        self._tensors = tensors
        self._make = make
        self._limits = limits
        self._stream = HeaderStream({tensors.key: tensors, **others}, limits)

    def parse_whole(self, text: bytes | bytearray | memoryview) -> MessageT | None:
        """Parse the whole text at once, if it is plain; else return None, and make another reader for its blocks.

        Block by block, not all that is plain is accepted: besides the data of tensors there may be only so much text,
        and so many values. So a text is parsed at once only if it surely has no more. An escape could hide that the
        member is `data`.
        """
        limits = self._limits
        octets = np.frombuffer(text, np.uint8)
        if len(text) > limits.max_json_text_bytes or (octets == _BACKSLASH).any():
            return None
        if np.count_nonzero(octets == _OPENING_BRACE) > _MOST_OBJECTS:
            return None
        plain = read_plainly(text, self._tensors.key, limits)
        if plain is None:
            return None
        most = sum(int(np.count_nonzero(octets == mark)) for mark in b",[{") + len(text) // DIGITS_PER_VALUE
        if most - sum(spec.count - 1 for spec in plain[1] if spec.data is not None) > limits.max_json_values:
            return None
        try:
            return self._make(*plain, 0)
        except MessageError:  # block by block, an error at another place may come first
            return None

    def feed(self, text: bytes) -> Turns:
        """Take the next bytes."""
        return self._stream.feed(text)

    @property
    def block_bytes(self) -> int:
        """Length of the block that is best read next."""
        return self._stream.block_bytes

    @property
    def held_bytes(self) -> int:
        """Memory taken so far: text that is kept, and values of tensors."""
        return self._stream.held_bytes + self._tensors.held_bytes

    @property
    def goes_on(self) -> bool:
        """Whether anything but white space follows the object."""
        return self._stream.goes_on

    def finish(self, nbytes: int) -> Generator[None, None, MessageT]:
        """Return the header, whose text had `nbytes` bytes."""
        root, constants = checked_object(*self._stream.finish())
        tensors = yield from self._tensors.finish(root, nbytes)
        return self._make(root, tensors, constants)


def long_request_header(
    limits: Limits, start: int | None = None, *, null_is_nan: bool = False
) -> LongHeader[RequestHeader]:
    """Return a reader for the long header of a request.

    Args:
        limits: caps on what the header may declare.
        start: where the bytes of its tensors start; None if the length of the header is not known.
        null_is_nan: as for `parse_request_header`.
    """
    outputs = _OutputReader(limits)
    make = partial(_request_header, outputs=outputs)
    tensors = TensorReader("inputs", start=start, limits=limits, null_is_nan=null_is_nan)
    return LongHeader(tensors, {"outputs": outputs}, make, limits)


def long_response_header(limits: Limits, start: int | None = None) -> LongHeader[ResponseHeader]:
    """Return a reader for the long header of a response; the arguments are those of `long_request_header`."""
    tensors = TensorReader("outputs", start=start, limits=limits, is_tolerant=True)
    return LongHeader(tensors, {}, _response_header, limits)


def _parse_long(make: Callable[[], LongHeader[MessageT]], data: bytes | bytearray | memoryview) -> MessageT:
    """Parse a long text that is in memory already."""
    if len(data) <= WHOLE_BYTES and (whole := make().parse_whole(data)) is not None:
        return whole
    stream = make()
    start = 0
    while start < len(data):
        part = bytes(data[start : start + stream.block_bytes])
        for _ in stream.feed(part):
            pass
        start += len(part)
    work = stream.finish(len(data))
    while True:
        try:
            next(work)
        except StopIteration as end:
            header: MessageT = end.value
            return header


def _request_header(
    root: dict[str, Any], tensors: tuple[TensorSpec, ...], constants: int, outputs: _OutputReader | None
) -> RequestHeader:
    parameters = NOTHING
    if "parameters" in root:
        parameters = read_parameters(root, "$")
        optional(parameters, "binary_data_output", bool, "$.parameters")
    header = _new_request_header(
        tensors=tensors,
        outputs=None if outputs is None else outputs.read_all(root),
        id=optional(root, "id", str, "$") if "id" in root else None,
        parameters=parameters,
    )
    _check_constants(root, "inputs", constants)
    return header


def _response_header(root: dict[str, Any], tensors: tuple[TensorSpec, ...], constants: int) -> ResponseHeader:
    header = _new_response_header(
        tensors=tensors,
        model_name=optional(root, "model_name", str, "$"),
        model_version=optional(root, "model_version", str, "$"),
        id=optional(root, "id", str, "$"),
        parameters=read_parameters(root, "$") if "parameters" in root else NOTHING,
    )
    _check_constants(root, "outputs", constants)
    return header


def raw_request_header(spec: TensorSpec) -> RequestHeader:
    """Return the header that corresponds to a raw binary request (header length 0).

    Specification, "Raw Binary Request": one input, and "all the model output will be requested to be returned in binary
    tensor form".

    Raises:
        LocalProtocolError: the tensor's size is not what its datatype and shape need.
    """
    if not spec.is_single_element and spec.nbytes != spec.count * spec.datatype.itemsize:
        msg = f"a tensor {spec.datatype.name} {list(spec.shape)} does not have {spec.nbytes} bytes"
        raise LocalProtocolError(msg)
    return RequestHeader(tensors=(spec,), parameters=MappingProxyType({"binary_data_output": True}))


def _parse_object(data: bytes | bytearray | memoryview, limits: Limits) -> tuple[dict[str, Any], int]:
    return checked_object(*parse_json(data, limits))


def _check_constants(root: dict[str, Any], key: str, constants: int) -> None:
    """Refuse NaN and Infinity literals outside of tensor data. Those in tensor data have been checked already."""
    if constants:
        entries = [entry | {"data": None} for entry in root[key]]
        refuse_constants(root | {key: entries}, "$")


class _OutputReader:
    """Reads the requested outputs."""

    has_data = False

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._names: set[str] = set()
        self._outputs: list[RequestedOutput] = []

    def read_all(self, root: dict[str, Any]) -> tuple[RequestedOutput, ...] | None:
        """Return all outputs, including those that are left in the root; None if there is no such member."""
        entries = read_entries(root, "outputs", self._limits)
        if entries is None:
            return None
        for entry in entries:
            self._read_output(entry)
        return tuple(self._outputs)

    def begin(self, members: dict[str, Any]) -> None:
        """Never called: a requested output has no values."""

    def read(self, entries: list[Any], constants: int, data: SlicedData | None = None) -> Turns:  # noqa: ARG002
        """Read the next outputs."""
        for number, entry in enumerate(entries, 1):
            path = self._path
            self._read_output(entry)
            if constants:
                refuse_constants(entry, path)
            if number % ENTRIES_PER_TURN == 0:
                yield

    @property
    def _path(self) -> str:
        return f"$.outputs[{len(self._outputs)}]"

    def _read_output(self, entry: Any) -> None:  # noqa: ANN401 - any JSON value
        path = self._path
        name = read_unique_name(entry, path, self._names)
        parameters = read_parameters(entry, path)
        binary_data = optional(parameters, "binary_data", bool, f"{path}.parameters")
        self._outputs.append(_new_output(name=name, binary_data=binary_data, parameters=parameters))
