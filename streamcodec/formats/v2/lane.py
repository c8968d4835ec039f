"""The memory lane: the HTTP fields of messages whose tensors are in memory that client and server share.

Such a message has the usual JSON header as its whole body. The bytes of its binary tensors are not sent. The field
`Tensor-Memory` says where they are: one place for each binary tensor that has bytes, in the order of the JSON header.
So every size and every shape is in the JSON header as always, and is checked as always. A place can only be inside of
the memory or not.

There are two memories. Tensors of requests are in the first, tensors of answers in the second. A request names the part
of the second that the answer may use, in `Answer-Memory`. An answer may also point to bytes of its own request. So a
place in an answer has a letter: `r` or `a`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.spec import TensorSpec

LANE_PATH: Final = "/v2/memory-lane"
"""The target of the request that brings the memory."""

LANE_FIELD: Final = "Memory-Lane"
"""The field of that request: the version of the protocol."""

LANE_VERSION: Final = "1"

TENSOR_FIELD: Final = "Tensor-Memory"
"""Where the tensors of a message are."""

ROOM_FIELD: Final = "Answer-Memory"
"""The part of the answer memory that an answer may use."""

LANE_ALIGNMENT: Final = 64
"""Tensors of requests, and the room for answers, begin at multiples of this, so that arrays are aligned."""

MAX_LANE_TENSORS: Final = 256
"""Most tensors of a message in the lane. Their places must fit into a head."""

_NUMBER: Final = rb"(?:0|[1-9][0-9]{0,18})"
_OFFSETS: Final = re.compile(rb"%b(?:, ?%b){0,%d}" % (_NUMBER, _NUMBER, MAX_LANE_TENSORS - 1))
_ROOM: Final = re.compile(rb"(%b), ?(%b)" % (_NUMBER, _NUMBER))
_PLACES: Final = re.compile(rb"[ar]%b(?:, ?[ar]%b){0,%d}" % (_NUMBER, _NUMBER, MAX_LANE_TENSORS - 1))

Place = tuple[bool, int]
"""Of a tensor in an answer: whether it is in the request memory, and its offset."""


def parse_offsets(values: Sequence[bytes]) -> tuple[int, ...]:
    """Read `Tensor-Memory` of a request.

    Args:
        values: of all fields of that name.

    Raises:
        RemoteProtocolError: `invalid-member`: there is not exactly one such field, or it is no list of aligned offsets.
    """
    if len(values) != 1 or _OFFSETS.fullmatch(values[0]) is None:
        raise _invalid(f"{TENSOR_FIELD} must be one list of 1 to {MAX_LANE_TENSORS} offsets, as 0, 4096")
    offsets = tuple(map(int, values[0].split(b",")))
    if any(offset % LANE_ALIGNMENT for offset in offsets):
        raise _invalid(f"each offset of {TENSOR_FIELD} must be a multiple of {LANE_ALIGNMENT}")
    return offsets


def parse_room(values: Sequence[bytes], nbytes: int) -> range:
    """Read `Answer-Memory`.

    Args:
        values: of all fields of that name.
        nbytes: size of the answer memory.

    Returns:
        The bytes that the answer may use; empty without such a field.

    Raises:
        RemoteProtocolError: `invalid-member`: there are several such fields, or it is no part of the answer memory.
    """
    if not values:
        return range(0)
    found = _ROOM.fullmatch(values[0]) if len(values) == 1 else None
    if found is None:
        raise _invalid(f"{ROOM_FIELD} must be one offset and one size, as 0, 1048576")
    start, size = int(found[1]), int(found[2])
    if start % LANE_ALIGNMENT or start + size > nbytes:
        raise _invalid(
            f"{ROOM_FIELD} must begin at a multiple of {LANE_ALIGNMENT} and end within the answer memory, "
            f"which has {nbytes} bytes"
        )
    return range(start, start + size)


def parse_places(values: Sequence[bytes]) -> tuple[Place, ...]:
    """Read `Tensor-Memory` of an answer.

    Args:
        values: of all fields of that name.

    Raises:
        RemoteProtocolError: `invalid-member`: there is not exactly one such field, or it is no list of places.
    """
    if len(values) != 1 or _PLACES.fullmatch(values[0]) is None:
        raise _invalid(f"{TENSOR_FIELD} of an answer must be one list of places, as a0, r4096")
    return tuple((place.strip()[:1] == b"r", int(place.strip()[1:])) for place in values[0].split(b","))


def in_memory(tensors: Sequence[TensorSpec], count: int) -> list[TensorSpec]:
    """Return the tensors whose bytes are in memory.

    Args:
        tensors: of a JSON header.
        count: how many places the head has named.

    Raises:
        RemoteProtocolError: `invalid-member`: there are more of them, or fewer.
    """
    found = [spec for spec in tensors if spec.nbytes]
    if len(found) != count:
        raise _invalid(f"{TENSOR_FIELD} names {count} places, the JSON header has {len(found)} binary tensors")
    return found


def check_inside(spec: TensorSpec, offset: int, bounds: range) -> None:
    """Check that a tensor is inside of its memory.

    Raises:
        RemoteProtocolError: `invalid-member`.
    """
    if offset < bounds.start or offset + spec.nbytes > bounds.stop:
        raise _invalid(
            f"a tensor of {spec.nbytes} bytes at {offset} is not inside of its memory, "
            f"which goes from {bounds.start} to {bounds.stop}"
        )


def _invalid(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(text, code=ErrorCode.INVALID_MEMBER)
