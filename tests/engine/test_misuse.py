"""Misuse: callbacks that call the decoder again, and second threads that call it during another call.

Both get a `LocalProtocolError`, or the documented result. The outcome of the message is right nevertheless.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np
import pytest

from streamcodec import (
    NEED_DATA,
    Decoder,
    EndOfMessage,
    LocalProtocolError,
    NewArray,
    Place,
    RequestHeader,
    Rows,
    Slab,
    Tensor,
    TensorReceived,
    TensorSpec,
    WindowReceived,
    Windows,
    encode_request,
    new_array,
    request_decoder,
)
from tests.formats.v2.messages import binary, request

COUNT: Final = 40
ROWS: Final = np.arange(8, dtype="<i2").reshape(4, 2)
MESSAGE: Final = request(
    *(binary("INT16", [4, 2], 16, name=f"t{index}") for index in range(COUNT)), payload=ROWS.tobytes() * COUNT
)

AnyDecoder = Decoder[RequestHeader]

ACTS: Final[dict[str, Callable[[AnyDecoder], object]]] = {
    "feed": lambda decoder: decoder.feed(b"x"),
    "feed of nothing": lambda decoder: decoder.feed(b""),
    "get_buffer": lambda decoder: decoder.get_buffer(),
    "get_buffers": lambda decoder: decoder.get_buffers(),
    "buffer_updated": lambda decoder: decoder.buffer_updated(1),
    "receive_eof": lambda decoder: decoder.receive_eof(),
}
"""Calls that have to do with bytes."""


def make(place: Place = new_array, check: Callable[[RequestHeader], None] | None = None) -> AnyDecoder:
    header_length, body_length = MESSAGE.header_length, MESSAGE.body_length
    return request_decoder(header_length=header_length, body_length=body_length, place=place, check=check)


def finish(decoder: AnyDecoder, left: bytes = b"") -> list[TensorReceived]:
    """Bring what is left; return the tensors of what must be the whole message."""
    decoder.feed(left)
    events = [decoder.next_event()]
    while not isinstance(events[-1], EndOfMessage):
        events.append(decoder.next_event())
    return [event for event in events if isinstance(event, TensorReceived)]


def assert_right(tensors: list[TensorReceived]) -> None:
    assert [tensor.spec.name for tensor in tensors] == [f"t{index}" for index in range(COUNT)]
    assert all(np.array_equal(tensor.array, ROWS) for tensor in tensors)


class _SlowSlabs:
    """A placement that does something in the middle of its slabs."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def slabs(self, spec: TensorSpec) -> Iterator[Slab]:
        self._act()
        yield from NewArray().slabs(spec)
        self._act()


def decoder_with(where: str, act: Callable[[], None]) -> AnyDecoder:
    """Make a decoder that acts in one of its callbacks."""

    def check(_: RequestHeader) -> None:
        act()

    def place(_: TensorSpec) -> NewArray:
        act()
        return NewArray()

    match where:
        case "check":
            return make(check=check)
        case "place":
            return make(place=place)
        case _:
            return make(place=lambda _: _SlowSlabs(act))


WHERE: Final = ("check", "place", "slabs")


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("is_ahead", [False, True])
@pytest.mark.parametrize("act", ACTS)
def test_callbacks_that_call_the_decoder_again_are_told_so_and_harm_nothing(
    act: str, where: str, is_ahead: bool
) -> None:
    errors: list[LocalProtocolError] = []

    def callback() -> None:
        with pytest.raises(LocalProtocolError, match="callbacks") as caught:
            ACTS[act](decoder)
        errors.append(caught.value)

    decoder = decoder_with(where, callback)
    length = MESSAGE.header_length or 0
    decoder.feed(MESSAGE.body[:length])
    if is_ahead:
        decoder.get_buffers()
    assert_right(finish(decoder, MESSAGE.body[length:]))
    assert len(errors) == {"check": 1, "place": COUNT, "slabs": 2 * COUNT}[where]


