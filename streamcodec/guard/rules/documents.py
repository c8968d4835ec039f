"""Documents: checks the JSON body of a request for an extension, such as `generate`, before it is passed on. Sans-IO.

Servers parse such a body by recursion, and convert its values without looking at their types: 200 KB of brackets end
Triton. So a document is an object, and strict JSON; its depth, the number of its values and their types are bounded.
What its members mean, only the server behind knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from streamcodec.engine.errors import ErrorCode, LimitExceededError, MessageError, RemoteProtocolError
from streamcodec.engine.json.marks import Marks
from streamcodec.engine.json.text import parse_json
from streamcodec.engine.limits import Limits
from streamcodec.guard.rules.allowing import BodyCheck

DOCUMENTS: Final = {BodyCheck.INPUTS, BodyCheck.DOCUMENT}
"""Bodies that are documents."""
DOCUMENT_COPIES: Final = 10
"""Most memory for a document, in its own length: its bytes twice, its text with four bytes for each, and its values."""

_BLOCK_BYTES: Final = 64 << 10
_MARKS: Final = b",[{"
_SCALARS: Final = {str, int, float, bool, type(None)}


def max_document_bytes(limits: Limits) -> int:
    """Return the length of the longest document; it is parsed in one go, in some 10 ms at the limit."""
    return min(limits.max_document_bytes, limits.max_json_text_bytes)


def check_document(data: bytearray, limits: Limits, *, is_generate: bool) -> Iterator[None]:
    """Check a document; yield after each part of the work.

    Args:
        data: the whole body.
        limits: `max_json_depth` and `max_json_values` apply.
        is_generate: whether it has inputs for a model. Other documents may be missing, and may have any values.

    Raises:
        RemoteProtocolError: it is no strict JSON, no object, or has values that are no inputs.
        LimitExceededError: it is too deep, or has too many values.
    """
    if not data and not is_generate:
        return
    yield from _check_size(data, limits)
    try:
        document, constants = parse_json(data, limits)
    except MessageError as error:
        error.message = error.message.replace("the header", "the body")  # of an inference it would be a part
        raise
    if constants:
        msg = "NaN or Infinity, which is no JSON"
        raise RemoteProtocolError(msg, code=ErrorCode.NON_FINITE_NUMBER)
    if not isinstance(document, dict):
        msg = "the body must be a JSON object"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, path="$")
    if is_generate:
        _check_inputs(document, "$", may_nest=True)


def _check_size(data: bytearray, limits: Limits) -> Iterator[None]:
    """Refuse too many values; a value has a comma or a bracket before it."""
    marks, count = Marks(_MARKS), 1
    for start in range(0, len(data), _BLOCK_BYTES):
        _, kinds, outside = marks.find(bytes(data[start : start + _BLOCK_BYTES]))
        is_value = kinds != ord('"')
        count += int(is_value.sum() if outside is None else (is_value & outside).sum())
        if count > limits.max_json_values:
            msg = f"the body has more than {limits.max_json_values} JSON values"
            raise LimitExceededError(msg, limit="max_json_values")
        yield


def _check_inputs(members: dict[str, Any], path: str, *, may_nest: bool) -> None:
    """Refuse values that can be no inputs. An input is a scalar, null, or an array of these, of any depth.

    One level of objects may be among them, as for `parameters`.
    """
    for name, value in members.items():
        if may_nest and isinstance(value, dict):
            _check_inputs(value, f"{path}.{name}", may_nest=False)
        elif not _is_input(value):
            msg = "an input must be a string, a number, a boolean, null, or an array of these"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=f"{path}.{name}")


def _is_input(value: object) -> bool:
    """Whether a value is a scalar, or an array of arrays of scalars; its depth is bounded already."""
    return all(map(_is_input, value)) if isinstance(value, list) else type(value) in _SCALARS
