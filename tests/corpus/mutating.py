"""Mutating: accepted messages of the corpus with one byte changed, and what is to be said of those still accepted.

A decoder that never crashes may still accept too much. So every byte of every accepted message is changed to other
bytes, and its declared lengths to other lengths. Most of what results must be refused. What is still accepted must be
understood as exactly what it says: all that the decoder reports is written down as JSON and the bits of the tensors,
and so is all that stands in the bytes, as the oracle of `streamcodec.testing` and `json` read them without the decoder.
The two must be the same but for members that are to be ignored.

The change is then named by what has become different: the *kind*. `still-accepted.md` has the reason why a message with
such a change cannot be told from one that was meant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from streamcodec import (
    EndOfMessage,
    HeaderReceived,
    RemoteProtocolError,
    RequestHeader,
    ResponseHeader,
    TensorReceived,
    TensorSpec,
)
from streamcodec.testing import describe_array, read_message
from tests.corpus.notation import read_bytes
from tests.corpus.reading import Case
from tests.corpus.running import declared_lengths, decoder_for

Members = dict[str, Any]

Change = tuple[int, int]
"""A place in a message, and the byte to put there."""

_TELLING: Final = frozenset(b'\0\t\n 019"\\{}[],:+-.eEnt\x7f\x80\xc3\xff')
"""Digits, the signs of JSON, blanks, what is no text."""

_WHITE_SPACE: Final = " \t\r\n"
_IGNORED: Final = {"request": {"model_name", "model_version"}, "response": {"inputs"}}
"""Members that mean something elsewhere, but not in such a message."""
_NAMED: Final = {
    "$": {"inputs", "outputs", "parameters", "id", "model_name", "model_version"},
    "[]": {"name", "datatype", "shape", "parameters", "values"},
    "$.parameters": {"binary_data_output"},
    "[].parameters": {"binary_data", "binary_data_size"},
}
"""Members that have a meaning, by the end of the path of their object; any other is `*` in the name of a kind."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A message for a decoder, and the lengths that come with it."""

    data: bytes
    header_length: int | None
    body_length: int | None
    changed_length: str | None = None
    """Which length was changed; None if it was a byte."""


def is_for_decoder(case: Case) -> bool:
    """Tell whether a case is an accepted message for a decoder alone."""
    return case.kind in {"request", "response"} and case.outcome == "accepted"


def original(case: Case) -> Mutant:
    """Return the message of a case as it is."""
    header_length, body_length = declared_lengths(case)
    return Mutant(data=read_bytes(case.message).data, header_length=header_length, body_length=body_length)


def changes_of(message: Mutant, *, is_whole: bool) -> list[Change]:
    """Return the changes of single bytes: to telling ones, or to all."""
    return [(place, other) for place, byte in enumerate(message.data) for other in others(byte, is_whole=is_whole)]


def with_other_bytes(message: Mutant, changes: Iterable[Change]) -> Iterator[Mutant]:
    """Yield a mutant for each of the changes."""
    for place, other in changes:
        yield replace(message, data=message.data[:place] + bytes([other]) + message.data[place + 1 :])


def with_other_lengths(message: Mutant) -> Iterator[Mutant]:
    """Yield the mutants whose declared lengths have another digit, or are one more or less."""
    for length in _other_lengths(message.header_length):
        yield replace(message, header_length=length, changed_length="length of the header")
    for length in _other_lengths(message.body_length):
        yield replace(message, body_length=length, changed_length="length of the body")


def others(byte: int, *, is_whole: bool) -> list[int]:
    """Return what a byte is changed to: all others, or its neighbours and telling ones."""
    near = {byte ^ 1 << bit for bit in range(8)} | {(byte + 1) % 256, (byte - 1) % 256}
    return sorted((set(range(256)) if is_whole else near | _TELLING) - {byte})


def _other_lengths(length: int | None) -> list[int]:
    if length is None:
        return []
    digits = str(length)
    changed = {int(digits[:i] + digit + digits[i + 1 :]) for i in range(len(digits)) for digit in "0123456789"}
    return sorted((changed | {length + 1, max(length - 1, 0)}) - {length})


def accepted_change(case: Case, mutant: Mutant) -> str | None:
    """Bring a mutant to a decoder, and find out what kind of change was accepted.

    Returns:
        The kind; None if the mutant was refused.

    Raises:
        AssertionError: it was accepted as something else than it is.
    """
    seen = _decode(case, mutant)
    if seen is None:
        return None
    written = _written(case, mutant)
    left_out = _differences(written, _reported(*seen))
    assert all(_may_ignore(case, path) for path in left_out), f"{mutant} is not understood as it is: {left_out}"
    if mutant.changed_length:
        return mutant.changed_length
    return next(iter(_differences(_written(case, original(case)), written)), "spelling")