def test_callbacks_may_take_events_that_there_are_and_learn_that_there_is_no_more() -> None:
    seen: list[object] = []

    def check(_: RequestHeader) -> None:
        with pytest.raises(LocalProtocolError, match="callbacks"):
            decoder.next_event()

    def place(_: TensorSpec) -> NewArray:
        with suppress(LocalProtocolError):
            seen.append(decoder.next_event())
        return NewArray()

    decoder = make(place=place, check=check)
    decoder.feed(MESSAGE.body)
    seen += [decoder.next_event(), decoder.next_event()]
    assert [type(event).__name__ for event in seen] == ["HeaderReceived", *["TensorReceived"] * COUNT, "EndOfMessage"]


def test_rows_may_be_made_of_what_a_decoder_receives_meanwhile() -> None:
    decoder = make(place=lambda _: Windows(max_window_bytes=4))
    rest = memoryview(MESSAGE.body)

    def windows() -> Iterator[np.ndarray[Any, Any]]:
        nonlocal rest
        while not isinstance(event := decoder.next_event(), EndOfMessage):
            if event is NEED_DATA:
                rest = rest[decoder.feed(rest[:7]) :]
            if isinstance(event, WindowReceived):
                yield event.array

    sent = encode_request([Tensor(name="x", array=Rows("INT16", (4 * COUNT, 2), windows()))])
    assert b"".join(map(bytes, sent.buffers))[sent.header_length :] == ROWS.tobytes() * COUNT


@pytest.mark.parametrize("where", WHERE)
def test_a_second_thread_in_the_middle_of_a_call_is_told_so_and_harms_nothing(where: str) -> None:
    is_inside, is_done = threading.Event(), threading.Event()

    def callback() -> None:
        is_inside.set()
        assert is_done.wait(60)

    decoder = decoder_with(where, callback)
    first = threading.Thread(target=decoder.feed, args=(MESSAGE.body,))
    first.start()
    try:
        assert is_inside.wait(60)
        for act in ACTS.values():
            with pytest.raises(LocalProtocolError, match="two threads"):
                act(decoder)
    finally:
        is_done.set()
        first.join()
    assert_right(finish(decoder))


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Change threads as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def again(act: Callable[[], object]) -> None:
    """Repeat a call until no other thread is in the way."""
    while True:
        with suppress(LocalProtocolError):
            act()
            return


def push(decoder: AnyDecoder, piece: bytes) -> None:
    again(lambda: decoder.feed(piece))


def pull(decoder: AnyDecoder, piece: bytes) -> None:
    def read() -> None:
        buffer = decoder.get_buffer()
        buffer[: len(piece)] = piece
        decoder.buffer_updated(len(piece))

    again(read)


@pytest.mark.usefixtures("quick_switches")
@pytest.mark.parametrize("bring", [push, pull])
def test_another_thread_that_calls_all_the_time_cannot_spoil_what_comes(bring: Callable[..., None]) -> None:
    decoders = [make() for _ in range(8)]
    current = decoders[0]
    is_over = threading.Event()
    unexpected: list[Exception] = []

    def disturb() -> None:
        while not is_over.is_set():
            for act in (ACTS["feed of nothing"], ACTS["get_buffers"], lambda decoder: decoder.buffer_updated(1 << 40)):
                try:
                    act(current)
                except LocalProtocolError:
                    pass
                except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                    unexpected.append(error)

    other = threading.Thread(target=disturb, daemon=True)
    other.start()
    for current in decoders:
        for index in range(len(MESSAGE.body)):
            bring(current, MESSAGE.body[index : index + 1])
    is_over.set()
    other.join(60)
    assert not unexpected
    for decoder in decoders:
        assert_right(finish(decoder))


@pytest.mark.slow
@pytest.mark.usefixtures("quick_switches")
def test_two_threads_that_take_events_get_each_of_them_once() -> None:
    decoder = make(place=lambda _: Windows(max_window_bytes=4))
    rows: list[tuple[str, int]] = []
    unexpected: list[Exception] = []

    def consume() -> None:
        while not decoder.is_complete:
            try:
                event = decoder.next_event()
            except LocalProtocolError:
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                unexpected.append(error)
                return
            if isinstance(event, WindowReceived):
                rows.append((event.spec.name, event.row))

    threads = [threading.Thread(target=consume, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    rest = memoryview(MESSAGE.body)
    while rest:
        with suppress(LocalProtocolError):
            rest = rest[decoder.feed(rest) :]
    for thread in threads:
        thread.join(60)
    assert not unexpected
    assert sorted(rows) == sorted((f"t{index}", row) for index in range(COUNT) for row in range(4))
