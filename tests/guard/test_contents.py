"""The contents of tensors: whatever the cuts, the verdict is that of the decoder, which has everything in memory."""

from __future__ import annotations

import struct

import pytest

from streamcodec import Limits, MessageError, request_decoder
from streamcodec.engine.events import HeaderReceived
from streamcodec.guard.rules.contents import Contents
from streamcodec.testing.chunkings import bytewise, seeded

LIMITS = Limits(max_element_bytes=9)


def _elements(*lengths: int) -> bytes:
    return b"".join(struct.pack("<I", length) + b"x" * length for length in lengths)


def _header(datatype: str, count: int, nbytes: int) -> bytes:
    size = f'"parameters":{{"binary_data_size":{nbytes}}}'
    one = f'{{"name":"a","datatype":"{datatype}","shape":[{count}],{size}}}'
    two = '{"name":"b","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}'
    return f'{{"inputs":[{one},{two}]}}'.encode()


def _decoded(header: bytes, body: bytes) -> str:
    """What the decoder of requests says."""
    decoder = request_decoder(header_length=len(header), body_length=len(header) + len(body), limits=LIMITS)
    decoder.feed(header + body)
    try:
        while not decoder.is_complete or decoder._machine.events:  # noqa: SLF001 - until the last event
            decoder.next_event()
    except MessageError as error:
        return str(error)
    return ""


def _checked(header: bytes, chunks: list[bytes]) -> str:
    decoder = request_decoder(
        header_length=len(header),
        body_length=len(header) + sum(map(len, chunks)),
        limits=LIMITS,
        pause_after_header=True,
    )
    decoder.feed(header)
    event = decoder.next_event()
    assert isinstance(event, HeaderReceived)
    try:
        contents = Contents(event.header.tensors, len(header), LIMITS)
        assert contents.nbytes == sum(map(len, chunks))
        for chunk in chunks:
            contents.check(memoryview(chunk))
    except MessageError as error:
        return str(error)
    return ""


GOOD = _elements(0, 1, 2, 0, 9)
CASES = [
    ("BOOL", 4, b"\0\1\1\0"),
    ("BOOL", 4, b"\0\1\1\2"),
    ("BOOL", 4, b"\xff\1\1\2"),
    ("BYTES", 5, GOOD),
    ("BYTES", 4, GOOD),
    ("BYTES", 6, GOOD),
    ("BYTES", 6, GOOD + b"\0"),
    ("BYTES", 5, GOOD + b"\0"),
    ("BYTES", 5, GOOD[:-1]),
    ("BYTES", 2, _elements(3, 10)),
    ("BYTES", 1, _elements(0xFF)[:7]),
    ("BYTES", 1, b"\xff\xff\xff\xff"),
    ("BYTES", 1, _elements(3) + b"\0\0\0"),
    ("BYTES", 2, _elements(1) + b"\0\0\0"),
    ("BYTES", 0, b""),
    ("UINT8", 2, b"\xff\xff"),
]


@pytest.mark.parametrize(("datatype", "count", "data"), CASES)
def test_every_cut_has_the_verdict_of_the_decoder(datatype: str, count: int, data: bytes) -> None:
    header, body = _header(datatype, count, len(data)), data + b"\xff\xff\xff"
    expected = _decoded(header, body)
    for chunks in ([body], bytewise(body), *seeded(body, seed=len(data), count=20)):
        found = _checked(header, chunks)
        assert bool(found) == bool(expected), (found, expected)
        if len(chunks) == 1:
            assert found == expected
