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

from collections.abc import Callable
from typing import Final, TypeVar

from streamcodec.engine.decoder import Decoder
from streamcodec.engine.errors import LimitExceededError, LocalProtocolError, ProtocolError
from streamcodec.engine.events import HeaderT
from streamcodec.engine.limits import (
    DEFAULT_LIMITS,
    Limits,
    check_element_bytes,
    check_element_count,
    check_extent,
    check_shape,
    check_tensor_bytes,
)
from streamcodec.engine.machine import Machine, Read, ReadEnd
from streamcodec.engine.placement import Place, new_array
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
        length: bytes of the whole message; None if the length is not known beforehand.
        read_end: reads the bytes after the last tensor; None if the format has none.
        limits: caps on all that is read; the header with all its parts has `max_header_bytes`.
        check: called with the header before memory is taken for tensors; raises `RemoteProtocolError` to refuse.
        place: called for each tensor that is not BYTES; says whose memory its bytes go to.
        pause_after_header: whether the decoder is paused after the header, as it is after a window.
        paced: whether work is done in small pieces, for which `next_event` returns `NEED_TURN`.

    Raises:
        LocalProtocolError: the length is negative. From `next_event`: the format breaks a rule of this hook.

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

    def read_checked(reader: Reader) -> Reading[HeaderT]:
        header = yield from _checked(read(reader), reader, limits.max_header_bytes)
        _check_tensors(header.tensors, reader)
        return header

    def read_end_checked(reader: Reader) -> Fill:
        if read_end is not None:
            yield from _checked(read_end(reader), reader, reader.position + limits.max_header_bytes)

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


def _checked(steps: Reading[_T], reader: Reader, most: int) -> Reading[_T]:
    """Run a part of a format, and check each target and each pause."""
    turns = 0
    came: int | None = None
    while True:
        try:
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


def _check_tensors(tensors: tuple[TensorSpec, ...], reader: Reader) -> None:
    """Check all tensors against the limits, and against the assumptions of the engine.

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
        if type(spec) is not TensorSpec or not _is_sound(spec, end) or spec.name in names:
            msg = f"the format describes {path} wrongly: {spec!r}, which begins at byte {end}"
            raise LocalProtocolError(msg)
        names.add(spec.name)
        _check_limits(spec, limits, path)
        end += spec.nbytes
    reader.check_message_length(end)


def _is_sound(spec: TensorSpec, offset: int) -> bool:
    """Whether a tensor has a name, a shape, and exactly the bytes that its shape and datatype need."""
    if type(spec.name) is not str or not all(type(size) is int and size >= 0 for size in spec.shape):
        return False
    if spec.data is not None:
        return spec.nbytes == 0 and spec.data.shape == spec.shape
    if spec.offset != offset:
        return False
    least = spec.count * spec.datatype.itemsize
    if spec.is_single_element:
        return spec.datatype.is_bytes and spec.count == 1 and spec.nbytes >= 0
    return spec.nbytes >= least if spec.datatype.is_bytes and least else spec.nbytes == least


def _check_limits(spec: TensorSpec, limits: Limits, path: str) -> None:
    check_shape(spec.shape, limits, path)
    check_extent(spec.shape, spec.datatype.itemsize, path)
    check_tensor_bytes(spec.nbytes, limits, path)
    if spec.datatype.is_bytes:
        check_element_count(spec.count, limits, path)
        if spec.is_single_element:
            check_element_bytes(spec.nbytes, limits, path=path)
