"""Runs are strict callers: they report the outcome, and find each broken rule of an interface."""

from __future__ import annotations

import numpy as np
import pytest

from streamcodec import DATATYPES, EndOfMessage, ErrorCode, TensorReceived, TensorSpec, Windows, request_decoder
from streamcodec.testing import Outcome, Run, bytewise, run_pull, run_push, run_scatter, two_way
from tests.formats.v2.messages import Message, binary, jsonic, request
from tests.testing import wrappers

MESSAGE = request(
    binary("INT16", [2, 2], 8, name="a"),
    jsonic("BOOL", [2], [True, False], name="b"),
    binary("BYTES", [1], 7, name="c"),
    id="1",
    payload=np.arange(4, dtype="<i2").tobytes() + b"\3\0\0\0xyz",
)
WRONG = request(binary("INT16", [2], 4), payload=b"abc")
RUNS = [run_push, run_pull, run_scatter]
every_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)


def wrapped(kind: type[wrappers.Wrapper], message: Message = MESSAGE) -> wrappers.Wrapper:
    return kind(message.decoder())


@every_run
def test_an_outcome_has_everything_that_came_out(run: Run) -> None:
    for chunks in ([MESSAGE.body], bytewise(MESSAGE.body), [b"", *[*two_way(MESSAGE.body)][50], b""]):
        outcome = run(MESSAGE.decoder, chunks)
        assert outcome.header is not None
        assert outcome.header.id == "1"
        assert [array.tolist() for array in outcome.arrays] == [[[0, 1], [2, 3]], [True, False], [b"xyz"]]
        assert (outcome.end, outcome.error, outcome.is_over) == (EndOfMessage(nbytes=len(MESSAGE.body)), None, True)
        assert outcome.taken == len(MESSAGE.body)


@every_run
def test_an_outcome_has_the_error_and_what_came_before_it(run: Run) -> None:
    outcome = run(WRONG.decoder, [WRONG.body])
    assert outcome.error is not None
    assert (outcome.error.code, outcome.header, outcome.end) == (ErrorCode.BODY_LENGTH_MISMATCH, None, None)
    outcome = run(WRONG.chunked().decoder, [WRONG.body])
    assert outcome.error is not None
    assert (outcome.error.code, outcome.header is None) == (ErrorCode.TRUNCATED, False)


@every_run
def test_the_end_of_input_may_be_left_out(run: Run) -> None:
    outcome = run(MESSAGE.decoder, [MESSAGE.body[:-1]], has_eof=False)
    assert (outcome.is_over, outcome.taken) == (False, len(MESSAGE.body) - 1)


@every_run
def test_windows_are_described_before_their_memory_is_used_again(run: Run) -> None:
    def make() -> object:
        windows = Windows(max_window_bytes=4)
        return request_decoder(
            header_length=MESSAGE.header_length, body_length=MESSAGE.body_length, place=lambda _: windows
        )

    outcome = run(make, [MESSAGE.body])
    assert [(window.name, window.row, window.is_last) for window in outcome.windows][:2] == [
        ("a", 0, False),
        ("a", 1, True),
    ]
    assert [window.array.values for window in outcome.windows][:2] == [b"\0\0\1\0", b"\2\0\3\0"]


@every_run
def test_logs_differ_with_every_part_of_an_outcome(run: Run) -> None:
    log = run(MESSAGE.decoder, [MESSAGE.body]).log
    assert log == run(MESSAGE.decoder, bytewise(MESSAGE.body)).log
    variants = [
        request(*({**entry, "name": name} for entry, name in zip(entries(), "xbc", strict=True)), **payload()),
        request(*entries(), **payload()),
        request(*entries(), id="2", **payload()),
        request(*entries(), id="1", payload=MESSAGE.body[-15:-1] + b"?"),
        request(*entries(), id="1", payload=b"?" + MESSAGE.body[-14:]),
        WRONG,
    ]
    logs = [run(variant.decoder, [variant.body]).log for variant in variants]
    assert all(one != other for one in [log, *logs] for other in [log, *logs] if one is not other)


def test_logs_tell_values_apart_that_are_equal_in_python() -> None:
    seen = []
    for value in (1, True, 1.0):
        message = request(jsonic("BOOL", [0], []), outputs=[{"name": "y", "parameters": {"p": value}}])
        header = run_push(message.decoder, [message.body]).log.header
        assert header is not None
        seen.append(dict(header.members)["outputs"])
    assert len(set(seen)) == 3


