"""Assertions: rules that hold for every message and every decoder.

A broken rule raises `AssertionError`. Its message has the run, the smallest number of chunks found that still shows the
failure, and the place of the first difference. The rules hold for valid and for invalid messages: an error is an
outcome, too, with its place and text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Final, Protocol, cast

import numpy as np

from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.memory.rows import Rows, Window
from streamcodec.formats.v2.decoder import request_decoder
from streamcodec.formats.v2.encoder import EncodedMessage, Tensor, encode_request
from streamcodec.testing.chunkings import chunkings as all_chunkings
from streamcodec.testing.differences import first_difference
from streamcodec.testing.oracle import OracleRefusal, read_message
from streamcodec.testing.running import Log, Make, Outcome, TwoFaced, run_pull, run_push
from streamcodec.testing.samples import ExpectedMessage

Chunkings = Callable[[bytes], Iterable[list[bytes]]]
"""The ways to cut a message."""

usual_chunkings: Final[Chunkings] = partial(all_chunkings, at_most=500)
"""Whole, byte by byte, in two at every place (of a long message, at 500), and at random places."""

_NEXT_MESSAGE: Final = b'{"inputs":[]}'


class Run(Protocol):
    """`run_push`, `run_pull`, `run_scatter`, or a function of your own that passes chunks to a decoder."""

    def __call__(
        self,
        make_decoder: Any,  # noqa: ANN401 - makes a decoder with the methods that this run uses
        chunks: Iterable[bytes],
        *,
        has_eof: bool = True,
    ) -> Outcome:
        """Pass the chunks and the end of input to a decoder; return the outcome."""
        ...


def assert_split_invariant(
    make_decoder: Make,
    body: bytes,
    *,
    chunkings: Chunkings = usual_chunkings,
    runs: Sequence[Run] = (run_push, run_pull),
    has_eof: bool = True,
) -> Outcome:
    """Assert that the outcome does not depend on how a message is split; return that outcome.

    Args:
        make_decoder: makes a decoder that is ready for the first byte.
        body: the message, valid or invalid.
        chunkings: the ways to split it.
        runs: the interfaces to use; each is compared with the first one on the whole message.
        has_eof: whether the end of input is reported after it.

    Raises:
        AssertionError: two outcomes differ, or the decoder broke a rule of its interface.

    Example:
        >>> import streamcodec
        >>> text = b'{"outputs":[{"name":"y","datatype":"INT8","shape":[2],"data":[1,-1]}]}'
        >>> make = lambda: streamcodec.response_decoder(header_length=None, body_length=len(text))
        >>> assert_split_invariant(make, text).arrays
        [array([ 1, -1], dtype=int8)]
    """
    outcome = _told(runs[0], make_decoder, [body], has_eof=has_eof)
    expected = outcome.log
    for chunks in chunkings(body):
        for run in runs:
            found = partial(_log, run, make_decoder, has_eof=has_eof)
            _compare(found, lambda _: expected, chunks, _name(run), f"{_name(runs[0])} of the whole")
    return outcome


def assert_push_equals_pull(
    make_decoder: Make, body: bytes, *, chunkings: Chunkings = usual_chunkings, has_eof: bool = True
) -> Outcome:
    """Assert that both interfaces have the same outcome for the same chunks; return that of the whole message.

    Args:
        make_decoder: makes a decoder that is ready for the first byte.
        body: the message, valid or invalid.
        chunkings: the ways to split it.
        has_eof: whether the end of input is reported after it.

    Raises:
        AssertionError: two outcomes differ, or the decoder broke a rule of its interface.
    """
    push = partial(_log, run_push, make_decoder, has_eof=has_eof)
    pull = partial(_log, run_pull, make_decoder, has_eof=has_eof)
    for chunks in chunkings(body):
        _compare(pull, push, chunks, "run_pull", "run_push")
    return _told(run_push, make_decoder, [body], has_eof=has_eof)


def assert_stops_at_end(make_decoder: Make, body: bytes, *, runs: Sequence[Run] = (run_push, run_pull)) -> None:
    """Assert that a decoder takes no byte after its message.

    Args:
        make_decoder: makes a decoder that knows by itself where the message ends.
        body: a valid message.
        runs: the interfaces to use.

    Raises:
        AssertionError: the message is not complete at its end, or the bytes after it change the outcome.
    """
    for run in runs:
        alone = _told(run, make_decoder, [body], has_eof=False)
        if alone.end is None:
            msg = f"{_name(run)}: the message is not complete when its last byte has come"
            raise AssertionError(msg)
        followed = _told(run, make_decoder, [body + _NEXT_MESSAGE], has_eof=False)
        if difference := first_difference(followed.log, alone.log):
            msg = f"{_name(run)} of a message with another behind it differs: {difference}"
            raise AssertionError(msg)


def assert_read_as_by_oracle(
    outcome: Outcome, body: bytes, header_length: int | None, *, is_response: bool | None = None
) -> None:
    """Assert that the oracle reads an accepted message in the same way. A refused message is not checked.

    Args:
        outcome: the outcome of a run.
        body: the message.
        header_length: bytes of its JSON header; None if the whole message is JSON.
        is_response: whether it is a response; None to decide by the header.

    Raises:
        AssertionError: the oracle refuses the message, or reads another name, shape or bit.
    """
    if outcome.end is None:
        return
    try:
        tensors = read_message(body, header_length, is_response=is_response)["tensors"]
    except OracleRefusal as refusal:
        msg = f"the message was accepted, but the oracle refuses it: {refusal}"
        raise AssertionError(msg) from refusal
    found = [_reading(event.spec.name, event.array) for event in outcome.tensors]
    expected = [_reading(name, array) for name, array in tensors.items()]
    if difference := first_difference(found, expected):
        msg = f"the decoder differs from the oracle: {difference}"
        raise AssertionError(msg)


def assert_expected(outcome: Outcome, message: ExpectedMessage) -> None:
    """Assert that the outcome of a run is the expected one.

    Args:
        outcome: the outcome of a run that reported the end of input.
        message: a message of the strategies, or of your own.

    Raises:
        AssertionError: an invalid message was accepted, or refused with a wrong code; a valid message was refused, or
            read differently; or the message was neither accepted nor refused.
    """
    if message.refusals:
        codes = " or ".join(sorted(message.refusals))
        if outcome.error is None or outcome.error.code not in message.refusals:
            msg = f"the message is wrong ({message.mutation}) and to be refused with {codes}, but {_verdict(outcome)}"
            raise AssertionError(msg) from outcome.error
        return
    if outcome.end is None:
        msg = f"the message is right (mutation: {message.mutation}), but {_verdict(outcome)}"
        raise AssertionError(msg) from outcome.error
    assert_read_as_by_oracle(outcome, message.body, message.header_length, is_response=message.is_response)
    if message.tensors is not None:
        found_tensors = [_reading(event.spec.name, event.array, event.spec.datatype.name) for event in outcome.tensors]
        expected = [_reading(tensor.name, tensor.array, tensor.datatype) for tensor in message.tensors]
        if difference := first_difference(found_tensors, expected):
            msg = f"the decoder differs from what was written: {difference}"
            raise AssertionError(msg)


def _verdict(outcome: Outcome) -> str:
    if outcome.error is not None:
        return f"it was refused with {outcome.error.code}: {outcome.error}"
    return "it was neither accepted nor refused" if outcome.end is None else "it was accepted"


def _usual_decoder(message: EncodedMessage) -> TwoFaced:
    return request_decoder(header_length=message.header_length, body_length=message.body_length)


def assert_round_trip(
    tensors: Sequence[Tensor],
    *,
    encode: Callable[[Sequence[Tensor]], EncodedMessage] = encode_request,
    make_decoder: Callable[[EncodedMessage], TwoFaced] = _usual_decoder,
) -> None:
    """Assert that tensors have the same bits after encoding and decoding, and that the oracle agrees.

    A NaN in a JSON tensor only stays a NaN: JSON has no form for its bits.

    Args:
        tensors: the tensors to encode. Windows of `Rows` must allow two iterations.
        encode: makes a message of them.
        make_decoder: makes the decoder for that message.

    Raises:
        AssertionError: the message was refused, or a tensor differs.

    Example:
        >>> assert_round_trip([Tensor(name="x", array=np.array([[1.5, np.nan]], np.float32))])
    """
    message = encode(tensors)
    body = b"".join(message.buffers)
    outcome = run_push(lambda: make_decoder(message), [body])
    if outcome.end is None:
        msg = f"what was encoded is refused: {outcome.error}"
        raise AssertionError(msg)
    found = [_reading(event.spec.name, event.array, event.spec.datatype.name) for event in outcome.tensors]
    if difference := first_difference(found, [_as_sent(tensor) for tensor in tensors]):
        msg = f"what came back differs from what was sent: {difference}"
        raise AssertionError(msg)
    assert_read_as_by_oracle(outcome, body, message.header_length)


Read = Callable[[list[bytes]], Log]
"""A run, with everything given but the chunks."""

Reading = tuple[str, str, tuple[int, ...], Any]
"""A tensor: its name, datatype, shape, and bits or elements."""


def _reading(name: str, array: np.ndarray[Any, Any], datatype: str = "") -> Reading:
    return name, datatype, array.shape, array.reshape(-1).tolist() if array.dtype.hasobject else array.tobytes()


_WORDS: Final = {"i": "INT", "u": "UINT", "f": "FP"}
"""Beginnings of datatypes' names, by numpy's kinds; the bits of an item follow."""


def _as_sent(tensor: Tensor) -> Reading:
    """Return the expected values. This uses numpy alone: the library could make the same mistake in both directions."""
    array, datatype = _whole(tensor.array)
    if datatype == "BYTES":
        elements = [value.encode() if isinstance(value, str) else bytes(value) for value in array.reshape(-1).tolist()]
        return tensor.name, datatype, array.shape, elements
    if array.dtype.kind == "f" and not tensor.is_binary:
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return _reading(tensor.name, array.astype(array.dtype.newbyteorder("<")), datatype)


def _whole(values: np.ndarray[Any, Any] | Elements | Rows) -> tuple[np.ndarray[Any, Any], str]:
    if isinstance(values, Rows):
        windows = [np.asarray(window).reshape(-1) for window in cast("Iterable[Window]", values.windows)]
        return np.concatenate(windows or [np.empty(0)]).reshape(values.shape), values.datatype
    array = values.array if isinstance(values, Elements) else values
    return array, _datatype_name(array.dtype)


def _datatype_name(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "OSU":
        return "BYTES"
    if dtype.name == "bfloat16" or "BF16" in (dtype.metadata or {}).values():
        return "BF16"
    return "BOOL" if dtype.kind == "b" else f"{_WORDS.get(dtype.kind)}{8 * dtype.itemsize}"


def _told(run: Run, make_decoder: Make, chunks: list[bytes], *, has_eof: bool) -> Outcome:
    """Run; add the run and the chunks to the message of a failure."""
    try:
        return run(make_decoder, chunks, has_eof=has_eof)
    except AssertionError as failure:
        msg = f"{_name(run)} of {_sizes(chunks)}: {failure}"
        raise AssertionError(msg) from failure
    except Exception as failure:
        failure.add_note(f"The message came as {_sizes(chunks)}.")
        raise


def _log(run: Run, make_decoder: Make, chunks: list[bytes], *, has_eof: bool) -> Log:
    return _told(run, make_decoder, chunks, has_eof=has_eof).log


def _name(run: Run) -> str:
    return getattr(run, "__name__", repr(run))


def _compare(found: Read, expected: Read, chunks: list[bytes], name: str, other: str) -> None:
    """Assert that two runs keep their rules and agree on some chunks; if not, report few cuts that show it."""

    def finding(chunks: list[bytes]) -> str | None:
        try:
            log, wanted = found(chunks), expected(chunks)
        except AssertionError as failure:
            return str(failure)
        difference = None if log == wanted else first_difference(log, wanted)
        return difference and f"{name} of {_sizes(chunks)} differs from {other}: {difference}"

    if (told := finding(chunks)) is not None:
        raise AssertionError(_with_fewest_cuts(chunks, finding, told))


_MOST_RUNS: Final = 500
"""Most runs to find the fewest cuts. If each of thousands of cuts is needed, there would be more runs than this."""


def _with_fewest_cuts(chunks: list[bytes], finding: Callable[[list[bytes]], str | None], told: str) -> str:
    """Leave out cuts, many at once at first, as long as the failure stays; return the last failure."""
    data = b"".join(chunks)
    places = [*accumulate(map(len, chunks))][:-1]
    step, count = len(places), 0
    while step:
        start = 0
        while start < len(places) and count < _MOST_RUNS:
            count += 1
            fewer = places[:start] + places[start + step :]
            if (found := finding([data[a:b] for a, b in pairwise([0, *fewer, len(data)])])) is not None:
                places, told = fewer, found
            else:
                start += step
        step //= 2
    return told


_MANY: Final = 8
"""Sizes of chunks that are told."""


def _sizes(chunks: list[bytes]) -> str:
    sizes = [str(len(chunk)) for chunk in chunks[:_MANY]]
    return f"{' + '.join(sizes)}{' + ...' * (len(chunks) > _MANY)} bytes"
