"""JSON values: the data of a JSON tensor, which may be a hundred times as large as the tensor.

Small tensors are written at once. Of large ones the text never exists as a whole: `LargeValues` goes through the array
slice by slice, first to find the length, so that the length of the message is exact before its first byte is sent, and
again when it is the tensor's turn. What is refused (a value that JSON cannot say) is refused by the first pass. To the
rest of the library such a text is what it is used to: `Rows` of bytes, whose sender holds them against the length that
was declared. So an array that was changed between the passes ends as a connection that is closed, and never as a
message that is wrong.

Beyond the array, a message holds one slice, and of short texts that are slow to make, the text itself: `KEPT_BYTES`. A
slice is some 0.2 to 1.5 ms of work.
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
from streamcodec.engine.rows import Rows
from streamcodec.formats.v2.jsonfloats import floats_as_text
from streamcodec.formats.v2.jsonintegers import integers_as_text, length_of_integers
from streamcodec.formats.v2.jsonoutput import NonFiniteOutput, check_form, encode_data, encode_floats, to_json

SMALL_BYTES: Final = 64 << 10
"""A tensor of up to so many bytes is written at once."""

KEPT_BYTES: Final = 1 << 20
"""A text of floats or strings up to this length is kept from the first pass for the second."""

_FEW: Final = {"b": 128, "u": 128, "i": 128, "f": 512}
"""Up to so many numbers are quicker without numpy."""

_SLICE_BYTES: Final = 32 << 10
"""Of the array, at a time: the text is 20 to 160 KiB."""

_FLOAT_COUNT: Final = 2 << 10
"""Floats at a time."""

_ELEMENT_COUNT: Final = 2 << 10
"""Elements of BYTES at a time, at most."""

_ONE: Final = 2
"""Offsets of one element: its own, and its end."""

_Array = np.ndarray[Any, Any]


def json_values(array: _Array | Elements, datatype: Datatype, nonfinite: NonFiniteOutput) -> str | Rows:
    """Return the text of a tensor's values: of a small one the JSON array, of a large one all but its last bracket.

    Raises:
        NotRepresentableError: the datatype or a value has no JSON form.
        LocalProtocolError: an element of BYTES is neither bytes nor text.
    """
    check_form(datatype)
    if _nbytes(array) > SMALL_BYTES:
        return _large(array, datatype, nonfinite)
    values = np.asarray(array)
    if values.size > _FEW.get(datatype.kind, values.size):
        texts = _floats(values, nonfinite) if datatype.kind == "f" else _integers(values)
        return f"[{b''.join(texts).decode()[1:]}]"
    return to_json(encode_data(values, datatype, nonfinite))


@final
class LargeValues:
    """The text of a large tensor: windows of bytes, any number of times. The last bracket is missing."""

    def __init__(self, texts: Callable[[], Iterable[bytes]]) -> None:
        """Go through what makes pieces of text, where each value stands behind a comma."""
        self._texts = texts

    def __iter__(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the text, with a bracket in the place of the first comma."""
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
    """Return the length of a text that has to be made for that, and the text itself if it is short."""
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
    """Yield the values in row-major order, so many at a time; where they do not lie so, each slice is a copy."""
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
    """Cut the offsets of elements where they are so many bytes, or elements, as are written at a time."""
    start = 0
    while (count := len(offsets) - start - 1) > 0:
        fitting = int(np.searchsorted(offsets, offsets[start] + _SLICE_BYTES, "right")) - start - 1
        stop = start + min(max(fitting, 1), count, _ELEMENT_COUNT)
        yield offsets[start : stop + 1]
        start = stop


def _groups(elements: list[Any]) -> Iterator[list[Any]]:
    """Cut a list of elements where they are so long as are written at a time."""
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
    """Return how much there is to be written, in bytes of the array."""
    if not isinstance(array, np.ndarray) or not array.dtype.hasobject or array.nbytes > SMALL_BYTES:
        return array.nbytes
    return array.nbytes + sum(map(_length, array.reshape(-1).tolist()))


def _length(element: object) -> int:
    return len(element) if isinstance(element, bytes | str | bytearray | memoryview) else 0
