"""Assertions hold for what is right, fail for what is not, and say where the first difference is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from streamcodec import EncodedMessage, ErrorCode, Rows, Tensor, encode_request, encode_response, response_decoder
from streamcodec.engine.datatypes import to_wire
from streamcodec.testing import (
    ExpectedMessage,
    Outcome,
    assert_expected,
    assert_push_equals_pull,
    assert_read_as_by_oracle,
    assert_round_trip,
    assert_split_invariant,
    assert_stops_at_end,
    bytewise,
    first_difference,
    run_push,
    run_scatter,
)
from streamcodec.testing.samples import ExpectedTensor
from tests.formats.v2.messages import Message, binary, jsonic, request
from tests.testing import wrappers
from tests.testing.wrappers import Wrapper

MESSAGE = request(
    binary("INT16", [20], 40, name="a"), jsonic("FP32", [2], [1.5, float("nan")], name="b"), payload=bytes(range(40))
)
WRONG = request(binary("BOOL", [2], 2), payload=b"\1\2")


class Making:
    """Makes wrappers of one kind."""

    def __init__(self, kind: type[Wrapper], message: Message = MESSAGE) -> None:
        self.kind = kind
        self.message = message

    def __call__(self) -> Wrapper:
        return self.kind(self.message.decoder())


@pytest.mark.parametrize("message", [MESSAGE, WRONG])
def test_our_decoder_and_a_wrapper_that_passes_on_are_split_invariant_right_or_wrong(message: Message) -> None:
    for make in (message.decoder, Making(Wrapper, message)):
        outcome = assert_split_invariant(make, message.body)
        assert outcome.log == assert_push_equals_pull(make, message.body).log
        assert (outcome.error is None) is (message is MESSAGE)
    assert_stops_at_end(Making(Wrapper), MESSAGE.body)


def test_a_byte_lost_at_a_cut_is_found_and_told_with_the_fewest_cuts() -> None:
    with pytest.raises(
        AssertionError, match=r"^run_push of \d+ \+ \d+ \+ \d+ bytes differs from run_push of the whole"
    ):
        assert_split_invariant(Making(wrappers.DropsAtCut), MESSAGE.body)


def test_faces_that_differ_are_found_with_the_byte_where_they_do() -> None:
    length = MESSAGE.header_length or 0
    with pytest.raises(AssertionError, match=r"^run_pull of (\d+) \+ \d+ bytes differs from run_push: ") as caught:
        assert_push_equals_pull(
            Making(wrappers.PullsDifferently),
            MESSAGE.body,
            chunkings=lambda data: [[data[: length + 3], data[length + 3 :]]],
        )
    assert ".tensors[0][1].values: byte 2 of 40 is 0xfd instead of 0x02" in str(caught.value)
    with pytest.raises(AssertionError, match="differs"):
        assert_split_invariant(Making(wrappers.PullsDifferently), MESSAGE.body)


@pytest.mark.parametrize("check", [assert_split_invariant, assert_push_equals_pull])
def test_a_broken_promise_is_told_with_the_run_and_the_cut_that_show_it(check: Callable[..., Outcome]) -> None:
    with pytest.raises(AssertionError, match=r"^run_push of \d+ \+ \d+ bytes: feed\(\) took nothing"):
        check(Making(LosesSecondChunk), MESSAGE.body, chunkings=lambda data: [bytewise(data)])
    with pytest.raises(AssertionError, match=rf"^run_push of {len(MESSAGE.body)} bytes: feed\(\) took nothing"):
        check(Making(wrappers.TakesNothing), MESSAGE.body)


def test_the_fewest_cuts_are_not_searched_for_without_end() -> None:
    """It fails when, and only when, the message comes byte by byte, so that not one cut can be left out."""
    runs: list[int] = []

    def run(make_decoder: object, chunks: Iterable[bytes], *, has_eof: bool = True) -> Outcome:  # noqa: ARG001 - a run's
        runs.append(len([*chunks]))
        return Outcome(taken=runs[-1] // 2000)

    with pytest.raises(AssertionError, match=r"^run of 1 \+ .* differs from run of the whole: .taken: 1 instead of 0$"):
        assert_split_invariant(MESSAGE.decoder, bytes(2000), chunkings=lambda data: [bytewise(data)], runs=[run])
    assert 400 < len(runs) < 600


class LosesSecondChunk(Wrapper):
    fed = 0

    def feed(self, chunk: bytearray) -> int:
        self.fed += 1
        return 0 if self.fed == 2 else self.inner.feed(chunk)


def test_what_a_decoder_raises_at_a_cut_is_raised_with_a_note() -> None:
    with pytest.raises(IndexError) as caught:
        assert_split_invariant(Making(wrappers.CrashesAtCut), MESSAGE.body)
    assert caught.value.__notes__ == ["The message came as 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + ... bytes."]


def test_bytes_of_the_next_message_that_are_taken_are_found() -> None:
    with pytest.raises(AssertionError):
        assert_stops_at_end(Making(wrappers.TakesWhatFollows), MESSAGE.body)
    with pytest.raises(AssertionError, match=r"another behind it differs: .end: EndOfMessage\(nbytes="):
        assert_stops_at_end(Making(wrappers.CountsWhatFollows), MESSAGE.body, runs=[run_push])
    headerless = Message(body=b'{"inputs":[]}', header_length=None, body_length=None)
    with pytest.raises(AssertionError, match="not complete"):
        assert_stops_at_end(headerless.decoder, headerless.body)


def test_other_runs_can_be_compared() -> None:
    outcome = assert_split_invariant(MESSAGE.decoder, MESSAGE.body, runs=[run_push, run_scatter])
    assert outcome.end is not None


def test_the_oracle_finds_what_is_read_differently_or_should_not_have_been_accepted() -> None:
    outcome = run_push(MESSAGE.decoder, [MESSAGE.body])
    assert_read_as_by_oracle(outcome, MESSAGE.body, MESSAGE.header_length)
    changed = MESSAGE.body[:-1] + b"?"
    with pytest.raises(AssertionError, match=r"differs from the oracle: \[0\]\[3\]: byte 39 of 40 is 0x27"):
        assert_read_as_by_oracle(outcome, changed, MESSAGE.header_length)
    with pytest.raises(AssertionError, match="accepted, but the oracle refuses it: bytes follow"):
        assert_read_as_by_oracle(outcome, MESSAGE.body + b"x", MESSAGE.header_length)
    refused = run_push(WRONG.decoder, [WRONG.body])
    assert_read_as_by_oracle(refused, b"", None)


TENSORS = [
    Tensor(name="big-endian", array=np.arange(6, dtype=">i4").reshape(2, 3)),
    Tensor(name="transposed", array=np.arange(6, dtype=np.float64).reshape(2, 3).T),
    Tensor(name="half", array=np.array([np.nan, 1], np.float16)),
    Tensor(name="json", array=np.array([[np.nan, -0.0, np.inf]], np.float32), is_binary=False),
    Tensor(name="scalar", array=np.array(5, np.uint8), is_binary=False),
    Tensor(name="strings", array=np.array(["a", "é"])),
    Tensor(name="bytes", array=np.array([b"\xff\0x", b""], object)),
    Tensor(name="texts", array=np.array(["é", b"b"], object), is_binary=False),
    Tensor(name="empty", array=np.zeros((0, 3), np.bool_)),
    Tensor(
        name="rows", array=Rows(datatype="INT8", shape=(3, 1), windows=[np.zeros((2, 1), "i1"), np.ones((1, 1), "i1")])
    ),
]


def test_round_trips() -> None:
    assert_round_trip(TENSORS)
    assert_round_trip(
        TENSORS,
        encode=lambda tensors: encode_response(tensors, model_name="m"),
        make_decoder=lambda message: response_decoder(
            header_length=message.header_length, body_length=message.body_length
        ),
    )


BIG_ENDIAN = np.arange(6, dtype=">i4").reshape(3, 2)


@pytest.mark.parametrize("values", [BIG_ENDIAN, Rows("INT32", (3, 2), [BIG_ENDIAN[:1], BIG_ENDIAN[1:]])])
def test_a_core_that_writes_arrays_as_they_lie_is_found(
    values: np.ndarray[Any, Any] | Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has imported the function: what is expected must not come from what is looked at."""
    assert_round_trip([Tensor(name="x", array=values)])
    monkeypatch.setattr(to_wire, "__code__", _as_it_lies.__code__)
    with pytest.raises(AssertionError, match=r"came back differs from what was sent: .*byte 4 of 24 is 0x00"):
        assert_round_trip([Tensor(name="x", array=values)])


