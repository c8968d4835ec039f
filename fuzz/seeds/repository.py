"""Seeds from what the repository holds anyway: the named cases of `tests/corpus`, and the captures of real peers.

They are made when a fuzzer is to run, and not committed: so they are never out of date and weigh nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from targets import compression, connections, header
from targets.case import Case, Kind, Length

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.captures import captures, split_message
from tests.corpus.notation import read_bytes
from tests.corpus.reading import read_corpus
from tests.corpus.running import http_parts

AnyCase: TypeAlias = Case | header.Case | connections.Case | compression.Case
Seeds: TypeAlias = Iterator[tuple[str, AnyCase]]

_MAX_BYTES: Final = 4 << 10
"""Of a seed. Longer ones only slow a fuzzer down, and it makes them by itself."""


def seeds(corpus: str) -> Seeds:
    """Yield the seeds that the repository has for a corpus; none where messages are not what a target reads."""
    make = _MAKERS.get(corpus)
    if make is not None:
        for name, case in make():
            if len(case.write()) <= _MAX_BYTES:
                yield f"repository-{name}", case


def _messages() -> Iterator[tuple[str, Case]]:
    """Bodies alone."""
    for index, case in enumerate(read_corpus()):
        if case.kind in {"request", "response"}:
            body = read_bytes(case.message)
            yield f"case-{index}", _message(body.data, body.header_end, is_response=case.kind == "response")
    for capture in captures():
        if capture.is_inference and not capture.is_raw:
            for kind, data in (("request", capture.request), ("response", capture.response)):
                message = split_message(data)
                is_response = kind == "response"
                yield f"{capture}-{kind}", _message(message.body, message.header_length, is_response=is_response)


def _message(data: bytes, header_length: int | None, *, is_response: bool) -> Case:
    kind = Kind.RESPONSE if is_response else Kind.REQUEST
    if header_length is None:
        return Case(message=data, kind=kind, header=Length.UNKNOWN, first_piece=7)
    return Case(message=data, kind=kind, header=Length.NUMBER, header_number=header_length & 0xFFFF, piece=33)


def _headers() -> Iterator[tuple[str, header.Case]]:
    for name, case in _messages():
        yield name, header.Case(text=case.message[: case.header_length], is_response=case.kind is Kind.RESPONSE)


def _connections() -> Iterator[tuple[str, connections.Case]]:
    for index, case in enumerate(read_corpus()):
        if case.kind.startswith("http-"):
            stream = b"".join(http_parts(case))
            yield f"case-{index}", _connection(stream, is_response=case.kind == "http-response")
    for capture in captures():
        yield f"{capture}-request", _connection(capture.request, is_response=False)
        yield f"{capture}-response", _connection(capture.response, is_response=True)


def _connection(stream: bytes, *, is_response: bool) -> connections.Case:
    return connections.Case(
        stream=stream, role=connections.Role.CLIENT if is_response else connections.Role.SERVER, piece=50
    )


_ENCODINGS: Final = {"gzip": "gzip", "gzip-members": "gzip", "deflate": "deflate", "raw-deflate": "deflate"}


def _compressed() -> Iterator[tuple[str, compression.Case]]:
    for index, case in enumerate(read_corpus()):
        for option, encoding in _ENCODINGS.items():
            if option in case.options and "chunked" not in case.options:
                yield f"case-{index}", compression.Case(data=http_parts(case)[1], encoding=encoding, piece=20)


_MAKERS: Final[dict[str, Callable[[], Seeds]]] = {
    "decoder": _messages,
    "header": _headers,
    "http": _connections,
    "compression": _compressed,
}
