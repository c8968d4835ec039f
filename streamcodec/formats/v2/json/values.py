"""JSON values: the text of a JSON tensor, which may be a hundred times as large as the tensor.

Small tensors are written at once. The text of a large tensor never exists as a whole. `LargeValues` converts the array
slice by slice, in two passes. The first pass computes the length, so that the length of the message is exact before the
first byte is sent. It also refuses values without a JSON form. The second pass makes the text, when it is the tensor's
turn. For the rest of the library, the text is `Rows` of bytes, and the sender checks its declared length. So if an
array is changed between the passes, the connection is closed, and no wrong message is sent.

Besides the array, a message holds one slice in memory. A short text that is slow to make is kept from the first pass:
`KEPT_BYTES`. A slice takes some 0.2 to 1.5 ms of work.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from streamcodec.engine.datatypes import Datatype
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.elements.payloads import NO_TEXT, payloads_as_text, payloads_of
from streamcodec.engine.elements.prefixes import PREFIX_BYTES, Offsets
from streamcodec.engine.elements.runs import cut
from streamcodec.engine.errors import NotRepresentableError
from streamcodec.engine.json.quick import may_differ, write_floats, writes_floats
from streamcodec.engine.memory.rows import Rows
from streamcodec.formats.v2.json.floats import floats_as_text
from streamcodec.formats.v2.json.integers import integers_as_text, length_of_integers
from streamcodec.formats.v2.json.output import NonFiniteOutput, check_form, encode_data, encode_floats, to_json

SMALL_BYTES: Final = 64 << 10
"""Bytes of the largest tensor that is written at once."""

KEPT_BYTES: Final = 2 << 20
"""Bytes of the longest text of floats or strings that is kept from the first pass for the second."""

_FEW: Final = {"b": 128, "u": 128, "i": 128, "f": 512}
"""Up to this number of values, `json` is quicker than numpy."""

_FEW_FLOATS: Final = 12
"""Up to this number of floats, `json` is quicker than `msgspec`, which needs some preparation."""

_SLICE_BYTES: Final = 32 << 10
"""Bytes of the array at a time. Their text has 20 to 160 KiB."""

_FLOAT_COUNT: Final = 2 << 10
"""Floats at a time."""

_ELEMENT_COUNT: Final = 2 << 10
"""Elements of BYTES at a time, at most."""

_ONE: Final = 2
"""Offsets of one element: its own, and its end."""

_Array = np.ndarray[Any, Any]


def json_values(array: _Array | Elements, datatype: Datatype, nonfinite: NonFiniteOutput) -> str | Rows:
    """Return the text of a tensor's values: the JSON array, for a large tensor without its last bracket.

    Raises:
        NotRepresentableError: the datatype or a value has no JSON form.
        LocalProtocolError: an element of BYTES is neither bytes nor text.
    """
    check_form(datatype)
    if _nbytes(array) > SMALL_BYTES:
        return _large(array, datatype, nonfinite)
    values = np.asarray(array)
    if datatype.kind == "f" and 0 < values.size <= _FLOAT_COUNT:
        text = write_floats(values.reshape(-1).tolist())
        if text is not None and not may_differ(text):
            return text.decode()
    is_quick = datatype.kind == "f" and values.size > _FEW_FLOATS and writes_floats()
    if is_quick or values.size > _FEW.get(datatype.kind, values.size):
        texts = _floats(values, nonfinite) if datatype.kind == "f" else _integers(values)
        return f"[{b''.join(texts).decode()[1:]}]"
    return to_json(encode_data(values, datatype, nonfinite))


@final
class LargeValues:
    """The text of a large tensor: windows of bytes, any number of times. The last bracket is missing."""

    def __init__(self, texts: Callable[[], Iterable[bytes]]) -> None:
        """Iterate over pieces of text; in these, a comma precedes each value."""
        self._texts = texts

    def __iter__(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the text. The first comma is replaced by a bracket."""
        bracket = b"["
        for text in self._texts():
            yield np.frombuffer(bracket + text[1:] if bracket else text, np.uint8)
            bracket = b""


