"""Any calls in any order: each call is legal or a `LocalProtocolError`, and later correct calls have the right result.

Hypothesis makes all possible mistakes of a caller: updates without a buffer, of no bytes, of too many bytes, and twice;
`feed` while a buffer is in use; events at any time; the end of input anywhere. The expected outcome of the message is
that of another decoder, which is called correctly.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamcodec import (
    DATATYPES,
    NEED_DATA,
    Discard,
    EndOfMessage,
    HeaderReceived,
    Into,
    LocalProtocolError,
    MemoryMap,
    Place,
    Pool,
    RemoteProtocolError,
    TensorReceived,
    TensorSpec,
    WindowReceived,
    Windows,
    new_array,
    raw_request_decoder,
    request_decoder,
    response_decoder,
)
from streamcodec.testing import describe_array, describe_error, describe_header, describe_spec
from tests.effort import examples
from tests.formats.v2.messages import AnyDecoder, Message, binary, json_message, jsonic, request, response

ROWS: Final = np.arange(24, dtype="<i2").reshape(6, 4)
TENSORS: Final = (
    binary("INT16", [6, 4], 48, name="rows"),
    jsonic("INT16", [6, 4], ROWS.tolist(), name="json"),
    binary("BYTES", [2], 11, name="words"),
    binary("FP32", [0, 3], 0, name="empty"),
    binary("BOOL", [5], 5, name="bits"),
    binary("FP64", [], 8, name="scalar"),
)
WORDS: Final = b"\1\0\0\0x\2\0\0\0yz"
PAYLOAD: Final = ROWS.tobytes() + WORDS + b"\1\0\1\0\0" + np.float64(7).tobytes()
MIXED: Final = request(*TENSORS, payload=PAYLOAD)
BAD_BOOL: Final = PAYLOAD.replace(b"\1\0\1\0\0", b"\1\0\2\0\0")
MESSAGES: Final = {
    "request": MIXED,
    "response": response(*TENSORS, payload=PAYLOAD),
    "of unknown length": MIXED.chunked(),
    "headerless": MIXED.headerless(),
    "headerless of unknown length": MIXED.headerless().chunked(),
    "all JSON": json_message({"inputs": [TENSORS[1]]}),
    "all JSON of unknown length": json_message({"inputs": [TENSORS[1]]}).chunked(),
    "a wrong BOOL": request(*TENSORS, payload=BAD_BOOL),
    "a wrong BYTES": request(*TENSORS, payload=PAYLOAD.replace(WORDS, b"\xff" + WORDS[1:])),
    "no JSON": request(*TENSORS[:1], payload=PAYLOAD).chunked().under(max_tensors=0),
    "raw": Message(body=ROWS.tobytes(), header_length=0, body_length=ROWS.nbytes),
}
NARROW: Final = 16
"""Bytes of a window: two rows."""


@dataclass(frozen=True)
class _Folder:
    """Where memory maps go."""

    path: Path

    def place(self, spec: TensorSpec) -> MemoryMap:
        return MemoryMap(self.path / f"{spec.name}.npy")


PLACEMENTS: Final[dict[str, Callable[[Path], Place]]] = {
    "new arrays": lambda _: new_array,
    "given arrays": lambda _: lambda spec: Into(np.empty(spec.shape, spec.datatype.dtype)),
    "a pool": lambda _: _all_in(Pool(min_bytes=0)),
    "windows": lambda _: _all_in(Windows(max_window_bytes=NARROW)),
    "windows in two buffers": lambda _: _all_in(Windows(max_window_bytes=NARROW, buffer_count=2)),
    "nowhere": lambda _: _all_in(Discard()),
    "files": lambda folder: _Folder(folder).place,
}


def _all_in(placement: Any) -> Place:  # noqa: ANN401 - any placement
    return lambda _: placement


def _make(message: Message, place: Place) -> AnyDecoder:
    if message.header_length == 0:
        spec = TensorSpec(
            name="x",
            datatype=DATATYPES["INT16"],
            shape=ROWS.shape,
            nbytes=ROWS.nbytes,
            offset=0,
            is_single_element=False,
        )
        return raw_request_decoder(spec, place=place)
    make = response_decoder if message.is_response else request_decoder
    return make(
        header_length=message.header_length,
        body_length=message.body_length,
        allow_headerless=message.allow_headerless,
        limits=message.limits,
        place=place,
    )


Entry = tuple[object, ...]
"""What an event or an error says, to be compared."""


def _entry(event: object) -> Entry:
    match event:
        case HeaderReceived(header=header):
            return ("header", describe_header(header))
        case TensorReceived(spec=spec, array=array):
            return ("tensor", describe_spec(spec), describe_array(array))
        case WindowReceived(spec=spec, array=array, row=row):
            return ("window", spec.name, row, describe_array(array))
        case EndOfMessage(nbytes=nbytes):
            return ("end", nbytes)
        case RemoteProtocolError():
            return ("error", describe_error(event))
        case _:
            raise AssertionError(event)


def _take_all(decoder: AnyDecoder, entries: list[Entry]) -> None:
    """Take events until data are needed or the message is over."""
    while not (entries and entries[-1][0] in {"end", "error"}):
        try:
            event = decoder.next_event()
        except RemoteProtocolError as error:
            entries.append(_entry(error))
            return
        if event is NEED_DATA:
            return
        entries.append(_entry(event))


def _bring(decoder: AnyDecoder, data: bytes, entries: list[Entry]) -> None:
    """Do what is right: take events, bring what is taken, tell the end."""
    _take_all(decoder, entries)
    while data and decoder.needs_data:
        data = data[decoder.feed(data) :]
        _take_all(decoder, entries)
    decoder.receive_eof()
    _take_all(decoder, entries)


class _Caller(RuleBasedStateMachine):
    """Calls a decoder in any order; keeps in mind what was brought and what has come out."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.entries: list[Entry] = []
        self.position = 0
        self.buffers: list[memoryview] = []
        self.ended_at: int | None = None

    @initialize(message=st.sampled_from(sorted(MESSAGES)), placement=st.sampled_from(sorted(PLACEMENTS)))
    def start(self, message: str, placement: str) -> None:
        self.message = MESSAGES[message]
        self.placement = PLACEMENTS[placement]
        self.decoder = self.new_decoder()

    def new_decoder(self) -> AnyDecoder:
        """Make a decoder with memory of its own."""
        return _make(self.message, self.placement(Path(self.stack.enter_context(tempfile.TemporaryDirectory()))))

    @property
    def is_refused(self) -> bool:
        """Whether the message was."""
        return not (self.decoder.needs_data or self.decoder.is_paused or self.decoder.is_complete)

    def raises(self, act: Callable[[], object]) -> None:
        """Make a call that is wrong in this state: it says so and changes nothing."""
        before = self.decoder.offset
        with pytest.raises(RemoteProtocolError if self.is_refused else LocalProtocolError) as caught:
            act()
        assert not self.has_error or self.entries[-1] == _entry(caught.value)
        assert self.decoder.offset == before

    @property
    def has_error(self) -> bool:
        """Whether `next_event` has come to the error of the message."""
        return bool(self.entries) and self.entries[-1][0] == "error"

    @rule(size=st.integers(0, 40) | st.integers(0, 2000))
    def feed(self, size: int) -> None:
        """Bring the next bytes; memory that was handed out before is no longer the decoder's."""
        data = self.message.body[self.position : self.position + size]
        self.buffers = []
        if self.is_refused:
            self.raises(lambda: self.decoder.feed(data))
        else:
            self.position += self.decoder.feed(data)

    @rule(is_several=st.booleans(), is_released=st.booleans())
    def get_buffer(self, *, is_several: bool, is_released: bool) -> None:
        """Ask for memory, perhaps again, perhaps after it was released."""
        decoder = self.decoder
        if not decoder.needs_data:
            self.raises(decoder.get_buffers if is_several else decoder.get_buffer)
            return
        if is_released:
            for buffer in decoder.get_buffers():
                buffer.release()
        self.buffers = decoder.get_buffers() if is_several else [decoder.get_buffer()]
        assert all(len(buffer) > 0 for buffer in self.buffers)

    @rule(size=st.integers(1, 40) | st.integers(1, 2000))
    def update(self, size: int) -> None:
        """Write the next bytes to the memory that was handed out, and say so; if there is none, that is a mistake."""
        left = self.message.body[self.position : self.position + size]
        if not self.buffers:
            self.raises(lambda: self.decoder.buffer_updated(size))
            return
        if not left:
            return
        count = 0
        for buffer in self.buffers:
            part = left[count : count + len(buffer)]
            buffer[: len(part)] = part
            count += len(part)
        self.buffers = []
        self.decoder.buffer_updated(count)
        # What was written behind the place of an error is not the message's.
        self.position = self.decoder.offset if self.is_refused else self.position + count
        self.raises(lambda: self.decoder.buffer_updated(1))

    @rule(nbytes=st.sampled_from([-1, 0, 1, 1 << 40]))
    def update_wrongly(self, nbytes: int) -> None:
        """Tell that impossibly many bytes were written."""
        room = sum(map(len, self.buffers))
        self.raises(lambda: self.decoder.buffer_updated(nbytes if nbytes < 1 else room + nbytes))

    @rule()
    def next_event(self) -> None:
        """Ask for an event, whether there can be one or not."""
        if self.has_error or (self.entries and self.entries[-1][0] == "end"):
            self.raises(self.decoder.next_event)
            return
        try:
            event = self.decoder.next_event()
        except RemoteProtocolError as error:
            self.entries.append(_entry(error))
            return
        if event is NEED_DATA:
            assert self.decoder.needs_data
        else:
            self.entries.append(_entry(event))

    @rule()
    def receive_eof(self) -> None:
        """Tell the end of input, at any time, perhaps again."""
        self.decoder.receive_eof()
        self.buffers = []
        self.ended_at = self.position if self.ended_at is None else self.ended_at

    @invariant()
    def is_in_one_state(self) -> None:
        decoder = self.decoder
        assert decoder.needs_data + decoder.is_paused + decoder.is_complete <= 1
        assert decoder.offset == self.position <= len(self.message.body)

    def teardown(self) -> None:
        """Go on properly, and hold what has come out against what must come."""
        with self.stack:
            if hasattr(self, "decoder"):
                left = self.message.body[self.position :]
                _bring(self.decoder, left if self.ended_at is None else b"", self.entries)
                wanted: list[Entry] = []
                _bring(self.new_decoder(), self.message.body[: self.ended_at], wanted)
                assert self.entries == wanted


_Caller.TestCase.settings = settings(max_examples=examples(120), stateful_step_count=30)
TestDecoder = _Caller.TestCase
