"""Errors: whose fault, which rule, where; and which rules are the codec's."""

from __future__ import annotations

import ast
import copy
import pickle
from http import HTTPStatus
from pathlib import Path

import numpy as np
import pytest

import streamcodec
from streamcodec import (
    ErrorCode,
    LimitExceededError,
    LocalProtocolError,
    NotRepresentableError,
    OutOfMemoryError,
    ProtocolError,
    RemoteProtocolError,
)
from streamcodec.engine.errors import ERROR_PAGE, printable, shortened
from streamcodec.testing import describe_error

CODEC = {
    ErrorCode.INVALID_HEADER_LENGTH,
    ErrorCode.HEADER_EXCEEDS_BODY,
    ErrorCode.EMPTY_BODY,
    ErrorCode.TRUNCATED,
    ErrorCode.TRAILING_BYTES,
    ErrorCode.BODY_LENGTH_MISMATCH,
    ErrorCode.INVALID_FRAME,
    ErrorCode.INVALID_CHECKSUM,
    ErrorCode.INVALID_UTF8,
    ErrorCode.INVALID_JSON,
    ErrorCode.DUPLICATE_KEY,
    ErrorCode.NON_FINITE_NUMBER,
    ErrorCode.INVALID_HEADER,
    ErrorCode.MISSING_MEMBER,
    ErrorCode.INVALID_MEMBER,
    ErrorCode.DUPLICATE_NAME,
    ErrorCode.UNKNOWN_DATATYPE,
    ErrorCode.INVALID_SHAPE,
    ErrorCode.AMBIGUOUS_SOURCE,
    ErrorCode.BINARY_SIZE_MISMATCH,
    ErrorCode.INVALID_DATA,
    ErrorCode.JSON_NOT_SUPPORTED,
    ErrorCode.INVALID_BOOL,
    ErrorCode.INVALID_ELEMENTS,
    ErrorCode.UNSUPPORTED_ENCODING,
    ErrorCode.INVALID_COMPRESSION,
    ErrorCode.LIMIT_EXCEEDED,
    ErrorCode.OUT_OF_MEMORY,
}
"""What the codec by itself can say of a message. Each has a refused case in this folder, or in that of the formats."""

ABOVE = {
    ErrorCode.LENGTH_REQUIRED,
    ErrorCode.INVALID_HTTP,
    ErrorCode.AMBIGUOUS_FRAMING,
    ErrorCode.CONNECTION_CLOSED,
    ErrorCode.TOO_SLOW,
    ErrorCode.UNSUPPORTED_EXPECTATION,
    ErrorCode.NOT_FOUND,
    ErrorCode.MISDIRECTED,
    ErrorCode.METHOD_NOT_ALLOWED,
    ErrorCode.NOT_OFFERED,
    ErrorCode.UPLOAD_MISMATCH,
    ErrorCode.MODEL_MISMATCH,
    ErrorCode.ERROR_RESPONSE,
}
"""What HTTP, the service and the client add."""


