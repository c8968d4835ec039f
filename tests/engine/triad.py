"""The triad: a message must mean the same however its bytes arrive.

`decode` passes one message to new decoders: as a whole, in every two pieces, and byte by byte; through all interfaces;
and with the bytes of a next message behind it. It checks that all of them report the same: events with each field and
each byte of each tensor, or the same error at the same place. So each test that decodes with it checks all of this.
`streamcodec.testing` does the work. The rules that only this library's decoder has are added here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from streamcodec import LocalProtocolError, MessageError
from streamcodec.testing import (
    Outcome,
    Run,
    assert_split_invariant,
    assert_stops_at_end,
    bytewise,
    describe_error,
    run_pull,
    run_push,
    run_scatter,
)
from tests.effort import places
from tests.formats.v2.messages import AnyDecoder, Message

Make = Callable[[], AnyDecoder]
Values = np.ndarray[Any, Any]
_NEXT_MESSAGE = b'{"inputs":[]}'
_EVERY_SPLIT = 700
"""Longer messages are cut at some hundred places only."""
_SPLITS = 200


def decode(source: Message | Make, body: bytes | None = None, *, has_eof: bool = True) -> Outcome:
    """Decode a message in every way there is; return what all ways agree on.

    Args:
        source: a message; or what makes its decoder, with the bytes as `body`.
        body: the bytes, if `source` does not know them.
        has_eof: whether the end of input is told, as by the end of a connection.
    """
    make, data = (source.decoder, source.body) if isinstance(source, Message) else (source, body or b"")
    runs = [_checked(run) for run in (run_push, run_pull)]
    outcome = assert_split_invariant(make, data, chunkings=cuts, runs=runs, has_eof=has_eof)
    assert _checked(run_scatter)(make, [data], has_eof=has_eof).log == outcome.log
    if outcome.end is not None and run_push(make, [data], has_eof=False).end is not None:
        assert_stops_at_end(make, data)
    return outcome


def refuse(source: Message | Make, body: bytes | None = None) -> MessageError:
    """Decode a message that must be refused, in every way there is; return the error that all ways agree on."""
    outcome = decode(source, body)
    assert outcome.error is not None, "the message was accepted"
    return outcome.error


def accept(source: Message | Make, body: bytes | None = None) -> list[Values]:
    """Decode a message that must be accepted, in every way there is; return its tensors' values."""
    outcome = decode(source, body)
    assert outcome.error is None, outcome.error
    assert outcome.end is not None
    return outcome.arrays


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Yield the ways of cutting a message: whole, byte by byte, in two pieces."""
    yield [data]
    yield bytewise(data)
    every = range(1, len(data)) if len(data) <= _EVERY_SPLIT else range(1, len(data), len(data) // _SPLITS)
    for place in places(every):
        yield [data[:place], data[place:]]


def _checked(run: Run) -> Run:
    """Look at the decoder when the run is over."""

    def checked(make_decoder: Make, chunks: Iterable[bytes], *, has_eof: bool = True) -> Outcome:
        made: list[AnyDecoder] = []

        def make() -> AnyDecoder:
            made.append(make_decoder())
            return made[-1]

        outcome = run(make, chunks, has_eof=has_eof)
        [decoder] = made
        assert decoder.offset == outcome.taken
        assert decoder.is_complete is (outcome.end is not None)
        if outcome.end is not None:
            _assert_stays_complete(decoder)
        if outcome.error is not None:
            _assert_stays_failed(decoder, outcome.error)
        return outcome

    return checked


def _assert_stays_failed(decoder: AnyDecoder, error: MessageError) -> None:
    assert not decoder.needs_data
    for act in (decoder.next_event, decoder.get_buffer, lambda: decoder.feed(b"{"), lambda: decoder.buffer_updated(1)):
        with pytest.raises(type(error)) as again:
            act()
        assert describe_error(again.value) == describe_error(error)
    decoder.receive_eof()


def _assert_stays_complete(decoder: AnyDecoder) -> None:
    assert decoder.feed(_NEXT_MESSAGE) == 0
    decoder.receive_eof()
    for act in (decoder.next_event, decoder.get_buffer, lambda: decoder.buffer_updated(1)):
        with pytest.raises(LocalProtocolError, match="complete"):
            act()
