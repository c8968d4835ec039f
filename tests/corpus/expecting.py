"""Expecting: the lines that say what must come of a message, held against what came of it; see README.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from streamcodec import (
    DATATYPES,
    LimitExceededError,
    MessageError,
    RequestedOutput,
    RequestHeader,
    ResponseHeader,
    TensorSpec,
)
from streamcodec.service import Reply
from tests.corpus.notation import read_elements
from tests.corpus.reading import Case
from tests.corpus.running import Seen

_STRING = r'("(?:[^"\\]|\\.)*")'
_TENSOR = re.compile(rf"{_STRING} ([A-Z0-9]+) (\[[0-9, ]*\]) (.*)")
_OUTPUT = re.compile(rf"{_STRING} (binary|json|default)")
_OF = re.compile(rf"of {_STRING} (.*)")


def check(case: Case, seen: Seen) -> None:
    """Insist that what was seen is what the case expects."""
    {"accepted": _check_accepted, "refused": _check_refused, "answered": _check_answered}[case.outcome](case, seen)


def _check_accepted(case: Case, seen: Seen) -> None:
    assert seen.error is None, f"refused: {seen.error.code}: {seen.error}"
    assert seen.header is not None
    lines = _by_kind(case.expected)
    assert all(_tensor_line(line, *tensor) for line, tensor in zip(lines.pop("tensor", []), seen.tensors, strict=True))
    header = seen.header
    assert [header.id] == [json.loads(line) for line in lines.pop("id", ["null"])]
    _check_parameters(lines.pop("parameters", []), header)
    if isinstance(header, RequestHeader):
        _check_outputs(lines, header)
    else:
        _check_model(lines.pop("model", ["null null"]), header)
    _check_reply(lines, seen.reply, default=200)
    assert not lines, f"lines that say nothing: {lines}"


def _check_refused(case: Case, seen: Seen) -> None:
    assert seen.error is not None, "accepted"
    lines = _by_kind(case.expected)
    after = lines.pop("after", [])
    assert [spec.name for spec, _ in seen.tensors] == [json.loads(name) for name in after]
    (wanted,) = [line for line in case.expected if line.startswith("code=")]
    lines = {kind: values for kind, values in lines.items() if not kind.startswith("code=")}
    assert _error_line(seen.error, wanted, seen.error_mark) == wanted
    _check_reply(lines, seen.reply, default=seen.error.status_hint)
    assert not lines, f"lines that say nothing: {lines}"


def _check_answered(case: Case, seen: Seen) -> None:
    assert seen.header is None, "that was an inference: accepted or refused?"
    assert seen.error is None, f"refused: {seen.error.code}: {seen.error}"
    lines = _by_kind(case.expected)
    _check_reply(lines, seen.reply, default=200)
    assert not lines, f"lines that say nothing: {lines}"


def _by_kind(lines: Iterable[str]) -> dict[str, list[str]]:
    """Sort lines by their first word."""
    kinds: dict[str, list[str]] = {}
    for line in lines:
        kind, _, rest = line.partition(" ")
        kinds.setdefault(kind, []).append(rest)
    return kinds


def _error_line(error: MessageError, wanted: str, mark: int | None) -> str:
    """Describe an error in the way of the corpus."""
    offset: object = error.offset
    if "offset=^" in wanted:
        assert mark is not None, "offset=^ needs a ‸ in the message"
        offset = "^" if error.offset == mark else f"{error.offset} (the mark is at {mark})"
    parts = {"code": error.code, "offset": offset, "path": error.path, "status": error.status_hint}
    if "limit=" in wanted:
        parts["limit"] = error.limit if isinstance(error, LimitExceededError) else None
    return " ".join(f"{name}={value}" for name, value in parts.items() if value is not None)


def _tensor_line(line: str, spec: TensorSpec, array: np.ndarray[Any, Any]) -> bool:
    match = _TENSOR.fullmatch(line)
    assert match, f"what tensor is this? {line}"
    name, datatype, shape, values = match.groups()
    assert (spec.name, spec.datatype.name, list(spec.shape)) == (json.loads(name), datatype, json.loads(shape))
    assert array.shape == spec.shape
    assert array.dtype == DATATYPES[datatype].dtype
    found: Any = array.reshape(-1).tolist() if array.dtype == object else array.tobytes()
    assert found == _values(values, datatype), f"{spec.name}: {array.reshape(-1).tolist()}"
    return True


def _values(text: str, datatype: str) -> list[bytes] | bytes:
    """Return the elements of a BYTES tensor, or the bytes of any other."""
    is_bytes = DATATYPES[datatype].is_bytes
    if text.startswith("⟨"):
        elements = read_elements(text)
        return elements if is_bytes else b"".join(elements)
    values = json.loads(text)
    return [value.encode() for value in values] if is_bytes else np.array(values, DATATYPES[datatype].dtype).tobytes()


def _check_outputs(lines: dict[str, list[str]], header: RequestHeader) -> None:
    has_empty_list = lines.pop("outputs", None) == ["none"]
    wanted = lines.pop("output", [])
    assert (header.outputs is not None) is bool(wanted or has_empty_list)
    for line, output in zip(wanted, header.outputs or (), strict=True):
        match = _OUTPUT.fullmatch(line)
        assert match, f"what output is this? {line}"
        assert (output.name, _form(output)) == (json.loads(match[1]), match[2])


def _form(output: RequestedOutput) -> str:
    return {None: "default", True: "binary", False: "json"}[output.binary_data]


def _check_model(lines: list[str], header: ResponseHeader) -> None:
    (line,) = lines
    decoder = json.JSONDecoder()
    name, end = decoder.raw_decode(line)
    version = json.loads(line[end:])
    assert (header.model_name, header.model_version) == (name, version)


def _check_parameters(lines: list[str], header: RequestHeader | ResponseHeader) -> None:
    named = {tensor.name: tensor.parameters for tensor in header.tensors}
    if isinstance(header, RequestHeader):
        named |= {output.name: output.parameters for output in header.outputs or ()}
    for line in lines:
        match = _OF.fullmatch(line)
        found = named[json.loads(match[1])] if match else header.parameters
        wanted = json.loads(match[2] if match else line)
        assert {name: found.get(name, "absent") for name in wanted} == wanted


def _check_reply(lines: dict[str, list[str]], reply: Reply | None, *, default: int) -> None:
    if reply is None:
        return
    assert [reply.status] == [int(line) for line in lines.pop("answer", [str(default)])], _text(reply)
    fields: dict[str, list[str]] = {}
    for name, value in reply.headers:
        fields.setdefault(name.lower(), []).append(value)
    for line in lines.pop("field", []):
        name, _, value = line.partition(":")
        assert fields.get(name.lower(), []) == list(filter(None, [value.strip()]))
    for line in lines.pop("json", []):
        wanted = json.loads(line)
        found, _ = json.JSONDecoder().raw_decode(_text(reply))
        assert {name: found.get(name, "absent") for name in wanted} == wanted


def _text(reply: Reply) -> str:
    return b"".join(cast("tuple[bytes, ...]", reply.buffers)).decode("utf-8", "replace")