def codes_named_in(folder: Path) -> set[ErrorCode]:
    """The codes that the modules of a folder name, outside of the file that defines them."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ErrorCode":
                found.add(ErrorCode[node.attr])
    return found


def test_codes_of_the_codec_and_of_the_rooms_above_are_all_there_are() -> None:
    assert set(ErrorCode) == CODEC | ABOVE
    assert not CODEC & ABOVE


def test_the_codec_raises_its_codes_and_no_others() -> None:
    rooms = Path(streamcodec.__file__).parent
    assert codes_named_in(rooms / "engine") | codes_named_in(rooms / "formats") == CODEC


def test_each_code_of_the_codec_is_expected_by_a_test_of_its_folders() -> None:
    tested = set()
    here = Path(__file__).parent
    for path in [*here.glob("test_*.py"), *(here.parent / "formats").rglob("test_*.py")]:
        if path != Path(__file__):
            text = path.read_text(encoding="utf-8")
            tested |= {code for code in CODEC if f"ErrorCode.{code.name}" in text}
    assert tested == CODEC


@pytest.mark.parametrize("code", ErrorCode)
def test_codes_are_stable_slugs(code: ErrorCode) -> None:
    assert code.value == code.name.lower().replace("_", "-")
    assert str(code) == code.value


def test_each_code_leads_to_its_section() -> None:
    assert {code.link for code in ErrorCode} == {f"{ERROR_PAGE}#{code.value}" for code in ErrorCode}


def test_classes_answer_whose_fault_it_is() -> None:
    assert issubclass(LocalProtocolError, ProtocolError)
    assert issubclass(NotRepresentableError, LocalProtocolError)
    assert issubclass(RemoteProtocolError, ProtocolError)
    assert issubclass(LimitExceededError, RemoteProtocolError)
    assert not issubclass(RemoteProtocolError, LocalProtocolError)


@pytest.mark.parametrize(
    ("offset", "path", "text"),
    [
        (None, None, "no"),
        (0, None, "no (byte 0)"),
        (None, "$.inputs", "no ($.inputs)"),
        (7, "$.inputs", "no ($.inputs, byte 7)"),
    ],
)
def test_text_names_the_place(offset: int | None, path: str | None, text: str) -> None:
    error = RemoteProtocolError("no", code=ErrorCode.INVALID_JSON, offset=offset, path=path)
    assert str(error) == text
    assert (error.message, error.code, error.offset, error.path) == ("no", ErrorCode.INVALID_JSON, offset, path)
    assert error.status_hint == 400
    assert error.args == ("no",)


def test_limit_says_which() -> None:
    error = LimitExceededError("no", limit="max_rank", path="$.inputs")
    assert (error.code, error.limit, error.status_hint) == (ErrorCode.LIMIT_EXCEEDED, "max_rank", 413)
    assert LimitExceededError("no", limit="max_rank", status_hint=400).status_hint == 400


def test_a_lack_of_memory_may_have_a_place() -> None:
    error = OutOfMemoryError("no memory", offset=5)
    assert (error.code, error.offset, error.status_hint) == (ErrorCode.OUT_OF_MEMORY, 5, 503)
    assert OutOfMemoryError("no memory").offset is None


@pytest.mark.parametrize(
    "error",
    [
        RemoteProtocolError("no", code=ErrorCode.NOT_FOUND, offset=1, path="$", status_hint=404),
        LimitExceededError("no", limit="max_rank", offset=2),
    ],
)
def test_errors_can_be_copied_and_pickled(error: RemoteProtocolError) -> None:
    for other in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301 - ours
        assert other is not error
        assert describe_error(other) == describe_error(error)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("größer", "größer"),
        ("\x1b[2J\r\n", r"\x1b[2J\r\n"),
        ("\x9b31m", r"\x9b31m"),
        ("a\u202eb\u2066c", r"a\u202eb\u2066c"),
        ("\ud800", r"\ud800"),
        ("C:\\x", "C:\\x"),
    ],
)
def test_what_steers_a_terminal_is_escaped(text: str, safe: str) -> None:
    assert printable(text) == safe


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    assert shortened("abcdefgh", 8) == "abcdefgh"
    assert shortened("abcdefghijklmnop", 12) == "abcdef...nop"


@pytest.mark.parametrize("status", [-1, 0, 99, 100, 199, 600, 1000])
def test_a_status_that_no_answer_can_have_is_refused_where_the_error_is_made(status: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"status_hint is {status}, and the status of an answer is 200 to 599"):
        RemoteProtocolError("no", code=ErrorCode.NOT_FOUND, status_hint=status)
    with pytest.raises(LocalProtocolError):
        LimitExceededError("no", limit="max_rank", status_hint=status)


def test_a_status_is_an_int_of_python() -> None:
    for status in (404, HTTPStatus.NOT_FOUND, np.int64(404)):
        error = RemoteProtocolError("no", code=ErrorCode.NOT_FOUND, status_hint=status)  # type: ignore[arg-type]
        assert (type(error.status_hint), error.status_hint) == (int, 404)
    with pytest.raises(LocalProtocolError, match=r"status_hint is 404\.0, .* 200 to 599, as an int$"):
        RemoteProtocolError("no", code=ErrorCode.NOT_FOUND, status_hint=404.0)  # type: ignore[arg-type]
