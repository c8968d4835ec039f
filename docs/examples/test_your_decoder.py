"""Test a wrapper around the decoder, here one that counts bytes, with streamcodec's own means.

pip install pytest streamcodec[testing]
pytest test_your_decoder.py
"""

from __future__ import annotations

from hypothesis import given, settings

import streamcodec
from streamcodec.testing import (
    ExpectedMessage,
    assert_expected,
    assert_push_equals_pull,
    assert_split_invariant,
    run_push,
)
from streamcodec.testing.strategies import messages, mutated_messages


class CountingDecoder:
    """Passes all on, and counts what came."""

    def __init__(self, decoder: streamcodec.Decoder[streamcodec.RequestHeader]) -> None:
        self._decoder = decoder
        self.nbytes = 0
        self.get_buffer = decoder.get_buffer
        self.next_event = decoder.next_event
        self.receive_eof = decoder.receive_eof

    @property
    def needs_data(self) -> bool:
        return self._decoder.needs_data

    def feed(self, chunk: bytearray) -> int:
        taken = self._decoder.feed(chunk)
        self.nbytes += taken
        return taken

    def buffer_updated(self, nbytes: int) -> None:
        self.nbytes += nbytes
        self._decoder.buffer_updated(nbytes)


def make(message: ExpectedMessage) -> CountingDecoder:
    return CountingDecoder(
        streamcodec.request_decoder(header_length=message.header_length, body_length=message.body_length)
    )


@settings(max_examples=10, deadline=None)  # each has hundreds of cuts
@given(messages(is_response=False))
def test_the_cuts_do_not_matter(message: ExpectedMessage) -> None:
    assert_split_invariant(lambda: make(message), message.body)
    assert_push_equals_pull(lambda: make(message), message.body)


@settings(max_examples=50, deadline=None)
@given(messages(is_response=False) | mutated_messages(is_response=False))
def test_right_ones_are_read_and_wrong_ones_refused(message: ExpectedMessage) -> None:
    assert_expected(run_push(lambda: make(message), [message.body]), message)