def _large(array: _Array | Elements, datatype: Datatype, nonfinite: NonFiniteOutput) -> Rows:
    texts: Callable[[], Iterable[bytes]]
    if isinstance(array, Elements) or datatype.is_bytes:
        texts = partial(_strings, array)
    elif datatype.kind == "f":
        texts = partial(_floats, array, nonfinite)
    else:
        nbytes = sum(map(length_of_integers, _slices(array, _SLICE_BYTES // array.itemsize)))
        return Rows("UINT8", (nbytes,), LargeValues(partial(_integers, array)))
    nbytes, kept = _measure(texts())
    return Rows("UINT8", (nbytes,), LargeValues(kept.copy if kept else texts))


def _measure(texts: Iterable[bytes]) -> tuple[int, list[bytes]]:
    """Make a text to find its length. Return the length, and the text itself if it is short."""
    kept: list[bytes] = []
    nbytes = 0
    for text in texts:
        nbytes += len(text)
        if nbytes <= KEPT_BYTES:
            kept.append(text)
        else:
            kept.clear()
    return nbytes, kept


def _integers(array: _Array) -> Iterator[bytes]:
    return map(integers_as_text, _slices(array, _SLICE_BYTES // array.itemsize))


def _floats(array: _Array, nonfinite: NonFiniteOutput) -> Iterator[bytes]:
    def plain(values: _Array) -> list[str]:
        return to_json(encode_floats(values, nonfinite))[1:-1].split(",")

    return (floats_as_text(values, plain) for values in _slices(array, _FLOAT_COUNT))


def _slices(array: _Array, count: int) -> Iterator[_Array]:
    """Yield the values in row-major order, `count` at a time. If the array is not C-contiguous, slices are copies."""
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    for start in range(0, array.size, count):
        yield flat[start : start + count]


def _strings(array: _Array | Elements) -> Iterator[bytes]:
    if isinstance(array, Elements):
        for places in _places(array.offsets):
            if len(places) == _ONE:
                yield from _string(array.data[places[0] + PREFIX_BYTES : places[1]].data)
            else:
                starts = places[:-1] + PREFIX_BYTES
                yield _listed(cut(array.data, starts, places[1:] - starts).tolist())
        return
    for values in _slices(array, _ELEMENT_COUNT):
        for elements in _groups(values.tolist()):
            if len(elements) == 1:
                yield from _string(memoryview(payloads_of(elements)[0]))
            else:
                yield _listed(elements)


def _places(offsets: Offsets) -> Iterator[Offsets]:
    """Split the offsets of elements into groups that are written at a time, by bytes and by number of elements."""
    start = 0
    while (count := len(offsets) - start - 1) > 0:
        fitting = int(np.searchsorted(offsets, offsets[start] + _SLICE_BYTES, "right")) - start - 1
        stop = start + min(max(fitting, 1), count, _ELEMENT_COUNT)
        yield offsets[start : stop + 1]
        start = stop


def _groups(elements: list[Any]) -> Iterator[list[Any]]:
    """Split a list of elements into groups that are written at a time, by bytes."""
    lengths = list(map(_length, elements))
    if sum(lengths) <= _SLICE_BYTES:
        yield elements
        return
    start, size = 0, 0
    for index, length in enumerate(lengths):
        if index > start and size + length > _SLICE_BYTES:
            yield elements[start:index]
            start, size = index, 0
        size += length
    yield elements[start:]


def _listed(elements: list[Any]) -> bytes:
    """Return the text of some elements."""
    return f",{to_json(payloads_as_text(elements))[1:-1]}".encode()


def _string(payload: memoryview) -> Iterator[bytes]:
    """Yield the text of an element that may be long."""
    decoder = getincrementaldecoder("utf-8")()
    opening, closing = ',"', ""
    for start in range(0, max(len(payload), 1), _SLICE_BYTES):
        piece = bytes(payload[start : start + _SLICE_BYTES])
        if start + _SLICE_BYTES >= len(payload):
            closing = '"'
        try:
            text = decoder.decode(piece, final=bool(closing))
        except UnicodeDecodeError:
            raise NotRepresentableError(NO_TEXT) from None
        yield f"{opening}{to_json(text)[1:-1]}{closing}".encode()
        opening = ""


def _nbytes(array: _Array | Elements) -> int:
    """Return the size of the array in bytes."""
    if not isinstance(array, np.ndarray) or not array.dtype.hasobject or array.nbytes > SMALL_BYTES:
        return array.nbytes
    return array.nbytes + sum(map(_length, array.reshape(-1).tolist()))


def _length(element: object) -> int:
    return len(element) if isinstance(element, bytes | str | bytearray | memoryview) else 0
