"""The public hook: a small format, cut in every way; and formats that break its rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DATATYPES,
    NEED_DATA,
    NEED_TURN,
    Datatype,
    Decoder,
    Discard,
    EndOfMessage,
    Event,
    Fill,
    HeaderReceived,
    LimitExceededError,
    Limits,
    LocalProtocolError,
    NewArray,
    OutOfMemoryError,
    Reader,
    Reading,
    RemoteProtocolError,
    TensorReceived,
    TensorSpec,
    WindowReceived,
    Windows,
    chosen,
    format_decoder,
)
from streamcodec.testing import assert_split_invariant

INT16 = DATATYPES["INT16"]


@dataclass(frozen=True)
class Header:
    """What a format returns."""

    tensors: tuple[TensorSpec, ...]
    title: str = ""


def spec(count: int, offset: int, name: str = "x", datatype: Datatype = INT16) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, shape=(count,), nbytes=count * datatype.itemsize, offset=offset)


def read_titled(reader: Reader) -> Reading[Header]:
    """A title that ends with a line feed, a count of tensors, and the count of values of each."""
    title = yield from reader.read_until(b"\r\n", 100)
    (count,) = yield from reader.read(1)
    sizes = bytes((yield from reader.read(count)))
    offset = reader.position
    tensors = []
    for index, size in enumerate(sizes):
        tensors.append(spec(size, offset, str(index)))
        offset += 2 * size
    return Header(tuple(tensors), str(title, "ascii"))


def titled(title: bytes, *arrays: list[int]) -> bytes:
    head = title + b"\r\n" + bytes([len(arrays), *map(len, arrays)])
    return head + b"".join(np.array(array, "<i2").tobytes() for array in arrays)


MESSAGE = titled(b"a \r title", [1, 2, 3], [], [-4])


def events(decoder: Decoder[Any], data: bytes) -> list[Any]:
    found: list[Any] = []
    while not found or not isinstance(found[-1], EndOfMessage):
        event = decoder.next_event()
        if event is NEED_TURN:
            decoder.work()
        elif event is not NEED_DATA:
            found.append(event)
        elif data:
            data = data[decoder.feed(data) :]
        else:
            decoder.receive_eof()
    return found


@pytest.mark.parametrize("length", [None, len(MESSAGE)])
@pytest.mark.parametrize("paced", [False, True])
def test_a_small_format(length: int | None, *, paced: bool) -> None:
    header, *tensors, end = events(format_decoder(read_titled, length=length, paced=paced), MESSAGE)
    assert header.header.title == "a \r title"
    assert [event.array.tolist() for event in tensors] == [[1, 2, 3], [], [-4]]
    assert end.nbytes == len(MESSAGE)


@pytest.mark.parametrize("length", [None, len(MESSAGE)])
def test_cuts_change_nothing(length: int | None) -> None:
    assert_split_invariant(lambda: format_decoder(read_titled, length=length), MESSAGE)


def test_nothing_beyond_the_message_is_asked_for() -> None:
    decoder = format_decoder(read_titled)
    assert decoder.feed(MESSAGE + b"the next one") == len(MESSAGE)


@pytest.mark.parametrize("end", range(len(MESSAGE)))
@pytest.mark.parametrize("length", [None, len(MESSAGE)])
def test_an_end_anywhere_is_truncated(length: int | None, end: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        events(format_decoder(read_titled, length=length), MESSAGE[:end])
    assert caught.value.code == "truncated"
    assert caught.value.offset == end


def test_a_length_that_ends_within_the_header() -> None:
    with pytest.raises(RemoteProtocolError, match="too early"):
        events(format_decoder(read_titled, length=4), MESSAGE[:4])
    with pytest.raises(RemoteProtocolError, match="exceeds the body's 12 bytes"):
        events(format_decoder(read_titled, length=12), MESSAGE[:12])


def test_windows_and_what_nobody_wants() -> None:
    def place(tensor: TensorSpec) -> Any:  # noqa: ANN401 - two kinds of placement
        return Windows(max_window_bytes=2) if tensor.name == "0" else Discard()

    found = events(format_decoder(read_titled, place=place), MESSAGE)
    assert [type(event) for event in found] == [HeaderReceived, *[WindowReceived] * 3, EndOfMessage]


def test_the_limits_are_kept() -> None:
    long = titled(b"t" * 99)
    with pytest.raises(LimitExceededError, match="more than 100 bytes"):
        events(format_decoder(read_titled), long)
    with pytest.raises(LimitExceededError, match="more than 5 bytes"):
        events(format_decoder(read_titled, limits=Limits(max_header_bytes=5)), MESSAGE)
    with pytest.raises(LimitExceededError) as caught:
        events(format_decoder(read_titled, limits=Limits(max_header_bytes=12)), MESSAGE)
    assert caught.value.limit == "max_header_bytes"
    for name, most, path in (
        ("max_tensors", 2, None),
        ("max_tensor_bytes", 5, "tensors[0]"),
        ("max_elements", 2, "tensors[0]"),
        ("max_rank", 0, "tensors[0]"),
    ):
        with pytest.raises(LimitExceededError) as caught:
            events(format_decoder(read_titled, limits=Limits(**{name: most})), MESSAGE)
        assert (caught.value.limit, caught.value.path) == (name, path)
    with pytest.raises(LimitExceededError) as caught:
        events(format_decoder(read_titled, limits=Limits(max_header_bytes=15, max_message_bytes=20)), MESSAGE)
    assert caught.value.limit == "max_message_bytes"


def test_sizes_that_numpy_cannot_hold_beside_a_zero() -> None:
    def read(reader: Reader) -> Reading[Header]:
        yield from reader.read(1)
        return Header((TensorSpec(name="x", datatype=INT16, shape=(0, 1 << 62, 1 << 62), nbytes=0, offset=1),))

    with pytest.raises(LimitExceededError) as caught:
        events(format_decoder(read), b"a")
    assert (caught.value.limit, caught.value.path) == ("max_elements", "tensors[0]")


@pytest.mark.parametrize("length", [None, 5])
def test_what_is_read_up_to_a_delimiter_may_be_nothing(length: int | None) -> None:
    def read(reader: Reader) -> Reading[Header]:
        first = yield from reader.read_until(b"\n", 9)
        second = yield from reader.read_until(b"\n", 9)
        third = yield from reader.read_until(b"\n", 9)
        return Header((), title=repr((first, second, third)))

    found = events(format_decoder(read, length=length), b"\n\nab\n")
    assert found[0].header.title == "(b'', b'', b'ab')"


def test_chosen_tensors() -> None:
    found = events(format_decoder(read_titled, place=chosen(["2"])), MESSAGE)
    assert [event.array.tolist() for event in found[1:-1]] == [[-4]]
    windows = chosen(["0", "1"], lambda spec: Windows(max_window_bytes=2) if spec.name == "0" else NewArray())
    kinds = [type(event).__name__ for event in events(format_decoder(read_titled, place=windows), MESSAGE)[1:-1]]
    assert kinds == ["WindowReceived"] * 3 + ["TensorReceived"]


def test_what_follows_the_tensors_is_the_formats_too() -> None:
    def read_end(reader: Reader) -> Fill:
        if bytes((yield from reader.read(3))) != b"end":
            raise reader.trailing_bytes()

    def make() -> Decoder[Header]:
        return format_decoder(read_titled, read_end=read_end)

    assert events(make(), MESSAGE + b"end")[-1].nbytes == len(MESSAGE) + 3
    assert_split_invariant(make, MESSAGE + b"end")
    assert_split_invariant(make, MESSAGE + b"nil")


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "bfloat16"])
def test_a_datatype_of_ones_own(name: str, ml_dtypes: Any) -> None:  # noqa: ANN401 - a module
    dtype = np.dtype(getattr(ml_dtypes, name))
    datatype = Datatype(name.upper(), dtype)

    def read(reader: Reader) -> Reading[Header]:
        yield from reader.read(1)
        return Header((spec(2, 1, datatype=datatype),))

    values = np.array([1.5, -2], dtype)
    _, tensor, _ = events(format_decoder(read), b"-" + values.tobytes())
    assert tensor.array.dtype == dtype
    assert tensor.array.tolist() == values.tolist()


# Formats that break the rules


def yields(*targets: Any) -> Callable[[Reader], Reading[Header]]:  # noqa: ANN401 - wrong ones
    def read(_: Reader) -> Reading[Header]:
        yield from targets
        return Header(())

    return read


WRONG_TARGETS = {
    "empty": memoryview(bytearray()),
    "read-only": memoryview(b"abc"),
    "bytearray": bytearray(3),
    "of other items": memoryview(bytearray(8)).cast("d"),
    "with holes": memoryview(bytearray(8))[::2],
    "a pause": None,
}


@pytest.mark.parametrize("target", WRONG_TARGETS.values(), ids=WRONG_TARGETS)
@pytest.mark.parametrize("paced", [False, True])
def test_a_target_that_cannot_be_filled(target: object, *, paced: bool) -> None:
    with pytest.raises(LocalProtocolError, match="a format"):
        events(format_decoder(yields(target), paced=paced), b"abcdefgh")


def test_a_format_that_never_ends() -> None:
    def read(reader: Reader) -> Reading[Header]:
        while True:
            yield from reader.fill(memoryview(bytearray(10)))

    def turn(reader: Reader) -> Reading[Header]:
        while True:
            yield from reader.turn()

    with pytest.raises(LimitExceededError, match="1010 bytes or more, 1000"):
        events(format_decoder(read, limits=Limits(max_header_bytes=1000)), bytes(2000))
    with pytest.raises(LocalProtocolError, match="has paused"):
        events(format_decoder(turn, paced=True), b"")


@pytest.mark.parametrize("error", [ValueError("why"), KeyError("x"), StopIteration(), AttributeError()])
def test_a_format_that_fails(error: Exception) -> None:
    def read(reader: Reader) -> Reading[Header]:
        yield from reader.read(1)
        raise error

    with pytest.raises(LocalProtocolError, match="the format failed"):
        events(format_decoder(read), b"abc")


def test_a_format_that_fails_at_the_end() -> None:
    def read_end(reader: Reader) -> Fill:
        yield from reader.read(1)
        raise ValueError

    with pytest.raises(LocalProtocolError, match="the format failed"):
        events(format_decoder(read_titled, read_end=read_end), MESSAGE + b"x")


def test_a_refusal_is_the_peers_fault_and_memory_nobodys() -> None:
    def refuse(reader: Reader) -> Reading[Header]:
        yield from reader.read(1)
        raise reader.truncated(1)

    def run_out(reader: Reader) -> Reading[Header]:
        yield from reader.read(1)
        raise MemoryError

    with pytest.raises(RemoteProtocolError, match="too early"):
        events(format_decoder(refuse), b"a")
    with pytest.raises(OutOfMemoryError) as caught:
        events(format_decoder(run_out), b"a")
    assert caught.value.code == "out-of-memory"


BYTES = DATATYPES["BYTES"]
WRONG_SPECS: dict[str, tuple[Any, ...]] = {
    "no spec": ("x",),
    "a name that is none": (spec(1, 1, name=1),),  # type: ignore[arg-type]
    "a name twice": (spec(0, 1), spec(0, 1)),
    "a hole before it": (spec(1, 2),),
    "an overlap": (spec(1, 1, "x"), spec(1, 2, "y")),
    "no offset": (TensorSpec(name="x", datatype=INT16, shape=(1,), nbytes=2),),
    "a byte too many": (TensorSpec(name="x", datatype=INT16, shape=(1,), nbytes=3, offset=1),),
    "a size below zero": (TensorSpec(name="x", datatype=INT16, shape=(-1,), nbytes=-2, offset=1),),
    "a size that is no int": (TensorSpec(name="x", datatype=INT16, shape=(1.0,), nbytes=2, offset=1),),  # type: ignore[arg-type]
    "values of another shape": (TensorSpec(name="x", datatype=INT16, shape=(2,), nbytes=0, data=np.zeros(1, "<i2")),),
    "elements without room for their lengths": (TensorSpec(name="x", datatype=BYTES, shape=(2,), nbytes=7, offset=1),),
    "bytes of no elements": (TensorSpec(name="x", datatype=BYTES, shape=(0,), nbytes=4, offset=1),),
    "two single elements": (
        TensorSpec(name="x", datatype=BYTES, shape=(2,), nbytes=9, offset=1, is_single_element=True),
    ),
}


@pytest.mark.parametrize("specs", WRONG_SPECS.values(), ids=WRONG_SPECS)
def test_a_tensor_that_is_described_wrongly(specs: tuple[Any, ...]) -> None:
    def read(reader: Reader) -> Reading[Header]:
        yield from reader.read(1)
        return Header(specs)

    with pytest.raises(LocalProtocolError, match=r"describes tensors\[\d\] wrongly"):
        events(format_decoder(read), bytes(20))


WORDS: dict[str, tuple[dict[str, Any], str]] = {
    "the name": ({"name": 1}, "the name is no str, but int"),
    "a name twice": ({"name": "first"}, "another tensor is named 'first', too"),
    "a name as the datatype": ({"datatype": "INT16"}, r"no Datatype, as DATATYPES\['FP32'\], but str"),
    "texts as sizes": ({"shape": ("1",)}, "no tuple of int of 0 or more"),
    "integers of numpy": ({"shape": (np.int64(1),)}, r"int\(\) converts integers of numpy, which may overflow"),
    "one size": ({"shape": 1}, "no tuple of int"),
    "half a byte": ({"nbytes": 2.0}, "nbytes is no int, but float"),
    "a byte too few": ({"nbytes": 1}, "it has 1 bytes, its shape and datatype need 2"),
    "elements": ({"datatype": BYTES, "nbytes": 3}, "need 4 or more"),
    "a hole": ({"offset": 2}, "the offset is 2, but its bytes begin at 1"),
    "a list of values": ({"data": [1]}, "data is no array of the shape"),
    "values and bytes": ({"data": np.zeros(1, "<i2")}, "nbytes is not 0"),
    "a single number": ({"is_single_element": True}, "one element of BYTES"),
}


@pytest.mark.parametrize(("wrong", "words"), WORDS.values(), ids=WORDS)
def test_what_is_wrong_with_a_description_is_said(wrong: dict[str, Any], words: str) -> None:
    right = {"name": "x", "datatype": INT16, "shape": (1,), "nbytes": 2, "offset": 1}

    def read(reader: Reader) -> Reading[Header]:
        yield from reader.read(1)
        return Header((spec(0, 1, "first"), TensorSpec(**right | wrong)))  # type: ignore[arg-type]  # wrong on purpose

    with pytest.raises(LocalProtocolError, match=rf"describes tensors\[1\] wrongly: .*{words}"):
        events(format_decoder(read), bytes(20))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (None, "not None"),
        ({"tensors": ()}, "not dict"),
        (Header(iter(())), "not .*Header whose tensors are tuple_iterator"),  # type: ignore[arg-type]
    ],
)
def test_a_format_returns_an_object_with_tensors(header: Any, words: str) -> None:  # noqa: ANN401 - wrong on purpose
    def read(reader: Reader) -> Reading[Any]:
        yield from reader.read(1)
        return header

    for _ in range(2):
        with pytest.raises(LocalProtocolError, match=f"whose attribute `tensors` is a tuple of TensorSpec, {words}"):
            events(format_decoder(read), b"a")


def test_a_format_is_a_generator_function() -> None:
    for read in (lambda _: Header(()), lambda _: None):
        with pytest.raises(LocalProtocolError, match="a format is a generator function of a reader"):
            events(format_decoder(read), b"a")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(LocalProtocolError, match="the format failed: ZeroDivisionError"):
        events(format_decoder(lambda _: 1 // 0), b"a")  # type: ignore[arg-type,return-value]


def test_texts_and_values_are_read_too() -> None:
    def read(reader: Reader) -> Reading[Header]:
        yield from reader.read(1)
        values = np.array([5], "<i2")
        return Header(
            (
                TensorSpec(name="a", datatype=BYTES, shape=(1,), nbytes=6, offset=1),
                TensorSpec(name="b", datatype=INT16, shape=(1,), nbytes=0, data=values),
                TensorSpec(name="c", datatype=BYTES, shape=(1,), nbytes=2, offset=7, is_single_element=True),
            )
        )

    found = events(format_decoder(read), b"-\2\0\0\0abcd")
    arrays = [event.array.tolist() for event in found if isinstance(event, TensorReceived)]
    assert arrays == [[b"ab"], [5], [b"cd"]]
    for name, most in (("max_bytes_elements", 0), ("max_element_bytes", 1)):
        with pytest.raises(LimitExceededError) as caught:
            events(format_decoder(read, limits=Limits(**{name: most})), b"-\2\0\0\0abcd")
        assert caught.value.limit == name


def test_a_length_below_zero() -> None:
    with pytest.raises(LocalProtocolError, match="negative"):
        format_decoder(read_titled, length=-1)


def test_events_have_their_type() -> None:
    event: Event | Any = events(format_decoder(read_titled), MESSAGE)[0]
    assert isinstance(event, HeaderReceived)


# A message in an envelope

ENVELOPE = b"[%d]"


def read_enveloped(reader: Reader) -> Reading[Header]:
    data = bytes((yield from reader.read(4)))
    reader.begin_body(int(data[1:3]))
    return (yield from read_titled(reader))


def read_envelope_end(reader: Reader) -> Fill:
    yield from reader.fill(memoryview(bytearray(1)))


def enveloped() -> Decoder[Header]:
    return format_decoder(read_enveloped, read_end=read_envelope_end)


def test_a_message_in_an_envelope_has_offsets_of_its_own() -> None:
    whole = ENVELOPE % len(MESSAGE) + MESSAGE + b"!"
    outcome = assert_split_invariant(enveloped, whole)
    assert [array.tolist() for array in outcome.arrays] == [[1, 2, 3], [], [-4]]
    assert outcome.header.tensors[0].offset == len(MESSAGE) - 8
    assert outcome.end == EndOfMessage(nbytes=len(whole))
    assert outcome.taken == len(whole)


@pytest.mark.parametrize("end", range(len(MESSAGE) + 5))
def test_offsets_of_errors_count_from_the_envelope(end: int) -> None:
    decoder = enveloped()
    with pytest.raises(RemoteProtocolError) as caught:
        events(decoder, (ENVELOPE % len(MESSAGE) + MESSAGE + b"!")[:end])
    assert caught.value.code == "truncated"
    assert caught.value.offset == decoder.offset == end


def test_the_limits_are_those_of_the_message_in_the_envelope() -> None:
    whole = ENVELOPE % len(MESSAGE) + MESSAGE + b"!"
    for nbytes, is_right in ((len(MESSAGE), True), (len(MESSAGE) - 1, False)):
        decoder = format_decoder(read_enveloped, read_end=read_envelope_end, limits=Limits(max_message_bytes=nbytes))
        if is_right:
            assert events(decoder, whole)[-1].nbytes == len(whole)
        else:
            with pytest.raises(LimitExceededError, match=f"{nbytes} are allowed"):
                events(decoder, whole)


def test_a_message_begins_once_and_behind_something() -> None:
    def at_once(reader: Reader) -> Reading[Header]:
        reader.begin_body(1)
        return (yield from read_titled(reader))

    def twice(reader: Reader) -> Reading[Header]:
        while True:
            yield from reader.read(1)
            reader.begin_body(9)

    for read in (at_once, twice):
        with pytest.raises(LocalProtocolError, match="begins once"):
            events(format_decoder(read), bytes(9))


# The declared length is a rule


def outcome_of(decoder: Decoder[Any], data: bytes) -> list[Any] | tuple[str, int | None]:
    """Return the types of the events, or the code and place of the refusal."""
    try:
        return [type(event) for event in events(decoder, data)]
    except RemoteProtocolError as error:
        return error.code, error.offset


def read_ahead(size: int) -> Callable[[Reader], Reading[Header]]:
    """Make a format whose header is four bytes, which it reads in a block of any size."""

    def read(reader: Reader) -> Reading[Header]:
        ahead = yield from reader.look_ahead(memoryview(bytearray(size)))
        assert len(ahead) <= size
        reader.skip(4)
        return Header((spec(3, 4),))

    return read


AHEAD = b"HEAD" + bytes(6)
DECLARED: dict[str, tuple[Callable[..., Decoder[Any]], bytes]] = {
    "parts": (lambda length: format_decoder(read_titled, length=length), MESSAGE),
    "an end": (
        lambda length: format_decoder(read_titled, read_end=read_envelope_end, length=length),
        MESSAGE + b"!",
    ),
    "an envelope": (
        lambda length: format_decoder(read_enveloped, read_end=read_envelope_end, length=length),
        ENVELOPE % len(MESSAGE) + MESSAGE + b"!",
    ),
    "a block": (lambda length: format_decoder(read_ahead(64), length=length), AHEAD),
    "a block of the header": (lambda length: format_decoder(read_ahead(4), length=length), AHEAD),
}


@pytest.mark.parametrize(("make", "whole"), DECLARED.values(), ids=DECLARED)
def test_a_message_of_its_declared_length_is_complete_with_its_last_byte(
    make: Callable[..., Decoder[Any]], whole: bytes
) -> None:
    assert_split_invariant(lambda: make(len(whole)), whole)
    for cut in range(len(whole) + 1):
        decoder = make(len(whole))
        assert decoder.feed(whole[:cut]) == cut
        assert decoder.feed(whole[cut:] + b"the next one") == len(whole) - cut
        assert decoder.is_complete


@pytest.mark.parametrize(("make", "whole"), DECLARED.values(), ids=DECLARED)
def test_a_message_of_another_length_than_declared_is_refused(make: Callable[..., Decoder[Any]], whole: bytes) -> None:
    for length in [*range(len(whole)), len(whole) + 1, len(whole) + 100]:
        data = (whole + bytes(200))[:length]
        outcome = outcome_of(make(length), data)
        assert isinstance(outcome, tuple), length
        code, offset = outcome
        assert code in {"truncated", "body-length-mismatch", "header-exceeds-body", "trailing-bytes"}
        assert offset is not None
        assert offset <= length
        assert_split_invariant(partial(make, length), data)
        decoder = make(length)
        assert not decoder.needs_data or decoder.feed(data + b"the next one") <= length


def test_a_wrong_length_is_refused_before_memory_is_taken() -> None:
    placed: list[TensorSpec] = []

    def place(tensor: TensorSpec) -> NewArray:
        placed.append(tensor)
        return NewArray()

    for length in (len(MESSAGE) - 1, len(MESSAGE) + 1):
        decoder = format_decoder(read_titled, length=length, place=place)
        with pytest.raises(RemoteProtocolError, match=f"has {length} bytes, its header and tensors need") as caught:
            events(decoder, MESSAGE + b"x")
        assert caught.value.offset == min(length, len(MESSAGE))
    assert not placed


def test_without_a_length_a_message_that_was_looked_ahead_in_ends_with_the_input() -> None:
    assert outcome_of(format_decoder(read_ahead(64)), AHEAD) == [HeaderReceived, TensorReceived, EndOfMessage]
    assert outcome_of(format_decoder(read_ahead(64)), AHEAD + b"x") == ("trailing-bytes", len(AHEAD))
    assert outcome_of(format_decoder(read_ahead(10)), AHEAD) == [HeaderReceived, TensorReceived, EndOfMessage]
    decoder = format_decoder(read_ahead(10))
    assert decoder.feed(AHEAD + b"the next one") == len(AHEAD)


@pytest.mark.parametrize("nbytes", [-1, 5])
def test_what_is_not_ahead_cannot_be_skipped(nbytes: int) -> None:
    def read(reader: Reader) -> Reading[Header]:
        yield from reader.look_ahead(memoryview(bytearray(4)))
        reader.skip(nbytes)
        return Header(())

    with pytest.raises(LocalProtocolError, match=rf"skip\({nbytes}\): 4 bytes are ahead; look_ahead\(\) brings more"):
        events(format_decoder(read), AHEAD)


def test_a_message_of_unknown_length_is_gathered() -> None:
    def read(reader: Reader) -> Reading[Header]:
        nbytes = yield from reader.gather(10_000, "max_message_bytes")
        return Header((spec(nbytes // 2, 0),))

    values = np.arange(4_097, dtype="<i2")
    assert_split_invariant(lambda: format_decoder(read), values[:20].tobytes())
    assert np.array_equal(events(format_decoder(read, paced=True), values.tobytes())[1].array, values)
    decoder = format_decoder(read)
    assert decoder.feed(bytes(20_000)) == 10_001
    with pytest.raises(LimitExceededError, match="more than the 10000 bytes"):
        decoder.next_event()


@pytest.mark.parametrize(("length", "skipped"), [(4, 0), (None, 1)])
def test_a_message_is_gathered_from_its_beginning(length: int | None, skipped: int) -> None:
    def read(reader: Reader) -> Reading[Header]:
        yield from reader.read(skipped)
        yield from reader.gather(100, "max_message_bytes")
        return Header(())

    decoder = format_decoder(read, length=length)
    with pytest.raises(LocalProtocolError, match="gathered from its first byte"):
        events(decoder, bytes(4))
