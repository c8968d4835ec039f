"""Limits: each read is bounded, and each bound is a field of one class.

The defaults are finite and generous. Each legitimate message of the known clients passes, and messages that only an
attacker would send are refused. Lower them on a device with little memory, or on a server for unknown clients.

One bound is the machine's own: memory in one piece is at most `ADDRESSABLE_BYTES`, 2 GiB with 32 bits. The defaults are
the same on all machines, because a tensor that comes in windows may be larger than the memory. So this bound is checked
where memory is taken, and for the shapes of arrays without elements, whose other sizes numpy multiplies nevertheless.
What is beyond it is refused with the error of the limit that could have refused it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Final

from streamcodec.engine.arguments import whole
from streamcodec.engine.errors import LimitExceededError, LocalProtocolError, kind_of
from streamcodec.engine.record import field_names, record


@record(eq=True)
class Limits:
    """Upper bounds for one message and its connection. Each is inclusive: a message at the limit passes."""

    max_header_bytes: int = 64 << 20
    """Bytes of the JSON header. JSON tensors live in it: three million floats take about 60 MB."""

    max_json_depth: int = 128
    """Nesting of arrays and objects. A tensor of numpy's 64 dimensions needs 67."""

    max_json_values: int = 4_096
    """JSON values in the root of a header of more than 32 KiB, and in each entry of more than 32 KiB; the data of
    tensors do not count. They are parsed in one go, and everybody else waits meanwhile: some milliseconds at the limit,
    and three times as long if there is a duplicate key."""

    max_json_text_bytes: int = 256 << 10
    """Bytes of JSON text in the root of a header of more than 32 KiB, and in each entry of more than 32 KiB. The data
    of tensors do not count. The text is parsed in one go, too. In the data of tensors, a string may be as long as the
    header. Any other value there, with the white space around it, has this limit."""

    max_tensors: int = 16_384
    """Tensors in a message, and requested outputs in a request; each costs a few microseconds and objects."""

    max_rank: int = 64
    """Dimensions of a tensor; numpy has no more."""

    max_elements: int = 1 << 40
    """Product of the non-zero dimensions of a tensor, so that no shape overflows numpy's own arithmetic."""

    max_tensor_bytes: int = 16 << 30
    """Wire bytes of one binary tensor. Memory is reserved for it at once, but touched only as bytes arrive."""

    max_json_tensor_bytes: int = 128 << 20
    """Bytes of the array of one JSON tensor. A header of the maximal length could need twice this limit for numbers of
    one digit. For usual floats it needs a quarter."""

    max_message_bytes: int = 16 << 30
    """Bytes of the whole body: header and all tensors."""

    max_bytes_elements: int = 16 << 20
    """Elements of one BYTES tensor, in either form. Each costs 8 bytes besides its content. As a Python object it costs
    41 bytes more, and its content once more."""

    max_element_bytes: int = 1 << 30
    """Bytes of one BYTES element. It is enough for an image or a recording, and far below the 4 GiB that the length
    prefix can declare. As a Python object, the element takes the same memory once more, all at once."""

    max_compression_ratio: int = 1032
    """Decompressed bytes per compressed byte. The default is the maximum of deflate, which a tensor of zeros reaches.
    The output is bounded by the sizes that the header declares, too. Lower this if such tensors are not expected."""

    max_head_bytes: int = 32 << 10
    """Bytes of an HTTP head: start line and fields. Usual clients send less than 1 KiB. The same limit holds for the
    line before a chunk, for the trailers after the last chunk, for chunk extensions beyond the data that they come
    with, and for all interim responses to one request together."""

    max_head_fields: int = 256
    """Fields of an HTTP head. Each costs some microseconds, even a short one. Browsers behind proxies send 30."""

    max_field_bytes: int = 2 << 10
    """Bytes of the values of all fields of one name in an HTTP head, if this library takes them apart, as
    `Content-Type`, `Accept-Encoding` and `Host`; and of the first line of an answer. Known clients send less than 200.
    To find out what a byte means costs more than to read it. Fields that mean nothing here have no limit but that of
    the head."""

    max_document_bytes: int = 1 << 20
    """Bytes of a JSON document that a client requests. The default is enough for the metadata of a model with 7,500
    inputs and 7,500 outputs. The worst document of a megabyte takes 0.2 s to parse, or 0.7 s in a thread, and 30 MB."""

    max_drain_bytes: int = 128 << 10
    """Bytes of a refused body that are read and dropped to keep the connection. If more are left, it is closed."""

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            LocalProtocolError: a limit is not an integer, is negative, or is larger than the library supports.
        """
        for name in field_names(type(self)):
            value = getattr(self, name)
            size = whole(value)
            if size is None or size < 0:
                msg = f"{name} must be an integer >= 0, not {value!r}"
                raise LocalProtocolError(msg)
            if size is not value:  # an integer of numpy, which may overflow
                object.__setattr__(self, name, size)
        for name, (ceiling, reason) in _CEILINGS.items():
            if getattr(self, name) > ceiling:
                msg = f"{name} must be at most {ceiling}: {reason}"
                raise LocalProtocolError(msg)


ADDRESSABLE_BYTES: Final = sys.maxsize
"""Bytes that Python and numpy can address in one piece. Tests of machines with 32 bits lower it."""

_CEILINGS = {
    "max_header_bytes": (1 << 62, "memory is counted in 63 bits"),
    "max_tensor_bytes": (1 << 62, "memory is counted in 63 bits"),
    "max_json_depth": (256, "the JSON parser recurses, and the interpreter's stack must hold it"),
    "max_rank": (64, "numpy has no more dimensions"),
    "max_elements": (1 << 59, "numpy counts bytes in 64 bits"),
}
DEFAULT_LIMITS = Limits()
"""The defaults, shared: `Limits` is immutable."""


def checked_limits(limits: object) -> Limits:
    """Return the limits that were given.

    Raises:
        LocalProtocolError: they are something else.
    """
    if isinstance(limits, Limits):
        return limits
    msg = f"limits are a Limits object, as Limits(max_header_bytes=...), not {kind_of(limits)}"
    raise LocalProtocolError(msg)


def header_too_long(length: int, limits: Limits, *, offset: int = 0) -> LimitExceededError:
    """Return the error for a header of more than `max_header_bytes`."""
    msg = f"the header has {length} bytes or more, {limits.max_header_bytes} are allowed"
    return LimitExceededError(msg, limit="max_header_bytes", offset=offset)


def message_too_long(length: int, limits: Limits, *, offset: int = 0) -> LimitExceededError:
    """Return the error for a message of more than `max_message_bytes`."""
    msg = f"the message has {length} bytes or more, {limits.max_message_bytes} are allowed"
    return LimitExceededError(msg, limit="max_message_bytes", offset=offset)


def check_rank(rank: int, limits: Limits, path: str) -> None:
    """Refuse more dimensions than `max_rank`.

    Raises:
        LimitExceededError: with that path.
    """
    if rank > limits.max_rank:
        msg = f"the shape has {rank} dimensions, {limits.max_rank} are allowed"
        raise LimitExceededError(msg, limit="max_rank", path=path)


def check_shape(shape: Sequence[int], limits: Limits, path: str) -> None:
    """Refuse a shape of more than `max_rank` dimensions or `max_elements` elements; its sizes are integers >= 0.

    Zeros are left out: numpy checks the product of the other sizes even for an array without elements. The product
    stops when it is too large, because the time for long integers grows with the square of their length.

    Raises:
        LimitExceededError: with that path.
    """
    check_rank(len(shape), limits, path)
    count = 1
    for size in shape:
        count = min(count * (size or 1), limits.max_elements + 1)
    if count > limits.max_elements:
        msg = f"the shape has more than {limits.max_elements} elements"
        raise LimitExceededError(msg, limit="max_elements", path=path)


def check_extent(shape: Sequence[int], itemsize: int, path: str) -> None:
    """Refuse an array without elements whose other sizes are too large for numpy on this machine.

    Args:
        shape: has passed `check_shape`.
        itemsize: bytes of an element.
        path: of the shape, for the error.

    Raises:
        LimitExceededError: with that path.
    """
    if 0 in shape:
        check_addressable(math.prod(size or 1 for size in shape) * itemsize, limit="max_elements", path=path)


def check_addressable(nbytes: int, *, limit: str, path: str | None = None, offset: int | None = None) -> None:
    """Refuse what needs more memory in one piece than this machine can address.

    Args:
        nbytes: of the memory.
        limit: name of the field of `Limits` that could have refused it.
        path: of the member of the header that says so.
        offset: of the byte that says so.

    Raises:
        LimitExceededError: with that place.
    """
    if nbytes > ADDRESSABLE_BYTES:
        msg = f"{nbytes} bytes are more than this machine can address in one piece, which is {ADDRESSABLE_BYTES}"
        raise LimitExceededError(msg, limit=limit, path=path, offset=offset)


def check_element_count(count: int, limits: Limits, path: str | None) -> None:
    """Refuse a BYTES tensor of more than `max_bytes_elements`.

    Raises:
        LimitExceededError: with that path.
    """
    if count > limits.max_bytes_elements:
        msg = f"the BYTES tensor has {count} elements, {limits.max_bytes_elements} are allowed"
        raise LimitExceededError(msg, limit="max_bytes_elements", path=path)


def check_element_bytes(size: int, limits: Limits, *, path: str | None = None, offset: int | None = None) -> None:
    """Refuse a BYTES element of more than `max_element_bytes`.

    Raises:
        LimitExceededError: with that place.
    """
    if size > limits.max_element_bytes:
        msg = f"an element of the BYTES tensor has {size} bytes, {limits.max_element_bytes} are allowed"
        raise LimitExceededError(msg, limit="max_element_bytes", path=path, offset=offset)


def check_tensor_bytes(size: int, limits: Limits, path: str | None) -> None:
    """Refuse a binary tensor of more than `max_tensor_bytes`.

    Raises:
        LimitExceededError: with that path.
    """
    if size > limits.max_tensor_bytes:
        msg = f"the tensor has {size} bytes, {limits.max_tensor_bytes} are allowed"
        raise LimitExceededError(msg, limit="max_tensor_bytes", path=path)
