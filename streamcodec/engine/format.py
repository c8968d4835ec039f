"""Formats: the public interface for formats of your own.

A format is a generator, `read(reader)`. It reads the header of a message with the methods of `Reader`. It returns an
object whose `tensors` are `TensorSpec`s in the order of their bytes. The engine does the rest: it checks, places and
fills the tensors, pauses after windows, enforces the limits, and adds offsets to errors. A format never sees how the
bytes were split into chunks.

A format may have bugs, and they must not make the engine break its promises. So this module checks everything that a
format yields and returns. A broken rule is a `LocalProtocolError`, because it is the format's fault and not the peer's.
A format that computes for ever and yields nothing cannot be stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeVar

import numpy as np

from streamcodec.engine.datatypes import Datatype
from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import (
    ErrorCode,
    LimitExceededError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    kind_of,
)
from streamcodec.engine.events import HeaderT
from streamcodec.engine.limits import (
    DEFAULT_LIMITS,
    Limits,
    check_element_bytes,
    check_element_count,
    check_extent,
    check_shape,
    check_tensor_bytes,
    checked_limits,
)
from streamcodec.engine.machine import Machine, Read, ReadEnd
from streamcodec.engine.memory.placement import Place, new_array
from streamcodec.engine.reader import Fill, Reader, Reading
from streamcodec.engine.spec import TensorSpec

_T = TypeVar("_T")

_MOST_TURNS: Final = 1 << 16
"""Pauses without reading in between. A header of some megabytes takes a few hundred pauses in all."""


def format_decoder(
    read: Read[HeaderT],
    *,
    length: int | None = None,
    read_end: ReadEnd | None = None,
    limits: Limits = DEFAULT_LIMITS,
    check: Callable[[HeaderT], None] | None = None,
    place: Place = new_array,
    pause_after_header: bool = False,
    paced: bool = False,
) -> Decoder[HeaderT]:
    """Make a decoder for one message of any format.

    Args:
        read: the format: a generator function that reads the header and returns it.
        length: bytes of the whole message, which it must have; None if the length is not known beforehand.
        read_end: reads the bytes after the last tensor; None if the format has none.
        limits: caps on all that is read; the header with all its parts has `max_header_bytes`.
        check: called with the header before memory is taken for tensors; raises `RemoteProtocolError` to refuse.
        place: called for each tensor that is not BYTES; says whose memory its bytes go to.
        pause_after_header: whether the decoder is paused after the header, as it is after a window.
        paced: whether work is done in small pieces, for which `next_event` returns `NEED_TURN`.

    Raises:
        LocalProtocolError: an argument is of another type, or the length is negative. From `next_event`: the format
                breaks a rule of this hook.

    Example:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from streamcodec import DATATYPES, TensorSpec, format_decoder
        >>> def read(reader):
        ...     (count,) = yield from reader.read(1)
        ...     spec = TensorSpec(name="x", datatype=DATATYPES["INT16"], shape=(count,), nbytes=2 * count, offset=1)
        ...     return SimpleNamespace(tensors=(spec,))
        >>> decoder = format_decoder(read)
        >>> decoder.feed(bytes([2, 1, 0, 2, 0]))
        5
        >>> [type(decoder.next_event()).__name__ for _ in range(3)]
        ['HeaderReceived', 'TensorReceived', 'EndOfMessage']
    """
    checked_limits(limits)

    def read_checked(reader: Reader) -> Reading[HeaderT]:
        header = yield from _checked(read, reader, limits.max_header_bytes)
        end = _check_tensors(_tensors_of(header), reader)
        _check_end(end, reader, is_last=read_end is None or reader.envelope_bytes > 0)
        return header

    def read_end_checked(reader: Reader) -> Fill:
        if reader.envelope_bytes:
            reader.length = None if length is None else length - reader.envelope_bytes
        if read_end is not None:
            yield from _checked(read_end, reader, reader.position + limits.max_header_bytes)
        if reader.ahead or reader.position < (reader.length or 0):
            raise reader.trailing_bytes()

    return Decoder(
        Machine(
            read_checked,
            read_end=read_end_checked,
            length=length,
            limits=limits,
            check=check,
            place=place,
            pause_after_header=pause_after_header,
            paced=paced,
        )
    )


def _checked(read: Callable[[Reader], Reading[_T]], reader: Reader, most: int) -> Reading[_T]:
    """Run a part of a format, and check each target and each pause."""
    turns = 0
    came: int | None = None
    steps: Reading[_T] | None = None
    while True:
        try:
            if steps is None:
                steps = _steps_of(read, reader)
            target = next(steps) if came is None else steps.send(came)
        except StopIteration as end:
            result: _T = end.value
            return result
        except (ProtocolError, MemoryError):
            raise
        except Exception as error:
            msg = f"the format failed: {type(error).__name__}: {error}"
            raise LocalProtocolError(msg) from error
        turns = _check_turn(turns, reader) if target is None else 0
        if target is not None:
            _check_target(target, reader, most)
        came = yield target


def _steps_of(read: Callable[[Reader], Reading[_T]], reader: Reader) -> Reading[_T]:
    steps: object = read(reader)
    if not isinstance(steps, Generator):
        msg = f"a format is a generator function of a reader, with `yield from reader.read(n)`, unlike {read!r}"
        raise LocalProtocolError(msg)
    return steps


def _tensors_of(header: object) -> Sequence[TensorSpec]:
    tensors: object = getattr(header, "tensors", None)
    if isinstance(tensors, tuple | list):
        return tensors
    found = kind_of(header) if tensors is None else f"{kind_of(header)} whose tensors are {kind_of(tensors)}"
    msg = f"a format returns an object whose attribute `tensors` is a tuple of TensorSpec, not {found}"
    raise LocalProtocolError(msg)


def _check_turn(turns: int, reader: Reader) -> int:
    if not reader.needs_turn:
        msg = "a format pauses by `reader.turn()`"
        raise LocalProtocolError(msg)
    if turns > _MOST_TURNS:
        msg = f"the format has paused {turns} times, and has read nothing in between"
        raise LocalProtocolError(msg)
    return turns + 1


def _check_target(target: object, reader: Reader, most: int) -> None:
    """Refuse memory that cannot be filled as it is, or that takes the header beyond its limit."""
    if not isinstance(target, memoryview) or target.readonly or target.format != "B" or not target.contiguous:
        msg = "a format yields contiguous, writable views of bytes"
        raise LocalProtocolError(msg)
    if not len(target):
        msg = "a format yields no empty targets: nothing would ever fill them"
        raise LocalProtocolError(msg)
    if reader.position + len(target) > most:
        msg = f"the header has {reader.position + len(target)} bytes or more, {most} are allowed"
        raise LimitExceededError(msg, limit="max_header_bytes", offset=0)
    if reader.length is not None and reader.offset + len(target) > reader.length:
        error = reader.truncated(reader.offset + len(target) - reader.length)
        error.offset = reader.length
        raise error


def _check_end(end: int, reader: Reader, *, is_last: bool) -> None:
    """Refuse a message whose tensors do not end where its declared length says, before memory is taken for them."""
    length = reader.length
    if length is not None and (end > length or (end < length and is_last)):
        msg = f"the message has {length} bytes, its header and tensors need {end}"
        raise RemoteProtocolError(msg, code=ErrorCode.BODY_LENGTH_MISMATCH, offset=min(length, end))


def _check_tensors(tensors: Sequence[TensorSpec], reader: Reader) -> int:
    """Check all tensors against the limits, and against the assumptions of the engine; return where they end.

    Raises:
        LimitExceededError: there are more tensors than the limits allow, or larger ones.
        LocalProtocolError: the format has described a tensor wrongly.
    """
    limits = reader.limits
    if len(tensors) > limits.max_tensors:
        msg = f"the message has {len(tensors)} tensors, {limits.max_tensors} are allowed"
        raise LimitExceededError(msg, limit="max_tensors")
    names: set[str] = set()
    end = reader.position
    for index, spec in enumerate(tensors):
        path = f"tensors[{index}]"
        if (fault := _fault_of(spec, end, names)) is not None:
            msg = f"the format describes {path} wrongly: {fault}: {spec!r}"
            raise LocalProtocolError(msg)
        names.add(spec.name)
        check_shape(spec.shape, limits, path)
        check_extent(spec.shape, spec.datatype.itemsize, path)
        check_tensor_bytes(spec.nbytes, limits, path)
        if spec.datatype.is_bytes:
            check_element_count(spec.count, limits, path)
            if spec.is_single_element:
                check_element_bytes(spec.nbytes, limits, path=path)
        end += spec.nbytes
    reader.check_message_length(end)
    return end


def _fault_of(spec: object, begin: int, names: set[str]) -> str | None:
    """Say what is wrong with the description of a tensor whose bytes begin there; None if nothing is.

    A tensor has a name of its own, a shape, and exactly the bytes that its shape and datatype need.
    """
    if type(spec) is not TensorSpec:
        return f"it is no TensorSpec, but {kind_of(spec)}"
    fault = _fault_of_types(spec)
    if fault is None and spec.name in names:
        fault = f"another tensor is named {spec.name!r}, too"
    if fault is None:
        fault = _fault_of_place(spec, begin) if spec.data is None else _fault_of_values(spec, spec.data)
    return fault


def _fault_of_types(spec: TensorSpec) -> str | None:
    """Say which attribute of a description is of another type."""
    shape: object = spec.shape
    if type(spec.name) is not str:
        return f"the name is no str, but {kind_of(spec.name)}"
    if type(spec.datatype) is not Datatype:
        return f"the datatype is no Datatype, as DATATYPES['FP32'], but {kind_of(spec.datatype)}"
    if not isinstance(shape, tuple | list) or not all(type(size) is int and size >= 0 for size in shape):
        return "the shape is no tuple of int of 0 or more; int() converts integers of numpy, which may overflow"
    if type(spec.nbytes) is not int:
        return f"nbytes is no int, but {kind_of(spec.nbytes)}"
    return None


def _fault_of_values(spec: TensorSpec, data: object) -> str | None:
    """Say what is wrong with a tensor whose values are there already."""
    if not isinstance(data, np.ndarray) or data.shape != spec.shape:
        return "data is no array of the shape"
    return "nbytes is not 0, although the values are there as data" if spec.nbytes else None


def _fault_of_place(spec: TensorSpec, begin: int) -> str | None:
    """Say what is wrong with the bytes of a tensor."""
    if spec.offset != begin:
        return f"the offset is {spec.offset}, but its bytes begin at {begin}, where the header or the last tensor ends"
    least, is_bytes = spec.count * spec.datatype.itemsize, spec.datatype.is_bytes
    if spec.is_single_element:
        is_one = is_bytes and spec.count == 1 and spec.nbytes >= 0
        return None if is_one else "a single element is one element of BYTES"
    if spec.nbytes == least or (is_bytes and 0 < least < spec.nbytes):
        return None
    return f"it has {spec.nbytes} bytes, its shape and datatype need {least}{' or more' * is_bytes}"
