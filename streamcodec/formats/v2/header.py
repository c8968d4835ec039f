"""The JSON header: every rule that it must obey.

This room turns the text of a header into a `RequestHeader` or `ResponseHeader` (see `model.py`). When it returns one,
everything the header can promise has been checked: each tensor's name, datatype, shape and size, and the exact byte
plan: where in the body each binary tensor starts and where the message ends. It allocates nothing for binary tensors
and knows nothing of how bytes arrive.

Members that this library does not know are ignored, and `parameters` it does not know are kept for the model. `null` of
an optional member means absent; KServe writes such members. The model's name and version in a request are ignored: the
URL decides.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NoReturn, Protocol, TypeVar

import numpy as np

from streamcodec.engine.datatypes import DATATYPES, Datatype
from streamcodec.engine.elements.prefixes import PREFIX_BYTES
from streamcodec.engine.errors import ErrorCode, LimitExceededError, LocalProtocolError, RemoteProtocolError, shown
from streamcodec.engine.json.scan import LONG_BYTES
from streamcodec.engine.json.text import NonFinite, find, parse_json
from streamcodec.engine.limits import Limits, check_element_bytes, check_element_count, check_rank, check_tensor_bytes
from streamcodec.engine.record import replaced
from streamcodec.engine.spec import NOTHING, TensorSpec
from streamcodec.formats.v2.jsondata import check_has_json, decode_data
from streamcodec.formats.v2.jsonslices import SlicedData
from streamcodec.formats.v2.jsonstream import HeaderStream, Turns
from streamcodec.formats.v2.model import PLAIN_TYPES, RequestedOutput, RequestHeader, ResponseHeader
from streamcodec.formats.v2.plainheader import read_plain_tensor, read_plainly

_T = TypeVar("_T")
HeaderT = TypeVar("HeaderT", RequestHeader, ResponseHeader)

_ENTRIES_PER_TURN: Final = 64
"""Entries of a long header that are read in one go; each costs some microseconds."""


def parse_request_header(data: bytes | bytearray | memoryview, limits: Limits) -> RequestHeader:
    """Parse and validate the JSON header of an inference request.

    Args:
        data: exactly the header; tensors are laid out from its end.
        limits: caps on what it may declare.

    Raises:
        RemoteProtocolError: a rule is broken; `code`, `path` or `offset` say which and where.
        LimitExceededError: the header declares more than `limits` allow.
    """
    if len(data) > LONG_BYTES:
        return _parse_long(RequestStream(limits, start=len(data)), data)
    if (plain := read_plainly(data, "inputs", limits)) is not None:
        return _request_header(*plain, _OutputReader(limits) if "outputs" in plain[0] else None, 0)
    root, constants = _parse_object(data, limits)
    tensors = _TensorReader("inputs", start=len(data), limits=limits).read_all(root)
    return _request_header(root, tensors, _OutputReader(limits), constants)


def parse_response_header(data: bytes | bytearray | memoryview, limits: Limits) -> ResponseHeader:
    """Parse and validate the JSON header of an inference response.

    More tolerant than for requests in two points, since real servers answer so. A tensor of zero elements may have
    neither data nor size: no attack opens, there is only one such tensor. And `null` among the data of FP32 and FP64 is
    NaN: a server that writes NaN and the infinities so has lost them itself, and nothing else is misread.

    Raises:
        RemoteProtocolError: a rule is broken; `code`, `path` or `offset` say which and where.
        LimitExceededError: the header declares more than `limits` allow.
    """
    if len(data) > LONG_BYTES:
        return _parse_long(ResponseStream(limits, start=len(data)), data)
    if (plain := read_plainly(data, "outputs", limits)) is not None:
        return _response_header(*plain, 0)
    root, constants = _parse_object(data, limits)
    tensors = _TensorReader("outputs", start=len(data), limits=limits, is_tolerant=True).read_all(root)
    return _response_header(root, tensors, constants)


HeaderT_co = TypeVar("HeaderT_co", covariant=True)


class LongHeader(Protocol[HeaderT_co]):
    """Reads a long header, block by block; `jsonstream.py` says how."""

    @property
    def held_bytes(self) -> int:
        """Memory taken so far: text that is kept, and values of tensors."""
        ...

    @property
    def goes_on(self) -> bool:
        """Whether something else than white space follows the object."""
        ...

    def feed(self, text: bytes) -> Turns:
        """Take the next bytes."""
        ...

    def finish(self, nbytes: int) -> Generator[None, None, HeaderT_co]:
        """Return the header, which had so many bytes."""
        ...


class RequestStream:
    """Reads the long header of a request."""

    def __init__(self, limits: Limits, *, start: int | None = None) -> None:
        """Begin before the first byte.

        Args:
            limits: caps on what it may declare.
            start: where its tensors start, if that is known.
        """
        self._tensors = _TensorReader("inputs", start=start, limits=limits)
        self._outputs = _OutputReader(limits)
        self._stream = HeaderStream({"inputs": self._tensors, "outputs": self._outputs}, limits)

    def feed(self, text: bytes) -> Turns:
        """Take the next bytes."""
        return self._stream.feed(text)

    @property
    def held_bytes(self) -> int:
        """Memory taken so far: text that is kept, and values of tensors."""
        return self._stream.held_bytes + self._tensors.held_bytes

    @property
    def goes_on(self) -> bool:
        """Whether something else than white space follows the object."""
        return self._stream.goes_on

    def finish(self, nbytes: int) -> Generator[None, None, RequestHeader]:
        """Return the header, which had so many bytes."""
        root, constants = _object(*self._stream.finish())
        tensors = yield from self._tensors.finish(root, nbytes)
        return _request_header(root, tensors, self._outputs, constants)


class ResponseStream:
    """Reads the long header of a response."""

    def __init__(self, limits: Limits, *, start: int | None = None) -> None:
        """Begin before the first byte; the arguments are those of `RequestStream`."""
        self._tensors = _TensorReader("outputs", start=start, limits=limits, is_tolerant=True)
        self._stream = HeaderStream({"outputs": self._tensors}, limits)

    def feed(self, text: bytes) -> Turns:
        """Take the next bytes."""
        return self._stream.feed(text)

    @property
    def held_bytes(self) -> int:
        """Memory taken so far: text that is kept, and values of tensors."""
        return self._stream.held_bytes + self._tensors.held_bytes

    @property
    def goes_on(self) -> bool:
        """Whether something else than white space follows the object."""
        return self._stream.goes_on

    def finish(self, nbytes: int) -> Generator[None, None, ResponseHeader]:
        """Return the header, which had so many bytes."""
        root, constants = _object(*self._stream.finish())
        tensors = yield from self._tensors.finish(root, nbytes)
        return _response_header(root, tensors, constants)


def _parse_long(stream: LongHeader[HeaderT], data: bytes | bytearray | memoryview) -> HeaderT:
    """Parse a long text that is there already."""
    for start in range(0, len(data), LONG_BYTES):
        for _ in stream.feed(bytes(data[start : start + LONG_BYTES])):
            pass
    work = stream.finish(len(data))
    while True:
        try:
            next(work)
        except StopIteration as end:
            header: HeaderT = end.value
            return header


def _request_header(
    root: dict[str, Any], tensors: tuple[TensorSpec, ...], outputs: _OutputReader | None, constants: int
) -> RequestHeader:
    parameters = _parameters(root, "$")
    _optional(parameters, "binary_data_output", bool, "$.parameters")
    header = RequestHeader(
        tensors=tensors,
        outputs=None if outputs is None else outputs.read_all(root),
        id=_optional(root, "id", str, "$"),
        parameters=parameters,
    )
    _check_constants(root, "inputs", constants)
    return header


def _response_header(root: dict[str, Any], tensors: tuple[TensorSpec, ...], constants: int) -> ResponseHeader:
    header = ResponseHeader(
        tensors=tensors,
        model_name=_optional(root, "model_name", str, "$"),
        model_version=_optional(root, "model_version", str, "$"),
        id=_optional(root, "id", str, "$"),
        parameters=_parameters(root, "$"),
    )
    _check_constants(root, "outputs", constants)
    return header


def raw_request_header(spec: TensorSpec) -> RequestHeader:
    """Return the header that a raw binary request (header length 0) stands for.

    Specification, "Raw Binary Request": one input, and "all the model output will be requested to be returned in binary
    tensor form".

    Raises:
        LocalProtocolError: the tensor's size is not what its datatype and shape need.
    """
    if not spec.is_single_element and spec.nbytes != spec.count * spec.datatype.itemsize:
        msg = f"a tensor {spec.datatype.name} {list(spec.shape)} does not have {spec.nbytes} bytes"
        raise LocalProtocolError(msg)
    return RequestHeader(tensors=(spec,), parameters=MappingProxyType({"binary_data_output": True}))


class _TensorReader:
    """Reads one array of tensors and lays out their bytes, one after the other, from the end of the header."""

    __slots__ = ("_is_tolerant", "_key", "_limits", "_names", "_offset", "_start", "held_bytes", "tensors")

    has_data = True

    def __init__(self, key: str, *, start: int | None, limits: Limits, is_tolerant: bool = False) -> None:
        self._key = key
        self._start = start
        self._offset = start or 0
        self._limits = limits
        self._is_tolerant = is_tolerant
        self._names: set[str] = set()
        self.tensors: list[TensorSpec] = []
        self.held_bytes = 0

    def read_all(self, root: dict[str, Any]) -> tuple[TensorSpec, ...]:
        """Return all tensors of a header that has been parsed whole."""
        entries = _entries(root, self._key, self._limits)
        if entries is None:
            _missing(self._key, "$")
        for entry in entries:
            self._read_tensor(entry)
        return tuple(self.tensors)

    def begin(self, members: dict[str, Any]) -> SlicedData | None:
        """Prepare for the values of the next tensor; None if its datatype or its shape is not known."""
        if members.get("datatype") is None or members.get("shape") is None:
            return None
        path = self._path
        datatype = _datatype(members, path)
        shape = self._shape(members, path)
        if _optional(_parameters(members, path), "binary_data_size", int, f"{path}.parameters") is not None:
            raise _ambiguous(path)
        path = f"{path}.data"
        check_has_json(datatype, path)
        check_json_size(datatype, shape, self._limits, path)
        return SlicedData(
            datatype,
            shape,
            path,
            null_is_nan=self._is_tolerant,
            limits=self._limits,
            check_texts=partial(self._check_texts, path),
        )

    def read(self, entries: list[Any], constants: int, data: SlicedData | None = None) -> Turns:
        """Read the next tensors; the values of the only one may have been taken out."""
        for number, entry in enumerate(entries, 1):
            self._read_tensor(entry, data)
            if constants:
                _refuse_constant(entry | {"data": None}, f"$.{self._key}[{len(self.tensors) - 1}]")
            if number % _ENTRIES_PER_TURN == 0:
                yield

    def finish(self, root: dict[str, Any], nbytes: int) -> Generator[None, None, tuple[TensorSpec, ...]]:
        """Return all tensors, those that are left in a root of so many bytes too."""
        if not self.tensors:
            self._start = self._offset = nbytes
            self.read_all(root)
        if self._start is None:
            yield from self._move(nbytes)
        return tuple(self.tensors)

    def _move(self, nbytes: int) -> Turns:
        """Move the binary tensors behind a header of which the length was not known."""
        for index, spec in enumerate(self.tensors):
            if spec.offset is not None:
                self.tensors[index] = replaced(spec, offset=spec.offset + nbytes)
                self._check_end(spec.offset + nbytes + spec.nbytes, f"$.{self._key}[{index}]")
            if index % _ENTRIES_PER_TURN == 0:
                yield

    @property
    def _path(self) -> str:
        return f"$.{self._key}[{len(self.tensors)}]"

    def _read_tensor(self, entry: Any, sliced: SlicedData | None = None) -> None:  # noqa: ANN401 - any JSON value
        spec = read_plain_tensor(entry, self._offset, self._limits)
        if spec is None or spec.name in self._names:
            spec = self._read_strictly(entry, sliced)
        else:  # in a third of the time
            self._names.add(spec.name)
        self._offset += spec.nbytes
        if self._offset > self._limits.max_message_bytes:
            self._check_end(self._offset, self._path)
        self.tensors.append(spec)

    def _read_strictly(self, entry: Any, sliced: SlicedData | None) -> TensorSpec:  # noqa: ANN401 - any JSON value
        path = self._path
        name = _unique_name(entry, path, self._names)
        datatype = _datatype(entry, path)
        shape = self._shape(entry, path)
        parameters = _parameters(entry, path)
        size = _optional(parameters, "binary_data_size", int, f"{path}.parameters")
        data = entry.get("data")
        if size is None and data is None:
            if not self._is_tolerant or 0 not in shape:
                msg = "the tensor has neither data nor parameters.binary_data_size"
                if "shared_memory_region" in parameters:
                    msg += "; memory that is shared with a client is not read"
                raise RemoteProtocolError(msg, code=ErrorCode.MISSING_MEMBER, path=path)
            size = 0
        if size is None:
            array = self._decode(data, datatype, shape, f"{path}.data") if sliced is None else sliced.array
            self.held_bytes += array.nbytes
            return TensorSpec(name=name, datatype=datatype, shape=shape, nbytes=0, data=array, parameters=parameters)
        if data is not None:
            raise _ambiguous(path)
        check_binary_size(size, datatype, shape, self._limits, f"{path}.parameters.binary_data_size")
        offset = self._offset
        return TensorSpec(name=name, datatype=datatype, shape=shape, nbytes=size, offset=offset, parameters=parameters)

    def _decode(self, data: Any, datatype: Datatype, shape: tuple[int, ...], path: str) -> np.ndarray[Any, Any]:  # noqa: ANN401
        """Convert values that have been parsed."""
        array = decode_data(
            data,
            datatype=datatype,
            shape=shape,
            path=path,
            null_is_nan=self._is_tolerant,
            check_size=partial(check_json_size, datatype, shape, self._limits, path),
        )
        if datatype.is_bytes:
            self._check_texts(path, array.reshape(-1).tolist())
        return array

    def _check_texts(self, path: str, texts: list[bytes]) -> None:
        if self._limits.max_element_bytes < self._limits.max_header_bytes:  # no string is longer than the header
            check_element_bytes(max(map(len, texts), default=0), self._limits, path=path)

    def _check_end(self, end: int, path: str) -> None:
        if end > self._limits.max_message_bytes:
            msg = f"the message would be {end} bytes long, {self._limits.max_message_bytes} are allowed"
            raise LimitExceededError(msg, limit="max_message_bytes", path=path)

    def _shape(self, entry: dict[str, Any], path: str) -> tuple[int, ...]:
        shape = entry.get("shape")
        if shape is None:
            _missing("shape", path)
        if type(shape) is not list:
            msg = "shape is not an array"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_SHAPE, path=f"{path}.shape")
        check_rank(len(shape), self._limits, f"{path}.shape")
        elements = 1
        for axis, size in enumerate(shape):
            if type(size) is not int or size < 0:
                msg = "a dimension is not an integer >= 0"
                raise RemoteProtocolError(msg, code=ErrorCode.INVALID_SHAPE, path=f"{path}.shape[{axis}]")
            # Zeros are left out: numpy refuses the other dimensions' product even when nothing is in the array. What
            # is too large need not grow further: digits by the thousand would take their time.
            elements = min(elements * (size or 1), self._limits.max_elements + 1)
        if elements > self._limits.max_elements:
            msg = f"the shape has more than {self._limits.max_elements} elements"
            raise LimitExceededError(msg, limit="max_elements", path=f"{path}.shape")
        return tuple(shape)


def check_binary_size(size: int, datatype: Datatype, shape: tuple[int, ...], limits: Limits, path: str | None) -> None:
    """Refuse a binary size that is not what the shape and the datatype need, or is over the limits.

    Raises:
        RemoteProtocolError: `binary-size-mismatch`.
        LimitExceededError: over `max_tensor_bytes` or `max_bytes_elements`.
    """
    count = math.prod(shape)
    least = count * datatype.itemsize
    if datatype.is_bytes:
        fits = size >= least if count else size == 0
        wanted = f"at least {least}: a {PREFIX_BYTES}-byte length for each of {count} elements"
        if not count:
            wanted = "0: without elements there are no lengths of elements either"
        check_element_count(count, limits, path)
    else:
        fits = size == least
        wanted = f"{least}: {count} elements of {datatype.itemsize} bytes"
    if not fits:
        msg = f"binary_data_size is {size}, datatype and shape need {wanted}"
        raise RemoteProtocolError(msg, code=ErrorCode.BINARY_SIZE_MISMATCH, path=path)
    check_tensor_bytes(size, limits, path)
    if datatype.is_bytes and count:
        check_element_bytes(-((least - size) // count), limits, path=path)  # one at least has as much as the average


def check_json_size(datatype: Datatype, shape: tuple[int, ...], limits: Limits, path: str) -> None:
    """Refuse JSON values that are too many, or take too much memory, before any of them is converted.

    Raises:
        LimitExceededError: over `max_json_tensor_bytes` or `max_bytes_elements`.
    """
    count = math.prod(shape)
    if datatype.is_bytes:
        check_element_count(count, limits, path)
    size = count * datatype.dtype.itemsize
    if size > limits.max_json_tensor_bytes:
        msg = f"the values of the tensor take {size} bytes, {limits.max_json_tensor_bytes} are allowed as JSON"
        raise LimitExceededError(msg, limit="max_json_tensor_bytes", path=path)


def _ambiguous(path: str) -> RemoteProtocolError:
    msg = "the tensor has both data and parameters.binary_data_size"
    return RemoteProtocolError(msg, code=ErrorCode.AMBIGUOUS_SOURCE, path=path)


def _parse_object(data: bytes | bytearray | memoryview, limits: Limits) -> tuple[dict[str, Any], int]:
    return _object(*parse_json(data, limits))


def _object(root: Any, constants: int) -> tuple[dict[str, Any], int]:  # noqa: ANN401 - any JSON value
    if not isinstance(root, dict):
        msg = f"the header is a JSON {_JSON_NAMES[type(root)]}, not an object"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, path="$")
    return root, constants


def _check_constants(root: dict[str, Any], key: str, constants: int) -> None:
    """Refuse NaN and Infinity literals that are not values of a tensor; those that are have been checked there."""
    if constants:
        entries = [entry | {"data": None} for entry in root[key]]
        _refuse_constant(root | {key: entries}, "$")


def _refuse_constant(value: dict[str, Any], path: str) -> None:
    place = find(value, NonFinite, bool, path)
    if place is not None:
        msg = "NaN and Infinity may stand only in the data of an FP32 or FP64 tensor"
        raise RemoteProtocolError(msg, code=ErrorCode.NON_FINITE_NUMBER, path=place)


class _OutputReader:
    """Reads the requested outputs."""

    has_data = False

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._names: set[str] = set()
        self._outputs: list[RequestedOutput] = []

    def read_all(self, root: dict[str, Any]) -> tuple[RequestedOutput, ...] | None:
        """Return all outputs, those that are left in the root too; None if there is no such member."""
        entries = _entries(root, "outputs", self._limits)
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
                _refuse_constant(entry, path)
            if number % _ENTRIES_PER_TURN == 0:
                yield

    @property
    def _path(self) -> str:
        return f"$.outputs[{len(self._outputs)}]"

    def _read_output(self, entry: Any) -> None:  # noqa: ANN401 - any JSON value
        path = self._path
        name = _unique_name(entry, path, self._names)
        parameters = _parameters(entry, path)
        binary_data = _optional(parameters, "binary_data", bool, f"{path}.parameters")
        self._outputs.append(RequestedOutput(name=name, binary_data=binary_data, parameters=parameters))


def _entries(root: dict[str, Any], key: str, limits: Limits) -> list[Any] | None:
    entries: list[Any] | None = _optional(root, key, list, "$")
    if entries is not None and len(entries) > limits.max_tensors:
        msg = f"{key} has {len(entries)} entries, {limits.max_tensors} are allowed"
        raise LimitExceededError(msg, limit="max_tensors", path=f"$.{key}")
    return entries


def _unique_name(entry: Any, path: str, names: set[str]) -> str:  # noqa: ANN401 - any JSON value
    if not isinstance(entry, dict):
        msg = f"an object belongs here, not a JSON {_JSON_NAMES[type(entry)]}"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=path)
    name = _optional(entry, "name", str, path)
    if name is None:
        _missing("name", path)
    if not name:
        msg = "the name is empty"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=f"{path}.name")
    if name in names:
        msg = f"the name {shown(name)} is used twice"
        raise RemoteProtocolError(msg, code=ErrorCode.DUPLICATE_NAME, path=f"{path}.name")
    names.add(name)
    return name


def _datatype(entry: dict[str, Any], path: str) -> Datatype:
    name = _optional(entry, "datatype", str, path)
    if name is None:
        _missing("datatype", path)
    datatype = DATATYPES.get(name)
    if datatype is None:
        hint = "; datatypes are upper case" if name.upper() in DATATYPES else ""
        msg = f"{shown(name)} is not a datatype of the protocol{hint}"
        raise RemoteProtocolError(msg, code=ErrorCode.UNKNOWN_DATATYPE, path=f"{path}.datatype")
    return datatype


def _parameters(entry: dict[str, Any], path: str) -> Mapping[str, Any]:
    parameters = _optional(entry, "parameters", dict, path)
    if not parameters:
        return NOTHING
    if not PLAIN_TYPES.issuperset(map(type, parameters.values())):
        _check_overflow(parameters, f"{path}.parameters")
    return MappingProxyType(parameters)


def _check_overflow(parameters: dict[str, Any], path: str) -> None:
    """Refuse a number that became infinite when it was read: what the model got could not be written back."""
    found = find(parameters, float, _has_infinity, path)
    if found is not None:
        msg = "the number is larger than any double"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=found)


def _has_infinity(numbers: list[float]) -> bool:
    return math.inf in map(abs, numbers)


def _optional(members: Mapping[str, Any], key: str, kind: type[_T], path: str) -> _T | None:
    """Return a member of exactly that JSON type (`true` is no integer), or None if it is absent or null."""
    value = members.get(key)
    if value is None or type(value) is kind:
        return value
    msg = f"{key} is a JSON {_JSON_NAMES[type(value)]}, not a JSON {_JSON_NAMES[kind]}"
    raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=f"{path}.{key}")


def _missing(key: str, path: str) -> NoReturn:
    msg = f"the member {key} is missing"
    raise RemoteProtocolError(msg, code=ErrorCode.MISSING_MEMBER, path=f"{path}.{key}")


_JSON_NAMES: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number with a fraction or exponent",
    NonFinite: "non-finite number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}
