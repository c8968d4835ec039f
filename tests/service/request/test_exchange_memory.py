"""Memory of an exchange: what a request has while it comes, waits or is slow, and where its rows and its work go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import NEED_TURN, Tensor, Windows, encode_request
from streamcodec.engine.receiving import NEED_DATA
from streamcodec.service import Batch, ResolvedHead
from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.request.exchange import Exchange, ExchangeStep
from streamcodec.service.request.plan import Recipe
from tests.service.request.test_exchange import CALL, KIB, RECEIVE, WAIT, Owner, service_of
from tests.service.requests import head

TARGET = "/v2/models/m/infer"


def test_a_header_of_known_length_takes_no_more_than_that() -> None:
    owner = Owner(service_of())
    message = encode_request({"x": np.zeros(100 * KIB, np.uint8)})
    assert owner.take(head(TARGET, "POST", message.headers, message.body_length)) is RECEIVE
    assert owner.budget.reserved == message.header_length


def test_who_waits_for_memory_keeps_what_has_come() -> None:
    budget = Budget(100 * KIB)
    other = Reservation(budget)
    assert other.ask(90 * KIB)
    owner = Owner(service_of(), budget)
    owner.begin()
    assert owner.bring(8 * KIB) is WAIT
    assert owner.exchange.inference is not None
    assert owner.exchange.reservation.nbytes == owner.exchange.inference.held_bytes > 0


def test_who_was_slow_never_has_more_than_it_takes_in_all() -> None:
    budget = Budget(200 * KIB, min_rate=1000.0)
    slow = Owner(service_of(), budget)
    slow.begin()
    slow.bring(8 * KIB)
    other = Reservation(budget)
    assert not other.ask(160 * KIB)
    for now in range(10):
        other.press(float(now))
    other.release()
    assert slow.bring(len(slow.data) - 1) is None
    assert slow.exchange.inference is not None
    assert budget.reserved == slow.exchange.inference.memory_bytes


def test_the_pace_of_a_client_matters_only_while_its_bytes_are_awaited() -> None:
    whole, windowed = Owner(service_of()), Owner(service_of(Windows(max_window_bytes=4 * KIB)))
    whole.begin()
    assert whole.bring() is CALL
    windowed.begin()
    assert windowed.bring(8 * KIB) is CALL, "the model pulls the rest"
    for owner in (whole, windowed):
        assert owner.exchange.reservation.taken is not None
        assert owner.exchange.reservation.taken() is None


@pytest.mark.parametrize(("row_bytes", "has_seat"), [(16 * KIB, False), (80 * KIB, True)])
def test_rows_of_a_batch_are_received_in_their_seat_if_they_are_worth_it(row_bytes: int, *, has_seat: bool) -> None:
    owner = Owner(service_of(batch=Batch(max_rows=4)))
    owner.begin(array=np.zeros((1, row_bytes), np.uint8))
    assert owner.bring() is CALL
    assert owner.exchange.inference is not None
    assert (owner.exchange.inference.seat is not None) is has_seat


def test_a_planned_body_has_its_seat_too() -> None:
    service, budget = service_of(batch=Batch(max_rows=4)), Budget(1 << 30)
    message = encode_request({"x": np.zeros((1, 80 * KIB), np.uint8)})
    request = head(TARGET, "POST", message.headers, message.body_length)
    resolved = service.open(request)
    assert isinstance(resolved, ResolvedHead)
    plan = Recipe(resolved).plan(bytes(message.parts[0]), message.body_length)  # type: ignore[arg-type] # no Rows
    exchange = Exchange(service, Reservation(budget))
    assert exchange.begin(request, resolved, plan) is ExchangeStep.FILL
    assert exchange.inference is not None
    assert exchange.inference.seat is not None


def _turns(exchange: Exchange, body: bytes) -> int:
    """Feed a body; return how often the decoder lets others have their turn."""
    decoder, turns = exchange.decoder, 0
    view = memoryview(body)
    while view or decoder.is_paused:
        event = decoder.next_event()
        turns += event is NEED_TURN
        if event is NEED_TURN:
            decoder.work()
        elif event is NEED_DATA:
            view = view[decoder.feed(view) :]
        else:
            exchange.receive(event)
    return turns


@pytest.mark.parametrize("is_known", [False, True])
def test_long_work_on_a_body_lets_others_have_their_turn(*, is_known: bool) -> None:
    service = service_of()
    message = encode_request([Tensor(name="x", array=np.arange(30_000), is_binary=False)])
    request = head(TARGET, "POST", message.headers, message.body_length)
    resolved: Any = service.open(request) if is_known else None
    exchange = Exchange(service, Reservation(Budget(1 << 30)))
    assert exchange.begin(request, resolved) is RECEIVE
    assert _turns(exchange, b"".join(message.buffers)) > 0
