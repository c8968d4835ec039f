"""Blocks: rows of several requests that are received one after the other, and what becomes of them in any order."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcodec import (
    DATATYPES,
    NEED_DATA,
    NEED_TURN,
    MessageError,
    NewArray,
    RequestHeader,
    Tensor,
    TensorSpec,
    encode_request,
)
from streamcodec.http import Fields, RequestHead
from streamcodec.http.bodies.known import KnownBody
from streamcodec.runtime.memory.sharing import SharedBudget, SharedReservation
from streamcodec.service import Batch, InferenceRequest, Model, ModelRegistry, RowError, Service
from streamcodec.service.batches import blocks
from streamcodec.service.batches.blocks import Block, Blocks, Seat
from streamcodec.service.batches.collector import BatchCollector
from streamcodec.service.batches.joining import calls
from streamcodec.service.batches.members import Failed, Member, arranged, block_of, group_of
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.models.model import Outputs
from streamcodec.service.request import inference as requests_of
from streamcodec.service.request.exchange import Exchange, ExchangeStep
from streamcodec.service.request.inference import Inference, ResolvedHead
from streamcodec.service.request.plan import Plan, Recipe
from tests.effort import examples
from tests.service.requests import head

Array = np.ndarray[Any, Any]

Predict = Callable[[Array], Any]

_ROW = 16
"""Values of a row: 64 bytes."""

BAD = -1.0
"""A value that the model refuses."""


@pytest.fixture(autouse=True)
def _small_rows_have_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_LEAST_BYTES", 1)
    monkeypatch.setattr(requests_of, "_WHOLE_BYTES", 0)


def _spec(rows: int, width: int = _ROW, **options: Any) -> TensorSpec:  # noqa: ANN401
    return TensorSpec(name="x", datatype=DATATYPES["FP32"], shape=(rows, width), nbytes=4 * rows * width, **options)


class Room:
    """The blocks of one model, and a budget for them."""

    def __init__(self, nbytes: int = 1 << 20, *, max_rows: int = 4) -> None:
        self.blocks = Blocks()
        self.batch = Batch(max_rows=max_rows)
        self.budget = Budget(nbytes, min_rate=1.0)
        self.reservation = Reservation(self.budget)

    def seat(self, rows: int = 1, width: int = _ROW, key: str = "k", **options: Any) -> Seat | None:  # noqa: ANN401
        specs = [_spec(rows, width, **options)]
        return self.blocks.seat(self.batch, key, specs, lambda _: NewArray(), self.reservation)

    def seats(self, *rows: int) -> list[Seat]:
        found = [self.seat(count) for count in rows]
        assert None not in found
        return [seat for seat in found if seat is not None]


def test_seats_follow_each_other_and_a_full_block_is_followed_by_another() -> None:
    room = Room()
    seats = room.seats(1, 2, 1, 1)
    assert [seat.start for seat in seats] == [0, 1, 3, 0]
    assert seats[0].block is seats[1].block is seats[2].block is not seats[3].block
    for number, seat in enumerate(seats):
        assert seat.arrays["x"].shape == ([1, 2, 1, 1][number], _ROW)
        seat.arrays["x"][...] = number
    rows = seats[0].block.between(0, 4)["x"]
    assert rows[:, 0].tolist() == [0, 1, 1, 2]
    assert not rows.flags.writeable


def test_a_request_that_has_no_room_begins_another_block() -> None:
    seats = Room().seats(3, 2, 1)
    assert [seat.start for seat in seats] == [0, 0, 2]
    assert [seat.block.most for seat in seats] == [3, 4, 4]


def test_a_block_whose_batch_is_closed_gives_no_more_seats() -> None:
    room = Room()
    [first] = room.seats(1)
    first.block.close()
    assert not first.block.is_whole
    [second] = room.seats(1)
    assert second.block is not first.block


def test_what_goes_without_a_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room()
    assert room.seat(0) is None
    assert room.seat(1, 15) is None, "rows would not be aligned"
    assert room.seat(1, data=np.ones((1, _ROW), np.float32)) is None, "values that came as JSON"
    assert room.seat(4) is None, "nobody else has room"
    room.blocks.is_written = True
    assert room.seat(1) is None
    room.blocks.is_written = False
    assert Room(8 * 4 * 64 - 1).seat(1) is None, "a block has an eighth of the memory"
    assert Room(8 * 4 * 64).seat(1) is not None
    monkeypatch.setattr(blocks, "_MOST_BYTES", 4 * 64 - 1)
    assert room.seat(1) is None, "the pool could not keep some of them"


def test_threads_share_blocks_and_their_memory_is_given_back() -> None:
    """Each thread takes one row of 64, and writes to it; no row is given to two, and each block is full at its end."""
    room = Room(1 << 24, max_rows=64)
    shared = SharedBudget(1 << 24)
    room.reservation = SharedReservation(shared)
    kept: list[Seat] = []

    def take(number: int) -> None:
        for _ in range(160):
            (seat,) = room.seats(1)
            seat.arrays["x"][:] = number
            kept.append(seat)
            assert (seat.arrays["x"] == number).all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(take, range(4)))
    assert len({(id(seat.block), seat.start) for seat in kept}) == 640
    assert len({id(seat.block) for seat in kept}) == 10
    assert shared.budget.reserved == 10 * 64 * 64
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(Seat.leave, kept))
    assert shared.budget.reserved == 0


def test_the_memory_of_a_block_is_in_the_budget_until_the_last_seat_is_left() -> None:
    room = Room()
    seats = room.seats(1, 1)
    assert room.budget.reserved == 4 * 64
    for _ in range(2):
        seats[0].leave()
    assert room.budget.reserved == 4 * 64
    seats[1].leave()
    assert room.budget.reserved == 0
    assert seats[0].block.seat(1) is None
    assert Reservation(room.budget).ask(room.budget.max_bytes)
    assert room.seat(1) is None, "there is no memory for another one"


def test_a_block_that_others_wait_for_keeps_only_what_is_seated() -> None:
    room = Room(8 * 4 * 64)
    [seat] = room.seats(1)
    other = Reservation(room.budget)
    assert not other.ask(room.budget.max_bytes - 2 * 64)
    for now in (0.0, 2.0, 4.0):
        room.budget.look(now)
    assert not other.missing
    other.release()
    [next_one] = room.seats(1)
    assert next_one.block is not seat.block


def test_the_blocks_of_ten_thousand_groups_stay_within_the_budget_and_leave_nothing() -> None:
    room = Room(1 << 14)
    seats = [seat for number in range(10_000) if (seat := room.seat(1, key=f"group {number}")) is not None]
    assert len(seats) == (1 << 14) // (4 * 64), "the others have memory of their own"
    assert room.budget.reserved == room.budget.max_bytes
    memory: WeakSet[Block] = WeakSet(seat.block for seat in seats)
    while seats:
        seats.pop().leave()
    gc.collect()
    assert not memory
    assert room.budget.reserved == 0


def test_a_copy_of_the_blocks_in_another_process_has_its_own() -> None:
    assert isinstance(pickle.loads(pickle.dumps(Blocks())), Blocks)  # noqa: S301 - made here


def _member(seat: Seat | None, value: float) -> Member:
    array = np.empty((1, _ROW), np.float32) if seat is None else seat.arrays["x"]
    array[...] = value
    header = RequestHeader(tensors=(_spec(1),))
    request = InferenceRequest(inputs={"x": array}, header=header, model_name="m", model_version="1")
    return Member(request, seat)


def test_rows_are_not_moved_if_no_row_between_them_is_missing() -> None:
    seats = Room().seats(1, 1, 1)
    members = [_member(seat, value) for value, seat in enumerate(seats)]
    assert block_of(arranged(members[::-1])) is seats[0].block
    assert block_of(members[1:]) is seats[0].block
    assert block_of(members[::2]) is None
    assert block_of([members[0], _member(None, 9.0)]) is None
    assert block_of([members[0], _member(Room().seat(), 9.0)]) is None


def _drive(members: list[Member], room: Blocks, predict: Predict, **options: Any) -> list[tuple[int, bool]]:  # noqa: ANN401
    """Call a model; return the rows of each call, and whether they are rows of a block."""
    work, returned, seen = calls(arranged(members), _check, retry_alone=True, blocks=room, **options), None, []
    with suppress(StopIteration):
        while True:
            x = work.send(returned).inputs["x"]
            seen.append((len(x), not x.flags.writeable))
            try:
                returned = predict(x)
            except Exception as error:  # noqa: BLE001 - as the drivers do
                returned = Failed(error)
    return seen


def _check(outputs: object) -> Outputs:
    assert isinstance(outputs, dict)
    return outputs


def _in_place(x: Array) -> Any:  # noqa: ANN401
    x *= 2
    return {"y": x}


def _refuse(x: Array) -> Any:  # noqa: ANN401
    if (x == BAD).any():
        raise ValueError("bad")
    return {"y": x * 2}


def _refuse_by_name(x: Array) -> Any:  # noqa: ANN401
    if rows := np.flatnonzero((x == BAD).any(axis=1)).tolist():
        raise RowError({row: ValueError("bad") for row in rows})
    return {"y": x * 2}


_LATE, _LEFT = "late", "left"


@pytest.mark.parametrize(
    ("max_rows", "gaps", "starts"),
    [
        pytest.param(8, {1: _LATE}, [2, 3, 4], id="to the rows that nobody has had"),
        pytest.param(8, {1: _LEFT}, [1, 2, 3], id="to the row of a client that has left"),
        pytest.param(4, {2: _LEFT}, [0, 1, 2], id="from the other side"),
        pytest.param(
            8, {2: _LEFT, 5: _LATE, 6: _LATE, 7: _LATE}, [0, 1, 2, 3], id="one of two, the other is beside it"
        ),
        pytest.param(5, {2: _LEFT}, [0, 1, 2, 3], id="the farthest, and what is before it lies beside the others then"),
        pytest.param(
            8,
            {2: _LEFT, 6: _LATE, 7: _LATE},
            [1, 2, 3, 4, 5],
            id="the farthest of those before, and the other one is beside it then",
        ),
        pytest.param(
            8,
            {3: _LATE, 5: _LEFT, 6: _LEFT, 7: _LEFT},
            [4, 5, 6, 7],
            id="beside a shorter run, as the longer one has no room",
        ),
        pytest.param(8, {4: _LATE, 6: _LATE, 7: _LATE}, None, id="no room"),
    ],
)
def test_a_few_rows_are_moved_if_one_between_them_is_missing(
    max_rows: int, gaps: dict[int, str], starts: list[int] | None
) -> None:
    room = Room(max_rows=max_rows)
    seats = room.seats(*[1] * (4 if max_rows == 8 and len(gaps) == 1 else max_rows))
    members = [_member(seat, value) for value, seat in enumerate(seats)]
    for index, gap in gaps.items():
        if gap is _LEFT:
            seats[index].leave()
    present = [member for index, member in enumerate(members) if index not in gaps]
    assert _drive(present, room.blocks, _refuse) == [(len(present), starts is not None)]
    if starts is not None:
        assert sorted(member.start for member in present) == starts
    assert [member.outcome["y"][0, 0] for member in present] == [  # type: ignore[index, call-overload]
        2 * value for value in range(len(seats)) if value not in gaps
    ]
    for index, gap in gaps.items():
        assert gap is _LEFT or (seats[index].arrays["x"] == index).all(), "bytes still come for it"


def test_a_row_that_came_to_other_memory_is_moved_to_the_others() -> None:
    room = Room(max_rows=8)
    members = [_member(seat, value) for value, seat in enumerate([None, *room.seats(1, 1)])]
    assert _drive(members, room.blocks, _refuse) == [(3, True)]
    assert not room.blocks.is_written
    assert [member.start for member in members] == [2, 0, 1]
    assert [member.outcome["y"][0, 0] for member in members] == [0, 2, 4]  # type: ignore[index, call-overload]


def test_nothing_is_moved_in_a_block_of_which_a_batch_has_been_closed() -> None:
    room = Room(max_rows=8)
    members = [_member(seat, value) for value, seat in enumerate(room.seats(1, 1, 1, 1, 1))]
    assert _drive([members[3]], room.blocks, _refuse) == [(1, False)]
    assert _drive([members[0], members[1], members[4]], room.blocks, _refuse) == [(3, False)]


def test_nothing_is_moved_to_rows_whose_memory_others_have_got() -> None:
    room = Room(8 * 4 * 64)
    members = [_member(seat, value) for value, seat in enumerate(room.seats(1, 1, 1))]
    assert not Reservation(room.budget).ask(room.budget.max_bytes - 3 * 64)
    for now in (0.0, 2.0, 4.0):
        room.budget.look(now)
    assert _drive(members[::2], room.blocks, _refuse) == [(2, False)]


def test_a_model_that_writes_into_its_inputs_gets_copies_from_the_second_batch_on() -> None:
    room = Room()
    members = [_member(seat, value) for value, seat in enumerate(room.seats(1, 1))]
    assert _drive(members, room.blocks, _in_place) == [(2, True), (1, False), (1, False)]
    assert [member.outcome["y"][0, 0] for member in members] == [0, 2]  # type: ignore[index, call-overload]
    assert room.blocks.is_written
    assert room.seat(1) is None


@pytest.mark.parametrize("may_copy", [True, False])
def test_a_model_that_refuses_a_row_keeps_its_block(*, may_copy: bool) -> None:
    room = Room()
    members = [_member(seat, value) for value, seat in zip((1.0, BAD, 3.0), room.seats(1, 1, 1), strict=True)]
    assert _drive(members, room.blocks, _refuse, may_copy=may_copy)[0] == (3, True)
    assert not room.blocks.is_written
    members = [_member(seat, value) for value, seat in zip((1.0, BAD, 3.0), room.seats(1, 1, 1), strict=True)]
    later = [(2, False)] if may_copy else [(1, False)] * 2
    assert _drive(members, room.blocks, _refuse_by_name, may_copy=may_copy) == [(3, True), *later]
    assert [isinstance(member.outcome, Failed) for member in members] == [False, True, False]


def _planned() -> tuple[ResolvedHead, bytes, Plan]:
    model = Model(name="m", predict=lambda request: dict(request.inputs), batch=Batch(max_rows=4))
    message = encode_request([Tensor(name="x", array=np.ones((1, _ROW), np.float32))])
    service = Service(ModelRegistry.of([model]))
    resolved = service.open(head("/v2/models/m/infer", "POST", message.headers, message.body_length))
    assert isinstance(resolved, ResolvedHead)
    body = b"".join(map(bytes, message.buffers))
    plan = Recipe(resolved).plan(body[: message.header_length], message.body_length)
    assert plan is not None
    return resolved, body, plan


def test_a_planned_body_is_received_in_its_seat() -> None:
    resolved, _, plan = _planned()
    budget = Budget(1 << 20)
    begun = [Inference(resolved, plan=plan, reservation=Reservation(budget)) for _ in range(2)]
    for number, inference in enumerate(begun):
        assert isinstance(inference.arriving, KnownBody)
        inference.arriving.receive(memoryview(np.full(_ROW, number, "<f4").tobytes()))
    seats = [inference.seat for inference in begun if inference.seat is not None]
    assert [seat.start for seat in seats] == [0, 1]
    assert seats[0].block.between(0, 2)["x"][:, 0].tolist() == [0, 1]
    assert Inference(resolved, plan=plan).seat is None


def test_a_plan_makes_the_argument_of_the_model_from_a_whole_body() -> None:
    resolved, body, plan = _planned()
    request = plan.request(memoryview(body))
    assert request.inputs["x"].tolist() == [[1.0] * _ROW]
    assert group_of(Member(request, key=plan.key)) == group_of(Member(request))
    assert resolved.request(plan.header, request.inputs, {}).header is request.header


# Any interleaving


class Client:
    """One request, from its head to its outcome."""

    def __init__(self, service: Service, budget: Budget, rows: int, value: float, *, is_chunked: bool) -> None:
        self.expected = np.full((rows, _ROW), value, np.float32) + np.arange(rows, dtype=np.float32)[:, None] / 8
        if value == BAD:
            self.expected[-1] = BAD
        message = encode_request([Tensor(name="x", array=self.expected)])
        length = None if is_chunked else message.body_length
        fields = [(name.lower().encode(), text.encode()) for name, text in message.headers if name != "Content-Length"]
        head = RequestHead(
            method="POST", target="/v2/models/m/infer", fields=Fields(tuple(fields)), content_length=length
        )
        self.rest = b"".join(map(bytes, message.buffers))
        self.exchange = Exchange(service, Reservation(budget))
        self.status: int | None = None
        self.member: Member | None = None
        self.waiting: Any = None
        assert self.exchange.begin(head) is ExchangeStep.RECEIVE

    def bring(self, nbytes: int) -> None:
        """Bring some bytes; all events that they make are taken."""
        if self.status is not None or self.member is not None or not self.rest or nbytes < 1:
            return
        piece, self.rest = self.rest[:nbytes], self.rest[nbytes:]
        try:
            while piece and self.status is None:
                piece = piece[self.exchange.decoder.feed(piece) :]
                self._take_events()
        except MessageError as error:
            self.exchange.fail(error)
            self.status = self.exchange.reply.status

    def _take_events(self) -> None:
        decoder = self.exchange.decoder
        while self.member is None and (event := decoder.next_event()) is not NEED_DATA:
            assert event is not NEED_TURN
            if self.exchange.receive(event) is ExchangeStep.CALL:
                request = self.exchange.inference
                assert request is not None
                self.member = Member(request.request(), request.seat)

    def cut(self) -> None:
        """Break the connection, or be too slow."""
        if self.status is None and self.member is None:
            self.end()

    def end(self) -> None:
        """Want no answer any more."""
        self.status = 0
        self.exchange.end()


def _bad_and_good(x: Array) -> Any:  # noqa: ANN401
    return _refuse_by_name(x) if len(x) % 2 else _refuse(x)


_STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["rest", "rest", "bring", "cut", "leave", "call"])),
    max_size=20,
)


@settings(max_examples=examples(500))
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 1, 1, 1, 2, 3, 5]), st.sampled_from([False, False, True]), st.booleans()),
        min_size=6,
        max_size=6,
    ),
    st.lists(st.integers(0, 5)),
    _STEPS,
    st.sampled_from([_bad_and_good, _in_place]),
)
def test_any_interleaving_gives_each_client_what_it_would_have_got_alone(
    requests: list[tuple[int, bool, bool]], begun: list[int], steps: list[tuple[int, str]], predict: Predict
) -> None:
    play = Play(predict, requests)
    for index, step in [*((index, "begin") for index in begun), *steps]:
        play.do(index, step)
    play.end()
    for client, (rows, is_bad, _) in zip(play.clients, requests, strict=True):
        if client.status is not None:
            assert client.status in ({0, 400} if rows > 4 else {0})
            continue
        assert client.member is not None
        outcome = client.member.outcome
        if is_bad and predict is _bad_and_good:
            assert isinstance(outcome, Failed)
        else:
            assert isinstance(outcome, dict)
            assert outcome["y"].tolist() == (client.expected * 2).tolist()
    assert play.budget.reserved == 0


class Play:
    """Some clients of one model, and what happens to them in which order."""

    def __init__(self, predict: Predict, requests: list[tuple[int, bool, bool]]) -> None:
        batch = Batch(max_rows=4, max_delay=0.0)
        self._predict = predict
        self._model = Model(name="m", predict=lambda request: predict(request.inputs["x"]), batch=batch)
        service = Service(ModelRegistry.of([self._model]))
        self.budget = Budget(1 << 20)
        self._collector: BatchCollector[Client] = BatchCollector(batch)
        self.clients = [
            Client(service, self.budget, rows, BAD if is_bad else number, is_chunked=is_chunked)
            for number, (rows, is_bad, is_chunked) in enumerate(requests)
        ]

    def do(self, index: int, step: str) -> None:
        """Let a client bring nearly all bytes, some, or all; or be cut; or leave while it waits. Or call the model."""
        client = self.clients[index]
        if step == "call":
            self._call()
        elif step == "cut":
            client.cut()
        elif step == "leave" and client.waiting is not None:
            if self._collector.remove(client.waiting):
                client.end()
        elif step != "leave":
            client.bring({"begin": len(client.rest) - 9, "bring": 9}.get(step, len(client.rest)))
        if client.member is not None and client.waiting is None:
            key, most = group_of(client.member)
            client.waiting = self._collector.put(client, key, client.member.rows, 0.0, most=most)

    def end(self) -> None:
        """Let everybody bring what is left, and call the model for all of them."""
        for index in range(len(self.clients)):
            self.do(index, "rest")
        while len(self._collector):
            self._call()
        for client in self.clients:
            client.exchange.end()

    def _call(self) -> None:
        closed = self._collector.take(0.0)
        if closed is not None:
            self._collector.running -= 1
            members = [client.member for client in closed.items if client.member is not None]
            _drive(members, self._model.blocks, self._predict)
