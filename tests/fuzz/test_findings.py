"""Every target can fail: a library that is broken on purpose is found out by the inputs of the committed corpus.

Each break is one that crashes nothing. Most let something pass that has to be refused, the kind of bug that a fuzzer
without an opinion never finds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from targets import oracle as oracle_target

from streamcodec import (
    DATATYPES,
    Datatype,
    Decoder,
    ErrorCode,
    Fill,
    HeaderCache,
    Inflater,
    LimitExceededError,
    Limits,
    Reader,
    RemoteProtocolError,
)
from streamcodec.engine import datatypes, message
from streamcodec.engine import limits as limits_room
from streamcodec.engine.json import text as jsontext
from streamcodec.formats.frame import FrameReader
from streamcodec.formats.frame import layout as frame_layout
from streamcodec.formats.frame import stream as frame_stream
from streamcodec.formats.v2 import compressing, encoder
from streamcodec.formats.v2.header import compact as compact_room
from streamcodec.formats.v2.header import parsing as header_room
from streamcodec.formats.v2.header import plain as plain_room
from streamcodec.formats.v2.header import tensors as tensors_room
from streamcodec.http import Collector, ServerConnection
from streamcodec.http.bodies import chunks as chunks_room
from streamcodec.http.heads import parsed as heads_room
from tests.fuzz.inputs import CORPORA, failures

SECURITY_PAGE = Path(__file__).parents[2] / "docs" / "security" / "index.md"

Break = Callable[[pytest.MonkeyPatch], None]


def quick_parser_keeps_the_last_of_two_members(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(jsontext, "parse_quickly", _lenient)


def _lenient(data: bytes) -> list[Any]:
    try:
        return [json.loads(data)]
    except ValueError:
        return []


def glance_takes_true_for_one(patch: pytest.MonkeyPatch) -> None:
    glance = header_room.__dict__["read_plainly"]
    patch.setattr(header_room, "read_plainly", lambda data, *rest: glance(bytes(data).replace(b"true", b"1   "), *rest))


def remembered_headers_are_those_of_another_text(patch: pytest.MonkeyPatch) -> None:
    parse = HeaderCache.parse
    patch.setattr(HeaderCache, "parse", lambda self, data, limits: parse(self, data.replace(b"x", b"y"), limits))


def feed_takes_more_than_the_message_has(patch: pytest.MonkeyPatch) -> None:
    feed = Decoder.feed
    patch.setattr(Decoder, "feed", lambda self, chunk: max(feed(self, chunk), len(chunk)))


def sizes_of_binary_tensors_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tensors_room, "check_binary_size", lambda *_: None)


def shapes_are_read_from_behind(patch: pytest.MonkeyPatch) -> None:
    read = tensors_room.TensorReader._shape  # noqa: SLF001 - where shapes are read
    patch.setattr(tensors_room.TensorReader, "_shape", lambda *arguments: read(*arguments)[::-1])


def scalars_are_refused(patch: pytest.MonkeyPatch) -> None:
    read = tensors_room.TensorReader._shape  # noqa: SLF001 - as above

    def strict(*arguments: Any) -> tuple[int, ...]:  # noqa: ANN401 - a reader, an entry and a path
        if shape := read(*arguments):
            return shape
        raise RemoteProtocolError("no shape", code=ErrorCode.INVALID_SHAPE)

    patch.setattr(tensors_room.TensorReader, "_shape", strict)
    patch.setattr(header_room, "read_plainly", lambda *_: None)


def integers_are_big_endian(patch: pytest.MonkeyPatch) -> None:
    pack = plain_room.__dict__["pack"]

    def swapped(values: list[Any], datatype: datatypes.Datatype) -> np.ndarray[Any, Any] | None:
        array: np.ndarray[Any, Any] | None = pack(values, datatype)
        return array.byteswap() if array is not None and datatype.name == "INT16" else array

    patch.setattr(plain_room, "pack", swapped)
    patch.setattr(compact_room, "pack", swapped)


def more_than_one_dimension_is_over_the_limit(patch: pytest.MonkeyPatch) -> None:
    check = limits_room.check_rank
    patch.setattr(tensors_room, "check_rank", lambda rank, _, path: check(rank, Limits(max_rank=1), path))
    patch.setattr(header_room, "read_plainly", lambda *_: None)


def not_a_number_is_refused_in_data_too(patch: pytest.MonkeyPatch) -> None:
    def check(root: dict[str, Any], key: str, constants: int) -> None:
        if constants:
            path = jsontext.find(root, jsontext.NonFinite, bool) or f"$.{key}[0].data[0]"
            raise RemoteProtocolError("not a number", code=ErrorCode.NON_FINITE_NUMBER, path=path)

    patch.setattr(header_room, "_check_constants", check)


def chunks_may_end_with_anything(patch: pytest.MonkeyPatch) -> None:
    """As h11 before 0.16 (CVE-2025-43859)."""
    read = chunks_room.Chunks._read_line  # noqa: SLF001 - where lines are read

    def lenient(self: chunks_room.Chunks, data: memoryview) -> int:
        if self._expected is chunks_room._Expected.END_OF_DATA and len(data) > 1:  # noqa: SLF001 - as above
            data = memoryview(b"\r\n")
        return read(self, data)

    patch.setattr(chunks_room.Chunks, "_read_line", lenient)


def the_first_of_two_lengths_wins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(heads_room, "framing_length", lambda fields, *_, **__: int((*fields.values(b"content-length"), 0)[0]))


def a_body_is_one_byte_shorter(patch: pytest.MonkeyPatch) -> None:
    length = heads_room.framing_length
    patch.setattr(heads_room, "framing_length", lambda *a, **b: max(0, (length(*a, **b) or 0) - 1))


def every_length_is_over_the_limit(patch: pytest.MonkeyPatch) -> None:
    framing_length = heads_room.framing_length

    def strict(*arguments: Any, **options: Any) -> int | None:  # noqa: ANN401 - those of the function
        if length := framing_length(*arguments, **options):
            raise LimitExceededError("too long", limit="max_message_bytes")
        return length

    patch.setattr(heads_room, "framing_length", strict)


def compressed_bodies_are_zeros(patch: pytest.MonkeyPatch) -> None:
    inflate = Inflater.inflate

    def zeros(self: Inflater, chunk: bytes) -> Iterator[bytes]:
        return (bytes(len(piece)) for piece in inflate(self, chunk))

    patch.setattr(Inflater, "inflate", zeros)


def compressed_bodies_are_refused(patch: pytest.MonkeyPatch) -> None:
    def refuse(_: Inflater) -> NoReturn:
        raise RemoteProtocolError("damaged", code=ErrorCode.INVALID_COMPRESSION)

    patch.setattr(Inflater, "finish", refuse)


def the_rest_of_a_refused_body_is_the_next_request(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ServerConnection, "_unread", lambda _: 0)


def a_collector_forgets_a_byte(patch: pytest.MonkeyPatch) -> None:
    feed = Collector.feed
    patch.setattr(Collector, "feed", lambda self, chunk: feed(self, chunk[:-1]) + 1 if len(chunk) > 1 else len(chunk))


def compressed_bodies_may_be_cut_short(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inflater, "finish", lambda _: None)


def the_ratio_is_not_limited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Inflater, "_check_ratio", lambda _: None)


def pieces_are_as_large_as_they_come(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("streamcodec.engine.compression.inflate._PIECE_BYTES", 1 << 30)


def compressing_leaves_out_the_end(patch: pytest.MonkeyPatch) -> None:
    deflate = compressing.__dict__["deflate"]
    patch.setattr(compressing, "deflate", lambda *arguments: [*deflate(*arguments)][:-1])


def arrays_are_written_as_they_lie(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(message, "to_wire", np.ascontiguousarray)


def doubles_have_no_form_in_json(patch: pytest.MonkeyPatch) -> None:
    changed = Datatype("FP64", np.dtype("<f8"))
    patch.setitem(DATATYPES, "FP64", changed)
    for dtype in (changed.dtype, changed.dtype.newbyteorder(">")):
        patch.setitem(datatypes._BY_DTYPE, dtype, changed)  # noqa: SLF001 - the other table


def names_may_be_used_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(encoder, "_add_name", lambda *_: None)


def checksums_of_frames_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    def read_end(_: object, reader: Reader) -> Fill:
        if reader.on_filled is not None:
            yield from reader.fill(memoryview(bytearray(4)))

    patch.setattr(frame_layout._Frame, "read_end", read_end)  # noqa: SLF001 - where checksums are compared


def a_frame_that_begins_within_the_window_is_missed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(frame_stream, "_next_place", lambda data, _: len(data))


def refused_frames_are_searched_for_others(patch: pytest.MonkeyPatch) -> None:
    refuse = FrameReader._refuse  # noqa: SLF001 - where frames are refused

    def forget(self: FrameReader[Any], error: RemoteProtocolError) -> None:
        self._length, self._left = self._length - self._left, 0
        refuse(self, error)

    patch.setattr(FrameReader, "_refuse", forget)


BREAKS: list[tuple[str, Break]] = [
    ("header", quick_parser_keeps_the_last_of_two_members),
    ("header", glance_takes_true_for_one),
    ("header", remembered_headers_are_those_of_another_text),
    ("decoder", feed_takes_more_than_the_message_has),
    ("decoder", sizes_of_binary_tensors_are_not_checked),
    ("oracle", shapes_are_read_from_behind),
    ("oracle", integers_are_big_endian),
    ("oracle", scalars_are_refused),
    ("oracle", more_than_one_dimension_is_over_the_limit),
    ("oracle", not_a_number_is_refused_in_data_too),
    ("http", chunks_may_end_with_anything),
    ("http", the_first_of_two_lengths_wins),
    ("http", a_body_is_one_byte_shorter),
    ("http", every_length_is_over_the_limit),
    ("http", compressed_bodies_are_zeros),
    ("http", compressed_bodies_are_refused),
    ("http", the_rest_of_a_refused_body_is_the_next_request),
    ("http", a_collector_forgets_a_byte),
    ("compression", compressed_bodies_may_be_cut_short),
    ("compression", the_ratio_is_not_limited),
    ("compression", pieces_are_as_large_as_they_come),
    ("compression", compressing_leaves_out_the_end),
    ("round_trip", arrays_are_written_as_they_lie),
    ("round_trip", doubles_have_no_form_in_json),
    ("round_trip", names_may_be_used_twice),
    ("frame", checksums_of_frames_are_not_compared),
    ("frame", a_frame_that_begins_within_the_window_is_missed),
    ("frame", refused_frames_are_searched_for_others),
]


@pytest.mark.parametrize(("target", "break_it"), BREAKS, ids=lambda value: getattr(value, "__name__", value))
def test_a_break_is_found(target: str, break_it: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)
    _assert_found(target, monkeypatch)


def test_an_oracle_that_refuses_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_target, "read_message", lambda *_, **__: {})
    _assert_found("oracle", monkeypatch)


def test_the_security_page_tells_how_many_ways_there_are() -> None:
    told = re.search(r"break\s+the\s+library\s+in\s+([0-9]+)\s+quiet\s+ways", SECURITY_PAGE.read_text("utf-8"))
    assert told is not None
    assert int(told[1]) == len({break_it for _, break_it in BREAKS}) == len(BREAKS)


def _assert_found(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Insist that the target complains of what has been broken, and of nothing once that is mended."""
    inputs = CORPORA[target].items()
    found = failures(target, inputs)
    assert any(words.startswith("AssertionError") for words in found.values())
    monkeypatch.undo()
    assert failures(target, ((name, data) for name, data in inputs if name in found)) == {}