def _as_it_lies(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array)


def swapping(tensors: Sequence[Tensor]) -> EncodedMessage:
    arrays = [tensor.array for tensor in tensors]
    return encode_request(
        [Tensor(name="x", array=array.byteswap()) for array in arrays if isinstance(array, np.ndarray)]
    )


def test_an_encoder_that_writes_other_values_and_one_that_writes_nonsense_are_found() -> None:
    tensors = [Tensor(name="x", array=np.array([1, 2], np.int16))]
    with pytest.raises(AssertionError, match=r"came back differs .*: byte 0 of 4 is 0x00 instead of 0x01"):
        assert_round_trip(tensors, encode=swapping)
    nonsense = EncodedMessage(parts=(b"{}",), header_length=None, body_length=2)
    with pytest.raises(AssertionError, match="is refused: the member inputs is missing"):
        assert_round_trip(tensors, encode=lambda _: nonsense)


def expected(message: Message, **members: object) -> ExpectedMessage:
    return ExpectedMessage(
        body=message.body,
        header_length=message.header_length,
        body_length=message.body_length,
        is_response=False,
        **members,  # type: ignore[arg-type]  # whatever the test says
    )


def test_verdicts_are_compared_with_what_came_out() -> None:
    right, wrong = run_push(MESSAGE.decoder, [MESSAGE.body]), run_push(WRONG.decoder, [WRONG.body])
    refusal = frozenset({ErrorCode.INVALID_BOOL})
    assert_expected(right, expected(MESSAGE))
    assert_expected(wrong, expected(WRONG, refusals=refusal))
    with pytest.raises(AssertionError, match="to be refused with invalid-bool, but it was accepted"):
        assert_expected(right, expected(MESSAGE, refusals=refusal))
    with pytest.raises(AssertionError, match="refused with truncated, but it was refused with invalid-bool"):
        assert_expected(wrong, expected(WRONG, refusals=frozenset({ErrorCode.TRUNCATED})))
    with pytest.raises(AssertionError, match=r"right .*, but it was refused with invalid-bool: a byte of a BOOL"):
        assert_expected(wrong, expected(WRONG))
    for message in (expected(MESSAGE), expected(MESSAGE, refusals=refusal)):
        with pytest.raises(AssertionError, match=r"but it was neither accepted nor refused$"):
            assert_expected(run_push(MESSAGE.decoder, [MESSAGE.body[:-1]], has_eof=False), message)
    tensors = (ExpectedTensor(name="a", datatype="INT16", array=right.arrays[0]),)
    with pytest.raises(AssertionError, match="differs from what was written: : 2 items instead of 1"):
        assert_expected(right, expected(MESSAGE, tensors=tensors))


