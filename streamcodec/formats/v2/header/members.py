"""The members of the objects in a JSON header: reading one of them, or saying what is wrong with it.

Each function checks one member: its JSON type, and what the protocol says of that member alone. `null` means absent. An
error names the member by its path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar

from streamcodec.engine.datatypes import DATATYPES, Datatype
from streamcodec.engine.errors import ErrorCode, LimitExceededError, RemoteProtocolError, shown
from streamcodec.engine.json.text import NonFinite, find
from streamcodec.engine.limits import Limits
from streamcodec.engine.spec import NOTHING
from streamcodec.formats.v2.model import PLAIN_TYPES

_T = TypeVar("_T")

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


def read_entries(root: dict[str, Any], key: str, limits: Limits) -> list[Any] | None:
    """Return the entries of an array of the root; None if there is no such member.

    Raises:
        RemoteProtocolError: `invalid-member`: the member is not an array.
        LimitExceededError: over `max_tensors`.
    """
    entries: list[Any] | None = optional(root, key, list, "$")
    if entries is not None and len(entries) > limits.max_tensors:
        msg = f"{key} has {len(entries)} entries, {limits.max_tensors} are allowed"
        raise LimitExceededError(msg, limit="max_tensors", path=f"$.{key}")
    return entries


def read_unique_name(entry: Any, path: str, names: set[str]) -> str:  # noqa: ANN401 - any JSON value
    """Return the name of an entry, and add it to the names of the entries before it.

    Raises:
        RemoteProtocolError: the entry is not an object, or its name is missing, empty or used twice.
    """
    if not isinstance(entry, dict):
        msg = f"an object belongs here, not a JSON {_JSON_NAMES[type(entry)]}"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=path)
    name = optional(entry, "name", str, path)
    if name is None:
        missing("name", path)
    if not name:
        msg = "the name is empty"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=f"{path}.name")
    if name in names:
        msg = f"the name {shown(name)} is used twice"
        raise RemoteProtocolError(msg, code=ErrorCode.DUPLICATE_NAME, path=f"{path}.name")
    names.add(name)
    return name


def read_datatype(entry: dict[str, Any], path: str) -> Datatype:
    """Return the datatype of a tensor.

    Raises:
        RemoteProtocolError: the member is missing, not a string, or not a datatype of the protocol.
    """
    name = optional(entry, "datatype", str, path)
    if name is None:
        missing("datatype", path)
    datatype = DATATYPES.get(name)
    if datatype is None:
        hint = "; datatypes are upper case" if name.upper() in DATATYPES else ""
        msg = f"{shown(name)} is not a datatype of the protocol{hint}"
        raise RemoteProtocolError(msg, code=ErrorCode.UNKNOWN_DATATYPE, path=f"{path}.datatype")
    return datatype


def read_parameters(entry: dict[str, Any], path: str) -> Mapping[str, Any]:
    """Return the parameters of an entry or of the root, read-only; an empty mapping if there are none.

    Raises:
        RemoteProtocolError: `invalid-member`: they are not an object, or hold a number that is larger than any double.
    """
    parameters = optional(entry, "parameters", dict, path)
    if not parameters:
        return NOTHING
    if not PLAIN_TYPES.issuperset(map(type, parameters.values())):
        # A number became infinite when it was parsed: the model's parameters could not be written as JSON.
        found = find(parameters, float, lambda numbers: math.inf in map(abs, numbers), f"{path}.parameters")
        if found is not None:
            msg = "the number is larger than any double"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=found)
    return MappingProxyType(parameters)


def optional(members: Mapping[str, Any], key: str, kind: type[_T], path: str) -> _T | None:
    """Return a member of exactly that JSON type (`true` is not an integer), or None if it is absent or null.

    Raises:
        RemoteProtocolError: `invalid-member`: the member has another type.
    """
    value = members.get(key)
    if value is None or type(value) is kind:
        return value
    msg = f"{key} is a JSON {_JSON_NAMES[type(value)]}, not a JSON {_JSON_NAMES[kind]}"
    raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path=f"{path}.{key}")


def missing(key: str, path: str) -> NoReturn:
    """Refuse an object without a member that it must have.

    Raises:
        RemoteProtocolError: `missing-member`, always.
    """
    msg = f"the member {key} is missing"
    raise RemoteProtocolError(msg, code=ErrorCode.MISSING_MEMBER, path=f"{path}.{key}")


def checked_object(root: Any, constants: int) -> tuple[dict[str, Any], int]:  # noqa: ANN401 - any JSON value
    """Return the root of a header and its number of constants, both as parsed.

    Raises:
        RemoteProtocolError: `invalid-header`: the root is not an object.
    """
    if not isinstance(root, dict):
        msg = f"the header is a JSON {_JSON_NAMES[type(root)]}, not an object"
        raise RemoteProtocolError(msg, code=ErrorCode.INVALID_HEADER, path="$")
    return root, constants


def refuse_constants(value: dict[str, Any], path: str) -> None:
    """Refuse an object that contains a NaN or Infinity literal.

    Raises:
        RemoteProtocolError: `non-finite-number`, with the path of the first one.
    """
    place = find(value, NonFinite, bool, path)
    if place is not None:
        msg = "NaN and Infinity may stand only in the data of an FP32 or FP64 tensor"
        raise RemoteProtocolError(msg, code=ErrorCode.NON_FINITE_NUMBER, path=place)