def entries() -> list[dict[str, object]]:
    return [
        binary("INT16", [2, 2], 8, name="a"),
        jsonic("BOOL", [2], [True, False], name="b"),
        binary("BYTES", [1], 7, name="c"),
    ]


def payload() -> dict[str, bytes]:
    return {"payload": MESSAGE.body[-15:]}


@every_run
def test_a_wrapper_that_passes_on_is_fine(run: Run) -> None:
    assert run(lambda: wrapped(wrappers.Wrapper), [MESSAGE.body]).log == run(MESSAGE.decoder, [MESSAGE.body]).log
    assert run(lambda: wrapped(wrappers.Wrapper, WRONG), [WRONG.body]).log == run(WRONG.decoder, [WRONG.body]).log


BROKEN: list[tuple[Run, type[wrappers.Wrapper], str]] = [
    (run_push, wrappers.KeepsChunks, "kept a view"),
    (run_push, wrappers.TakesNothing, "took nothing"),
    (run_push, wrappers.TakesTooMuch, r"took \d+ bytes of \d+"),
    (run_push, wrappers.TakesAfterTheEnd, "complete, but feed"),
    (run_push, wrappers.LeavesBytes, "left bytes"),
    (run_push, wrappers.EndsEarly, r"bytes were taken of \d+"),
    (run_push, wrappers.AlwaysNeedsData, "complete, but needs_data is true"),
    (run_push, wrappers.NeverNeedsData, "NEED_DATA, but needs_data is false"),
    (run_push, wrappers.SkipsHeader, "before HeaderReceived"),
    (run_push, wrappers.RepeatsHeader, "second HeaderReceived"),
    (run_push, wrappers.ReturnsNoEvent, "str, which is no event"),
    (run_pull, wrappers.GivesEmptyBuffers, "is empty"),
    (run_pull, wrappers.GivesConstantBuffers, "no writable view of bytes"),
    (run_pull, wrappers.GivesSignedBuffers, "no writable view of bytes: format 'b'"),
    (run_pull, wrappers.GivesBuffersAfterTheEnd, "complete, but get_buffer"),
    (run_pull, wrappers.GivesTooLongBuffers, "a buffer reached 3 bytes past the message"),
    (run_scatter, wrappers.GivesTooLongBuffers, "a buffer reached 3 bytes past the message"),
    (run_scatter, wrappers.WritesPastOffset, "that the decoder passed over"),
    (run_scatter, wrappers.CountsTwice, "offset grew by"),
]


@pytest.mark.parametrize(("run", "kind", "expected"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_broken_promises_are_found(run: Run, kind: type[wrappers.Wrapper], expected: str) -> None:
    with pytest.raises(AssertionError, match=expected):
        run(lambda: wrapped(kind), [MESSAGE.body])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (wrappers.ForgetsItsError, "says something else"),
        (wrappers.AlwaysNeedsData, "refused, but needs_data is true"),
        (wrappers.GivesBuffersAfterTheEnd, "refused, but get_buffer"),
    ],
)
def test_broken_promises_after_an_error_are_found(kind: type[wrappers.Wrapper], expected: str) -> None:
    with pytest.raises(AssertionError, match=expected):
        run_pull(lambda: wrapped(kind, WRONG), [WRONG.body])


@every_run
def test_a_message_that_is_never_over_is_found(run: Run) -> None:
    chunked = MESSAGE.chunked()
    with pytest.raises(AssertionError, match="ended, but the message is neither complete nor refused"):
        run(lambda: wrapped(wrappers.IgnoresTheEndOfInput, chunked), [chunked.body[:-1]])


@every_run
def test_who_is_not_told_of_the_end_beforehand_may_have_room_for_more(run: Run) -> None:
    headerless = Message(body=b'{"inputs":[]}', header_length=None, body_length=None)
    assert run(lambda: wrapped(wrappers.GivesTooLongBuffers, headerless), [headerless.body]).end is not None


def test_bytes_that_follow_and_are_taken_are_found() -> None:
    with pytest.raises(AssertionError, match="bytes were taken of"):
        run_push(lambda: wrapped(wrappers.TakesWhatFollows), [MESSAGE.body + b"{"])


def test_events_before_the_header_are_found() -> None:
    spec = TensorSpec(name="x", datatype=DATATYPES["INT8"], shape=(), nbytes=1)
    for event in (TensorReceived(spec=spec, values=np.zeros((), np.int8)), EndOfMessage(nbytes=0)):

        class Invents(wrappers.Wrapper):
            def next_event(self, event: object = event) -> object:
                return event

        with pytest.raises(AssertionError, match="before HeaderReceived"):
            Outcome().collect(wrapped(Invents))
