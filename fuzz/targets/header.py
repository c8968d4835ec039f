"""JSON headers under any bytes: all ways to read one come to the same, and to what another parser makes of it.

A header can be read in four ways: at a glance (`header.plain`), by the quick parser that is optional (`json.quick`), by
the standard library's with checks around it (`json.text`), or by remembering that these very bytes were read before
(`header.cache`). The quick ways may only say yes, and then say what the strict one says. Here the strict one is asked
first, alone; each other way must come to the same header, or the same error at the same place.

What is accepted is then held against the oracle of `streamcodec.testing`, which has tensors of zeros to go with it, and
must be what `json` says of the members that the oracle does not look at.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from streamcodec import (
    HeaderCache,
    Limits,
    MessageError,
    RequestHeader,
    ResponseHeader,
    TensorSpec,
    parse_request_header,
    parse_response_header,
)
from streamcodec.engine.json import text as jsontext
from streamcodec.formats.v2.header import parsing as header_room
from streamcodec.testing import OracleRefusal, describe_array, describe_error, describe_header, read_message
from targets.case import SMALL_LIMITS, USUAL_LIMITS
from targets.choices import Choices, ChoicesWriter
from targets.patched import patched

Header: TypeAlias = RequestHeader | ResponseHeader
Parse: TypeAlias = Callable[[bytes | bytearray | memoryview, Limits], Header]
Verdict: TypeAlias = tuple[Any, ...]

_BOTH = (False, True)
_NEVER: Final = 1 << 62
_MAX_BODY_BYTES: Final = 1 << 16
"""Tensors of zeros up to so many bytes are made for the oracle."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A text, and whose header it is to be."""

    text: bytes
    is_response: bool = False
    is_limited: bool = False
    """Whether limits apply that small headers can exceed."""

    @classmethod
    def read(cls, data: bytes) -> Case:
        """Take a case from an input."""
        choices = Choices(data)
        return cls(is_response=choices.pick(_BOTH), is_limited=choices.pick(_BOTH), text=choices.rest())

    def write(self) -> bytes:
        """Return the input that gives this case."""
        choices = ChoicesWriter()
        choices.pick(_BOTH, self.is_response)
        choices.pick(_BOTH, self.is_limited)
        return choices.finish(self.text)

    @property
    def limits(self) -> Limits:
        """What applies."""
        return SMALL_LIMITS if self.is_limited else USUAL_LIMITS

    @property
    def parse(self) -> Parse:
        """The parser for it."""
        return parse_response_header if self.is_response else parse_request_header


def test_one_input(data: bytes) -> None:
    """Read one header in every way and compare."""
    check(Case.read(data))


def check(case: Case) -> None:
    """Read one header in every way and compare."""
    header, strict = read_strictly(case)
    with _quick_from(_NEVER):
        assert _verdict(parsed(case)) == strict, "a header that is read at a glance says something else"
    with _quick_from(0), _without_glance():
        assert _verdict(parsed(case)) == strict, "the quick JSON parser says something else"
    remembered = HeaderCache(case.parse, case.limits)
    for _ in range(2):
        assert _verdict(_caught(remembered.parse, case)) == strict, "a header that is remembered says something else"
    if header is not None:
        _check_by_oracle(case, header)


def explain(data: bytes) -> str:
    """Say what an input means, and what comes of it."""
    case = Case.read(data)
    return f"{case}\n{read_strictly(case)[1]}"


def read_strictly(case: Case) -> tuple[Header | None, Verdict]:
    """Read a header by the standard library's parser alone: the header if it is accepted, and what is said of it."""
    with _quick_from(_NEVER), _without_glance():
        result = parsed(case)
    return (None if isinstance(result, MessageError) else result), _verdict(result)


def _quick_from(nbytes: int) -> AbstractContextManager[None]:
    """Have the quick parser look at texts of so many bytes or more."""
    return patched(jsontext, "LEAST_BYTES", nbytes)


def _without_glance() -> AbstractContextManager[None]:
    return patched(header_room, "read_plainly", lambda *_: None)


def parsed(case: Case) -> Header | MessageError:
    return _caught(case.parse, case)


def _caught(parse: Parse, case: Case) -> Header | MessageError:
    try:
        return parse(case.text, case.limits)
    except MessageError as error:  # a rule or a limit is broken: the one answer to bad bytes
        return error


def _verdict(result: Header | MessageError) -> Verdict:
    return describe_error(result) if isinstance(result, MessageError) else describe_header(result)


def _check_by_oracle(case: Case, header: Header) -> None:
    nbytes = sum(spec.nbytes for spec in header.tensors)
    root = json.loads(case.text)
    if nbytes <= _MAX_BODY_BYTES:
        body = case.text + b"".join(map(_zeros, header.tensors))
        try:
            message = read_message(body, len(case.text), is_response=case.is_response)
        except OracleRefusal as refusal:
            raise AssertionError("a header is accepted that the oracle refuses") from refusal
        _check_tensors(header, message["tensors"])
    assert header.id == root.get("id")
    assert repr(dict(header.parameters)) == repr(root.get("parameters") or {})
    if isinstance(header, RequestHeader):
        _check_outputs(header, root.get("outputs"))
    else:
        assert (header.model_name, header.model_version) == (root.get("model_name"), root.get("model_version"))


def _zeros(spec: TensorSpec) -> bytes:
    """Return bytes that such a tensor may have: zeros, but that the last of its elements takes what is left."""
    if not spec.datatype.is_bytes or not spec.count or not spec.is_binary:
        return bytes(spec.nbytes)
    left = spec.nbytes - spec.datatype.itemsize * spec.count
    return bytes(spec.datatype.itemsize * (spec.count - 1)) + left.to_bytes(4, "little") + bytes(left)


def _check_tensors(header: Header, tensors: dict[str, Any]) -> None:
    assert [spec.name for spec in header.tensors] == [*tensors]
    offset = None
    for spec in header.tensors:
        array = tensors[spec.name]
        assert array.shape == spec.shape
        assert (spec.data is None) == (spec.offset is not None)
        if spec.data is not None:
            assert describe_array(spec.data)[1:] == describe_array(array)[1:], "values of a JSON tensor differ"
            continue
        assert offset in {None, spec.offset}, "the tensors do not lie one behind the other"
        offset = (spec.offset or 0) + spec.nbytes


def _check_outputs(header: RequestHeader, entries: list[dict[str, Any]] | None) -> None:
    if entries is None:
        assert header.outputs is None
        return
    assert header.outputs is not None
    wishes = [(output.name, output.binary_data) for output in header.outputs]
    assert wishes == [(entry["name"], (entry.get("parameters") or {}).get("binary_data")) for entry in entries]
    assert len({name for name, _ in wishes}) == len(wishes)
