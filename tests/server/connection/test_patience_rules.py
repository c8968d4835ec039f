"""Patience, without sockets: what a client may take its time for, and what it may not. Time is an argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from streamcodec.runtime.timeouts import Phase, ReadTimeout, WriteTimeout
from streamcodec.server import ServerOptions

# How requests come


@dataclass
class Client:
    """What a session tells of a client."""

    phase: Phase = Phase.IDLE
    request_count: int = 0
    received: int = 0
    has_lost: bool = False
    has_work: bool = False


OPTIONS = ServerOptions(
    idle_timeout=100, head_timeout=20, header_timeout=30, read_timeout=10, min_rate=100, request_timeout=1000
)


def _seconds_until_given_up(options: ServerOptions, client: Client, act: Callable[[float], None]) -> float:
    """Look every second from 0 on; return when it has been enough."""
    patience = ReadTimeout(options, client)
    for second in range(5000):
        act(second)
        try:
            assert 0 < patience.look(second) <= 2.5, "a quarter of the shortest limit"
        except TimeoutError:
            return second
    return -1


def test_each_phase_has_its_limit_in_total_however_the_bytes_come() -> None:
    client = Client()

    def drip(_: float) -> None:
        client.received += 1

    def enough(_: float) -> None:
        client.received += 100

    client.phase = Phase.IDLE
    assert _seconds_until_given_up(OPTIONS, client, lambda _: None) == 100
    client.phase = Phase.HEAD
    assert _seconds_until_given_up(OPTIONS, client, enough) == 20
    client.phase = Phase.HEADER
    assert _seconds_until_given_up(OPTIONS, client, enough) == 30
    client.phase = Phase.BODY
    assert _seconds_until_given_up(OPTIONS, client, enough) == 1000
    assert _seconds_until_given_up(OPTIONS, client, drip) == 11


@pytest.mark.parametrize("phase", [Phase.HEAD, Phase.HEADER, Phase.BODY])
def test_silence_is_borne_for_a_shorter_time(phase: Phase) -> None:
    assert _seconds_until_given_up(OPTIONS, Client(phase), lambda _: None) == 10


def test_the_rate_is_an_average_and_0_is_none() -> None:
    client = Client(Phase.BODY)

    def hurry_first(now: float) -> None:
        client.received = 5000 if now else 0
        client.received += int(now)

    # 5000 bytes are enough for 50 seconds after the first 10, those that drip in for half a second more.
    assert _seconds_until_given_up(OPTIONS, client, hurry_first) == 61
    none = ServerOptions(read_timeout=10, min_rate=0, head_timeout=20, header_timeout=30, request_timeout=1000)
    assert _seconds_until_given_up(none, Client(Phase.BODY), lambda _: None) == 10
    client = Client(Phase.BODY)
    assert _seconds_until_given_up(none, client, hurry_first) == 1000


def _pull_windows(client: Client, count: int, *, model_takes: float, client_takes: float) -> None:
    """Wait for windows of 100 bytes, each with one look and no more, and work on them in between."""
    patience = ReadTimeout(OPTIONS, client)
    now = 0.0
    patience.look(now)
    patience.pause(now)
    for _ in range(count):
        now += model_takes
        patience.resume()
        patience.look(now)
        now += client_takes
        client.received += 100
        patience.pause(now)
    patience.resume()
    patience.look(now)


def test_time_that_nobody_waited_counts_neither_for_the_rate_nor_for_the_request() -> None:
    _pull_windows(Client(Phase.BODY), 900, model_takes=9, client_takes=1)
    _pull_windows(Client(Phase.BODY), 999, model_takes=9, client_takes=1)
    with pytest.raises(TimeoutError):  # the whole request has its limit all the same
        _pull_windows(Client(Phase.BODY), 1000, model_takes=9, client_takes=1)


def test_waits_that_end_before_anybody_looks_again_count() -> None:
    _pull_windows(Client(Phase.BODY), 9, model_takes=0, client_takes=2)
    with pytest.raises(TimeoutError):  # 50 bytes per second, 100 are wanted
        _pull_windows(Client(Phase.BODY), 10, model_takes=0, client_takes=2)


def test_waits_that_are_looked_at_count_once() -> None:
    client = Client(Phase.BODY)
    patience = ReadTimeout(OPTIONS, client)
    for second in range(1000):
        patience.look(float(second))
        patience.look(second + 0.5)
        client.received += 100
        patience.pause(second + 1.0)
        patience.pause(second + 1.0)
        patience.resume()
    with pytest.raises(TimeoutError):
        patience.look(1000.0)


def test_each_request_has_its_own_time() -> None:
    client = Client()
    patience = ReadTimeout(OPTIONS, client)
    now = 0.0
    for number in range(1, 100):
        for client.phase, seconds in ((Phase.HEAD, 9), (Phase.HEADER, 9), (Phase.BODY, 9)):
            client.request_count = number - (client.phase is Phase.HEAD)
            client.received += 1000
            patience.look(now)
            now += seconds
    client.received += 1000
    patience.look(now)


def test_heads_that_are_answered_between_two_looks_are_not_one_long_head() -> None:
    client = Client(Phase.HEAD)
    patience = ReadTimeout(OPTIONS, client)
    for second in range(1000):
        client.request_count += 1
        client.received += 100
        patience.look(float(second))


def test_a_request_that_begins_between_two_looks_has_its_whole_time() -> None:
    client = Client(Phase.BODY, request_count=1)
    patience = ReadTimeout(OPTIONS, client)
    for second in range(500):
        client.received += 100
        patience.look(float(second))
    client.request_count = 2
    for second in range(500, 1499):
        client.received += 100
        patience.look(float(second))
    with pytest.raises(TimeoutError):
        patience.look(1500.0)


def _given_up_at(client: Client, moments: dict[float, tuple[Phase, int]]) -> float:
    """Look at a client that sends fast enough; return when it has been enough, if its requests come on like this."""

    def go_on(now: float) -> None:
        client.received += 100
        client.phase, client.request_count = moments.get(now, (client.phase, client.request_count))

    return _seconds_until_given_up(OPTIONS, client, go_on)


def test_a_request_has_its_time_from_its_first_byte_on_whatever_phases_it_goes_through() -> None:
    assert _given_up_at(Client(Phase.HEAD), {15: (Phase.HEADER, 1), 40: (Phase.BODY, 1)}) == 1000
    assert _given_up_at(Client(Phase.HEADER, 1), {20: (Phase.BODY, 1)}) == 1000


def test_the_next_request_has_its_own_time_although_nobody_has_looked_between_the_two() -> None:
    assert _given_up_at(Client(Phase.HEAD), {15: (Phase.BODY, 2)}) == 1015, "the head that was seen is answered already"
    assert _given_up_at(Client(Phase.BODY, 1), {500: (Phase.BODY, 2)}) == 1500
    assert _given_up_at(Client(Phase.BODY, 1), {500: (Phase.HEADER, 2), 510: (Phase.BODY, 2)}) == 1500


def test_no_client_is_to_blame_for_work_that_waits_for_its_turn() -> None:
    client = Client(phase=Phase.BODY, has_work=True)
    assert _seconds_until_given_up(OPTIONS, client, lambda _: None) == -1
    client.has_work = False
    assert _seconds_until_given_up(OPTIONS, client, lambda _: None) == OPTIONS.read_timeout


LIMITS = ["idle_timeout", "head_timeout", "header_timeout", "read_timeout", "request_timeout"]


@pytest.mark.parametrize("shortest", LIMITS)
def test_somebody_looks_four_times_within_the_shortest_limit(shortest: str) -> None:
    times: dict[str, Any] = {name: 8.0 if name == shortest else 80.0 for name in LIMITS}
    options = replace(OPTIONS, **times)
    assert ReadTimeout(options, Client()).look(0.0) == 2.0


@pytest.mark.parametrize("start", [0.0, 1e6])
@pytest.mark.parametrize(
    ("phase", "limit"), [(Phase.IDLE, 100), (Phase.HEAD, 20), (Phase.HEADER, 30), (Phase.BODY, 10)]
)
def test_the_next_look_is_no_later_than_the_end(phase: Phase, limit: int, start: float) -> None:
    options = replace(OPTIONS, read_timeout=10 if phase is Phase.BODY else 1000)
    client = Client(phase, request_count=7, received=10_000)
    patience = ReadTimeout(options, client)
    patience.look(start)
    assert patience.look(start + limit - 0.25) == 0.25
    with pytest.raises(TimeoutError):
        patience.look(start + limit)


def test_a_whole_request_ends_exactly_with_its_time() -> None:
    client = Client(Phase.BODY)
    patience = ReadTimeout(OPTIONS, client)
    for second in range(1000):
        client.received += 1000
        assert patience.look(float(second)) == min(2.5, 1000 - second)
    with pytest.raises(TimeoutError):
        patience.look(1000.0)


def test_every_byte_is_followed_by_the_whole_time_without_one() -> None:
    client = Client(Phase.BODY, received=500)
    patience = ReadTimeout(replace(OPTIONS, min_rate=0), client)
    patience.look(50.0)
    patience.look(57.0)
    client.received += 1
    patience.look(59.0)
    assert patience.look(68.5) == 0.5
    with pytest.raises(TimeoutError):
        patience.look(69.0)


def test_who_has_lost_its_memory_is_given_up_at_the_next_look() -> None:
    client = Client(Phase.BODY)
    patience = ReadTimeout(OPTIONS, client)
    patience.look(0.0)
    client.has_lost = True
    with pytest.raises(TimeoutError):
        patience.look(0.1)


def test_what_came_with_the_header_is_no_merit_of_the_tensors() -> None:
    """Else a long JSON header would pay for tensors that never come."""
    client = Client(Phase.HEADER, received=0)
    patience = ReadTimeout(OPTIONS, client)
    patience.look(0.0)
    client.phase, client.received = Phase.BODY, 100_000
    patience.look(5.0)
    client.received += 200
    patience.look(12.0)
    client.received += 1
    assert patience.look(16.75) == pytest.approx(0.26)  # 10 s, and 2.01 for what has come
    client.received += 1
    with pytest.raises(TimeoutError):
        patience.look(17.1)


def test_a_wait_that_was_never_looked_at_counts_from_when_it_began() -> None:
    client = Client(Phase.BODY)
    patience = ReadTimeout(OPTIONS, client)
    patience.look(0.0)
    for now in range(1, 10):
        patience.pause(float(now))  # nobody looks, but the client is waited for all the time
    client.received = 1
    assert patience.look(9.5) == pytest.approx(0.51)


def test_a_wait_that_ends_gives_the_next_one_the_whole_time_without_a_byte() -> None:
    patience = ReadTimeout(replace(OPTIONS, min_rate=0), Client(Phase.BODY))
    for second in range(0, 900, 9):
        patience.look(float(second))
        patience.resume()


def test_work_between_two_looks_is_not_counted_as_waiting() -> None:
    client = Client(Phase.BODY)
    patience = ReadTimeout(OPTIONS, client)
    patience.look(0.0)
    patience.look(6.0)
    patience.pause(6.0)
    patience.resume()
    assert patience.look(900.0) == 2.5
    client.received = 1
    assert patience.look(903.5) == pytest.approx(0.51)


# How answers are taken


def _taken_until(taking: WriteTimeout, rate: float, pause: float = 0.0, answers: float = math.inf) -> float:
    """Wait for a client that takes so many bytes a second; return when it has been enough, -1 for never.

    Args:
        taking: what judges.
        rate: bytes per second.
        pause: seconds after each for which the server has nothing to send.
        answers: seconds of waiting for each run of answers.
    """
    taken = 0.0
    for second in range(5000):
        now = second * (1 + pause)
        taking.resume(now)
        try:
            taking.look(now, int(taken))
            taking.look(now + 0.5, int(taken + rate / 2))
        except TimeoutError:
            return second
        taken += rate
        taking.pause(now + 1)
        if second % answers == answers - 1:
            taking.has_all()
    return -1


def test_answers_are_taken_at_a_minimum_rate_and_within_a_time_in_all() -> None:
    options = ServerOptions(write_timeout=10, min_rate=100, request_timeout=1000)
    assert _taken_until(WriteTimeout(options), 0) == 10, "the client takes nothing"
    assert _taken_until(WriteTimeout(options), 2) == 10, "a byte now and then"
    assert _taken_until(WriteTimeout(options), 50) == 20, "half of what is wanted"
    assert _taken_until(WriteTimeout(options), 100) == 1000
    assert _taken_until(WriteTimeout(options), 100, answers=500) == -1
    assert _taken_until(WriteTimeout(options), 50, answers=2) == 20, "what it is late by is summed up over all answers"
    assert _taken_until(WriteTimeout(options), 100, pause=9) == 1000, "time in which nothing was there to be taken"
    none = ServerOptions(write_timeout=10, min_rate=0, request_timeout=1000)
    assert _taken_until(WriteTimeout(none), 2) == 1000


def _taking(**changes: Any) -> WriteTimeout:  # noqa: ANN401 - of the options
    options = ServerOptions(write_timeout=10, min_rate=100, request_timeout=1000)
    return WriteTimeout(replace(options, **changes))


@pytest.mark.parametrize(("write_timeout", "request_timeout"), [(8.0, 80.0), (80.0, 8.0)])
def test_somebody_looks_four_times_while_answers_are_taken(write_timeout: float, request_timeout: float) -> None:
    taking = _taking(write_timeout=write_timeout, request_timeout=request_timeout)
    taking.resume(5.0)
    assert taking.look(5.0, 0) == 2.0


@pytest.mark.parametrize("start", [0.0, 1e6])
def test_who_takes_nothing_is_given_up_exactly_in_time(start: float) -> None:
    taking = _taking()
    taking.resume(start)
    assert taking.look(start + 9.75, 0) == 0.25
    with pytest.raises(TimeoutError, match=r"^the client does not read its answer$"):
        taking.look(start + 10, 0)


def test_what_a_client_is_late_by_is_made_up_for_by_taking_more() -> None:
    taking = _taking()
    taking.resume(0.0)
    taking.look(8.0, 600)  # of 800: late by 2 s
    assert taking.look(15.75, 601) == pytest.approx(0.26)
    assert taking.look(16.0, 1600) == 2.5, "all is made up for"
    assert taking.look(25.75, 1601) == pytest.approx(0.26)


def test_fewer_acknowledged_bytes_than_before_are_no_progress() -> None:
    """TLS and Unix sockets count the system's own overhead as unacknowledged."""
    taking = _taking()
    taking.resume(0.0)
    taking.look(1.0, 5000)
    taking.look(5.0, 4000)
    assert taking.look(10.75, 5000) == 0.25
    with pytest.raises(TimeoutError):
        taking.look(11.0, 4999)


def test_taking_fast_buys_no_time_for_later() -> None:
    taking = _taking()
    taking.resume(0.0)
    taking.look(1.0, 1_000_000)
    with pytest.raises(TimeoutError):
        taking.look(11.5, 1_000_001)


def test_all_answers_that_are_taken_without_a_break_have_one_time_together() -> None:
    taking = _taking(request_timeout=20)
    for number in range(3):
        taking.resume(number * 100.0)
        taking.look(number * 100.0 + 3, 10_000 * number + 1000)
        taking.pause(number * 100.0 + 6)
    taking.resume(300.0)
    assert taking.look(301.0, 40_000) == 1.0
    taking.pause(301.5)
    taking.has_all()
    taking.resume(400.0)
    assert taking.look(405.0, 50_000) == 2.5, "after a break there is the whole time again"
    assert taking.look(419.5, 60_000) == 0.5
    with pytest.raises(TimeoutError):
        taking.look(420.0, 70_000)


def test_without_a_minimum_rate_nobody_is_late_who_takes_a_byte() -> None:
    taking = _taking(min_rate=0)
    taking.resume(0.0)
    for number in range(1, 100):
        assert taking.look(number * 9.0, number) == 2.5
