"""Lengths of errors: no answer repeats what a client has sent at length, whatever part of its request is long.

Searched for in every request of the corpus that is refused: each text of its head and of its JSON header is made
60 KB long in turn, everywhere it stands; and each object of its JSON header is put deep into others, whose names are
long and made of what has the longest escapes.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Final

import pytest

from streamcodec.server.connection.requestcache import RequestCache
from tests.corpus.reading import Case, read_corpus
from tests.corpus.running import request_of, service_for
from tests.server.test_comparison import answers_of_session

pytestmark = pytest.mark.slow

MAX_BYTES: Final = 2 << 10
LONG: Final = {
    "plain": b"a" * 60_000,
    "not ASCII": "\N{GRINNING FACE}".encode() * 15_000,
    "escaped": rb"\u0007" * 10_000,
    "quotes": rb"\"" * 30_000,
}
"""What makes a JSON text long."""

DEPTH: Final = 100
DEEP: Final = ('{"' + "\N{LANGUAGE TAG}" * 60 + '":').encode() * DEPTH

CASES: Final = [case for case in read_corpus() if case.is_refused and case.kind in {"request", "http-request"}]

_DECODER: Final = json.JSONDecoder()
_WORD: Final = re.compile(rb"[A-Za-z][\w.-]*")
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')
_LENGTH: Final = re.compile(rb"(\r\n(?:Inference-Header-)?Content-Length: )(\d+)", re.IGNORECASE)


def with_long_heads(case: Case) -> Iterator[bytes]:
    """Yield the message of a case with each word of its head made long."""
    head, separator, body = request_of(case).partition(b"\r\n\r\n")
    for word in sorted(set(_WORD.findall(head))):
        yield head.replace(word, word + LONG["plain"]) + separator + body


def with_long_texts(case: Case, kind: str) -> Iterator[bytes]:
    """Yield the message of a case with each text of its JSON made long, and lengths that fit it again."""
    head, separator, body = request_of(case).partition(b"\r\n\r\n")
    for text in sorted(set(_TEXT.findall(body))):
        longer = body.replace(text, text[:-1] + LONG[kind] + b'"')
        yield fitting(head, len(longer) - len(body)) + separator + longer


def with_deep_objects(case: Case) -> Iterator[bytes]:
    """Yield the message of a case with each object of its JSON put deep into others."""
    head, separator, body = request_of(case).partition(b"\r\n\r\n")
    text = body.decode("latin-1")
    for start in (found.start() for found in re.finditer("{", text)):
        with suppress(ValueError):
            _, end = _DECODER.raw_decode(text, start)
            deep = DEEP.decode("latin-1") + text[start:end] + "}" * DEPTH
            longer = f"{text[:start]}{deep}{text[end:]}".encode("latin-1")
            yield fitting(head, len(longer) - len(body)) + separator + longer


def fitting(head: bytes, grown: int) -> bytes:
    """Return the head of a body that has grown."""

    def longer(found: re.Match[bytes]) -> bytes:
        return found[1] + b"%d" % (int(found[2]) + grown)

    return _LENGTH.sub(longer, head)


def some() -> list[Case]:
    """Return cases of every file: heads and names are much alike."""
    files: dict[str, list[Case]] = {}
    for case in CASES:
        files.setdefault(case.file, []).append(case)
    return [case for cases in files.values() for case in cases[::9]]


def assert_short(case: Case, messages: Iterator[bytes]) -> None:
    """Send messages; no error may be long."""
    limits = {"max_head_bytes": str(1 << 20), "max_drain_bytes": str(1 << 20)}
    service = service_for(replace(case, options=limits | case.options), is_inline=True)
    express = RequestCache(service)
    for message in messages:
        for status, body in answers_of_session(service, express, [message]):
            if status >= HTTPStatus.BAD_REQUEST:
                assert len(body) <= MAX_BYTES, (status, body[:300])


@pytest.fixture(autouse=True)
def _is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_no_error_repeats_a_long_text_of_the_json_header(case: Case) -> None:
    assert_short(case, with_long_texts(case, "plain"))


def test_no_error_has_a_long_path() -> None:
    for case in CASES:
        assert_short(case, with_deep_objects(case))


@pytest.mark.parametrize("kind", ["not ASCII", "escaped", "quotes"])
def test_no_error_repeats_it_whatever_it_is_made_of(kind: str) -> None:
    for case in some():
        assert_short(case, with_long_texts(case, kind))


def test_no_error_repeats_a_long_word_of_the_head() -> None:
    for case in some():
        assert_short(case, with_long_heads(case))
