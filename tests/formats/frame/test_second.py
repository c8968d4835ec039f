"""The page specifies the format: a reader written from it alone agrees with ours, and its example is what we write."""

from __future__ import annotations

import re
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcodec import NEED_DATA, EncodedMessage, EndOfMessage, HeaderReceived, TensorReceived, binary_form
from streamcodec.formats.frame import EndOfStream, FrameReader, Kind, Skipped
from streamcodec.testing import ExpectedMessage
from streamcodec.testing.strategies import messages
from tests.effort import examples
from tests.formats.frame import second
from tests.formats.frame.samples import MAKERS, MESSAGES, REQUESTS, joined, with_head

PAGE = (Path(__file__).parents[3] / "docs" / "frame.md").read_text("utf-8")


def ours(stream: bytes, kind: Kind) -> list[Any]:
    """Read a stream by our own reader, and say what `second.read_stream` says."""
    frames, position = FrameReader(MAKERS[kind]), 0
    found: list[Any] = []
    header: Any = None
    tensors: list[bytes] = []
    while True:
        match event := frames.next_event():
            case HeaderReceived():
                header, tensors = event.header, []
            case TensorReceived():
                tensors.append(bytes(binary_form(event.values)[0]) if event.spec.is_binary else b"")  # type: ignore[arg-type] # no rows
            case EndOfMessage():
                found.append(("frame", kind, header.id, [spec.name for spec in header.tensors], tensors))
            case Skipped():
                found.append(("skipped", event.offset, event.nbytes))
            case EndOfStream():
                return found
            case _:
                assert event is NEED_DATA
                taken = frames.feed(stream[position:])
                position += taken
                if not taken:
                    frames.receive_eof()


def theirs(stream: bytes, kind: Kind) -> list[Any]:
    found: list[Any] = []
    for entry in second.read_stream(stream, kind):
        if entry[0] == "skipped":
            found.append(entry[:3])
        else:
            _, found_kind, root, tensors = entry
            names = [tensor["name"] for tensor in root["outputs" if kind else "inputs"]]
            found.append(("frame", found_kind, root.get("id"), names, tensors))
    return found


def framed(message: ExpectedMessage, *, has_checksum: bool) -> bytes:
    """Put a message into a frame by hand."""
    length = len(message.body) if message.header_length is None else message.header_length
    frame = with_head(message.body, length, kind=message.is_response, checksum=has_checksum)
    return frame + zlib.crc32(frame).to_bytes(4, "little") if has_checksum else frame


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize(("message_kind", "name", "message"), MESSAGES)
def test_both_read_what_we_write(kind: Kind, message_kind: Kind, name: str, message: EncodedMessage) -> None:
    del name
    stream = joined(message, message_kind) + joined(REQUESTS["small"])
    assert ours(stream, kind) == theirs(stream, kind)


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(messages(), st.booleans()), max_size=3))
def test_both_read_messages_of_all_kinds(given_messages: list[tuple[ExpectedMessage, bool]]) -> None:
    stream = b"".join(framed(message, has_checksum=has_checksum) for message, has_checksum in given_messages)
    for kind in Kind:
        found = ours(stream, kind)
        assert found == theirs(stream, kind)
        count = sum(bool(message.is_response) == bool(kind) for message, _ in given_messages)
        assert sum(entry[0] == "frame" for entry in found) == count


DAMAGE = st.tuples(st.integers(0, 4000), st.integers(0, 40), st.binary(max_size=40))


@settings(max_examples=examples(500))
@given(st.lists(messages(is_response=False), max_size=4), st.lists(DAMAGE, max_size=3))
def test_both_skip_the_same_where_a_stream_is_damaged(
    given_messages: list[ExpectedMessage], damage: list[tuple[int, int, bytes]]
) -> None:
    stream = b"".join(map(partial(framed, has_checksum=True), given_messages))
    for place, missing, added in damage:
        place %= len(stream) + 1  # noqa: PLW2901 - a place within the stream
        stream = stream[:place] + added + stream[place + missing :]
    assert ours(stream, Kind.REQUEST) == theirs(stream, Kind.REQUEST)


def test_the_example_of_the_page_is_what_we_write_and_what_the_second_reader_reads() -> None:
    rows = re.findall(r"^[0-9a-f]{8}  ((?:[0-9a-f]{2} ?){1,16})", PAGE, re.MULTILINE)
    frame = bytes.fromhex(" ".join(rows))
    assert frame == joined(REQUESTS["small"])
    ((word, kind, root, tensors),) = second.read_stream(frame, 0)
    assert (word, kind, root["id"], len(frame)) == ("frame", 0, "7", 28 + 134)
    assert np.frombuffer(tensors[0], "<i2").tolist() == [1, -2, 300]


def test_the_checksum_of_the_page_is_that_of_zlib() -> None:
    assert "`CBF43926`" in PAGE
    assert second.crc32(b"123456789") == zlib.crc32(b"123456789") == 0xCBF43926
