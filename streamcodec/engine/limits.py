"""Limits: every read is bounded, and every bound is a field of this one class.

The defaults are finite and generous: they let every legitimate message of the known clients pass and stop what only an
attacker would send. A device with little memory, or a server facing strangers, lowers them.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamcodec.engine.errors import LimitExceededError, LocalProtocolError
from streamcodec.engine.record import field_names, record


@record(eq=True)
class Limits:
    """Upper bounds for one message and its connection. Each is inclusive: a message at the limit passes."""

    max_header_bytes: int = 64 << 20
    """Bytes of the JSON header. JSON tensors live in it: three million floats take about 60 MB."""

    max_json_depth: int = 128
    """Nesting of arrays and objects. A tensor of numpy's 64 dimensions needs 67."""

    max_json_values: int = 4_096
    """JSON values that the root of a header of more than 32 KiB may hold, and each of its entries of more than that,
    besides the data of tensors. They are parsed in one go, which holds up everybody else: so many take some
    milliseconds, and three times as long where a member occurs twice."""

    max_json_text_bytes: int = 256 << 10
    """Bytes of JSON text that the root of a header of more than 32 KiB may have, and each of its entries of more than
    that, besides the data of tensors. They are parsed in one go, too. In data a string may be as long as the header,
    and any other value as long as this, with the white space around it."""

    max_tensors: int = 16_384
    """Tensors in a message, and requested outputs in a request; each costs a few microseconds and objects."""

    max_rank: int = 64
    """Dimensions of a tensor; numpy has no more."""

    max_elements: int = 1 << 40
    """Product of the non-zero dimensions of a tensor, so that no shape overflows numpy's own arithmetic."""

    max_tensor_bytes: int = 16 << 30
    """Wire bytes of one binary tensor. Memory is reserved for it at once, but touched only as bytes arrive."""

    max_json_tensor_bytes: int = 128 << 20
    """Bytes that the values of one JSON tensor take as an array. A header at its limit could bring twice as much, as
    numbers of one digit; as floats are written, it brings a quarter."""

    max_message_bytes: int = 16 << 30
    """Bytes of the whole body: header and all tensors."""

    max_bytes_elements: int = 16 << 20
    """Elements of one BYTES tensor, in either form. Each costs 8 bytes besides its own; as an object, if it is made
    one, 41 more and its own once again."""

    max_element_bytes: int = 1 << 30
    """Bytes of one BYTES element: an image or a recording, and far below the 4 GiB that its length could say. Whoever
    asks for it as an object needs them once again, and all at once."""

    max_compression_ratio: int = 1032
    """Decompressed bytes per compressed byte. Deflate's own end, which a tensor of zeros reaches; what comes out is
    bounded by the sizes that the header declares. Lower it where such tensors are not expected."""

    max_head_bytes: int = 32 << 10
    """Bytes of an HTTP head: start line and fields. Usual clients send less than 1 KiB. Likewise of the line before a
    chunk, of the trailers behind the last one, of extensions beyond the data that they come with, and of all interim
    responses to one request."""

    max_head_fields: int = 256
    """Fields of an HTTP head. Each costs some microseconds, in however few bytes; browsers behind proxies send 30."""

    max_document_bytes: int = 1 << 20
    """Bytes of a JSON document that a client asks for: the metadata of a model with 7,500 inputs and as many outputs.
    The worst one of a megabyte takes 0.2 s to be read, or 0.7 s in a thread, and 30 MB."""

    max_drain_bytes: int = 128 << 10
    """Bytes of a refused body that are read and thrown away to keep a connection; more than that closes it."""

    def __post_init__(self) -> None:
        """Refuse what could never be meant.

        Raises:
            LocalProtocolError: a limit is not an integer, is negative, or is beyond what the machinery below can bear.
        """
        for name in field_names(type(self)):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                msg = f"{name} must be an integer >= 0, not {value!r}"
                raise LocalProtocolError(msg)
        for name, (ceiling, reason) in _CEILINGS.items():
            if getattr(self, name) > ceiling:
                msg = f"{name} must be at most {ceiling}: {reason}"
                raise LocalProtocolError(msg)


_CEILINGS = {
    "max_header_bytes": (1 << 62, "memory is counted in 63 bits"),
    "max_tensor_bytes": (1 << 62, "memory is counted in 63 bits"),
    "max_json_depth": (256, "the JSON parser recurses, and the interpreter's stack must hold it"),
    "max_rank": (64, "numpy has no more dimensions"),
    "max_elements": (1 << 59, "numpy counts bytes in 64 bits"),
}
DEFAULT_LIMITS = Limits()
"""The defaults, shared: `Limits` is immutable."""


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

    Zeros are left out: numpy refuses the product of the other sizes even where an array has no elements. The product
    stops where it is too large, since the time of a product of long integers grows with the square of their length.

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