def test_a_decoder_that_accepts_a_wrong_size_is_caught() -> None:
    """It does not compare the tensors with the body's length."""
    long = Message(body=MESSAGE.body + b"x", header_length=MESSAGE.header_length, body_length=len(MESSAGE.body) + 1)
    outcome = run_push(long.chunked().decoder, [long.body])
    with pytest.raises(AssertionError, match="but it was accepted"):
        assert_expected(outcome, expected(long, refusals=frozenset({ErrorCode.BODY_LENGTH_MISMATCH})))
    with pytest.raises(AssertionError, match="the oracle refuses it"):
        assert_expected(outcome, expected(long))


@pytest.mark.parametrize(
    ("found", "wanted", "difference"),
    [
        (1, 1, None),
        (1, 2, ": 1 instead of 2"),
        ("x" * 200, "", f": '{'x' * 99}... instead of ''"),
        ((1, [2, b"ab"]), (1, [2, b"ac"]), "[1][1]: byte 1 of 2 is 0x62 instead of 0x63"),
        ((b"ab", 1), (b"ab", 2), "[1]: 1 instead of 2"),
        (b"ab", b"abc", ": 2 bytes instead of 3"),
        ((1,), (1, 2), ": 1 items instead of 2"),
        ((1,), [1], ": (1,) instead of [1]"),
        (float("nan"), float("nan"), None),
        ((float("nan"), 1), (float("nan"), 2), "[1]: 1 instead of 2"),
    ],
)
def test_first_difference(found: object, wanted: object, difference: str | None) -> None:
    assert first_difference(found, wanted) == difference