def _may_ignore(case: Case, path: str) -> bool:
    name, _, change = path.partition(" ")
    return change == "gone" and (name.endswith(".*") or name.removeprefix("$.") in _IGNORED[case.kind])


def _decode(
    case: Case, mutant: Mutant
) -> tuple[RequestHeader | ResponseHeader, dict[str, np.ndarray[Any, Any]]] | None:
    """Return the header and the values that a decoder reports of a whole message; None if there is none."""
    headers: list[RequestHeader | ResponseHeader] = []
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    try:
        decoder = decoder_for(case, mutant.header_length, mutant.body_length)
        taken = decoder.feed(mutant.data)
        decoder.receive_eof()
        while not isinstance(event := decoder.next_event(), EndOfMessage):
            if isinstance(event, HeaderReceived):
                headers.append(event.header)
            elif isinstance(event, TensorReceived):
                tensors[event.spec.name] = event.array
    except RemoteProtocolError:
        return None
    return (headers[0], tensors) if taken == len(mutant.data) else None  # what is left would be another message


def _written(case: Case, mutant: Mutant) -> Members:
    """Return all that stands in a message, as read without the decoder."""
    is_response = case.kind == "response"
    message = read_message(mutant.data, _header_length(case, mutant), is_response=is_response)
    members = _without_nothing(message["header"])
    for key in _lists(is_response=is_response) & members.keys():
        members[key] = [_without_nothing(entry) for entry in members[key]]
    for entry in members["outputs" if is_response else "inputs"]:
        entry.pop("data", None)
        entry["values"] = _bits(message["tensors"][entry["name"]])
    return members


def _lists(*, is_response: bool) -> set[str]:
    return {"outputs"} if is_response else {"inputs", "outputs"}


def _header_length(case: Case, mutant: Mutant) -> int | None:
    """Return where the header ends: as declared, or where its object does, if tensors follow."""
    if "headerless" not in case.options or mutant.header_length is not None:
        return mutant.header_length
    text = mutant.data.decode("latin-1")
    header, end = json.JSONDecoder().raw_decode(text, len(text) - len(text.lstrip(_WHITE_SPACE)))
    entries = header["outputs" if case.kind == "response" else "inputs"]
    has_tensors = any((entry.get("parameters") or {}).get("binary_data_size") for entry in entries)
    return end if has_tensors else None


def _reported(header: RequestHeader | ResponseHeader, tensors: dict[str, np.ndarray[Any, Any]]) -> Members:
    """Return all that a decoder has reported, in the same form."""
    members: Members = {"id": header.id, "parameters": dict(header.parameters)}
    entries = [_reported_tensor(spec, tensors[spec.name]) for spec in header.tensors]
    if isinstance(header, ResponseHeader):
        members |= {"outputs": entries, "model_name": header.model_name, "model_version": header.model_version}
    else:
        outputs = (
            None
            if header.outputs is None
            else [
                _without_nothing({"name": output.name, "parameters": dict(output.parameters)})
                for output in header.outputs
            ]
        )
        members |= {"inputs": entries, "outputs": outputs}
    return _without_nothing(members)


def _reported_tensor(spec: TensorSpec, array: np.ndarray[Any, Any]) -> Members:
    members = {"name": spec.name, "datatype": spec.datatype.name, "shape": list(spec.shape)}
    return _without_nothing(members | {"parameters": dict(spec.parameters), "values": _bits(array)})


def _without_nothing(members: Members) -> Members:
    """Leave out what is absent: `null`, and no parameters at all."""
    return {
        key: value for key, value in members.items() if value is not None and not (key == "parameters" and value == {})
    }


def _bits(array: np.ndarray[Any, Any]) -> str:
    return str(describe_array(array).values)


def _differences(first: Any, second: Any, path: str = "$") -> list[str]:  # noqa: ANN401 - any JSON value
    """Return the paths at which two messages differ; members that are gone come before those that are new."""
    named = next((names for end, names in _NAMED.items() if path.endswith(end)), None)
    if named is not None:
        found = []
        for key in [*first, *(second.keys() - first.keys())]:
            inner = f"{path}.{key if key in named else '*'}"
            if key in first and key in second:
                found += _differences(first[key], second[key], inner)
            else:
                found.append(f"{inner} {'new' if key in second else 'gone'}")
        return found
    if path in {"$.inputs", "$.outputs"} and type(first) is type(second) is list and len(first) == len(second):
        return [place for pair in zip(first, second, strict=True) for place in _differences(*pair, f"{path}[]")]
    return [] if json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True) else [path]
