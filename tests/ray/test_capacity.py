"""The model of capacity against what is known of queues, and its bounds of memory against a server's budget."""

from __future__ import annotations

import pytest

from streamcodec.service.memory.budget import Budget
from tests.benchmarks.capacity import (
    MEASURED,
    MIB,
    Demand,
    Figures,
    demands,
    limits_for,
    nodes_for,
    replicas_for,
    request_bytes,
    simulate,
)

pytestmark = pytest.mark.slow

FIGURES = Figures("1 MB", 1_000_000, 0.010)


def demand(rate: float, client_bits: float = 1e12) -> Demand:
    return Demand("a test", rate, FIGURES, client_bits)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.8])
def test_one_replica_waits_as_long_as_theory_says(part: float) -> None:
    """M/D/1: the mean wait in the queue is part / (2 * (1 - part)) of the time of one request."""
    seen = simulate(demand(part / FIGURES.cpu), 1)
    assert seen.mean == pytest.approx(FIGURES.cpu * (1 + part / 2 / (1 - part)), rel=0.05)


def test_replicas_share_the_load() -> None:
    assert simulate(demand(240), 4).mean == pytest.approx(simulate(demand(60), 1).mean, rel=0.05)


def test_slow_clients_hold_memory_for_longer() -> None:
    """Little's law: requests in flight are rate times time, here 60 a second for 0.8 s of transfer."""
    seen = simulate(demand(60, client_bits=1e7), 1)
    assert 48 < seen.most_in_flight < 110
    assert simulate(demand(60), 1).most_in_flight < 30


def test_the_same_numbers_each_time() -> None:
    assert simulate(demand(60), 2) == simulate(demand(60), 2)
    assert simulate(demand(60), 2) != simulate(demand(60), 2, seed=1)


def test_replicas_have_room_and_one_may_die() -> None:
    assert replicas_for(demand(1)) == 2
    assert replicas_for(demand(600)) == 10
    assert replicas_for(demand(601)) == 11


def test_what_saturates_first() -> None:
    small = demands()[0]
    cores, network = nodes_for(small)
    assert network > cores
    assert nodes_for(Demand("slow model", 1000, Figures("4 KB", 4000, 0.1), 1e9)) == (11, 1)


@pytest.mark.parametrize("figures", MEASURED.values(), ids=MEASURED)
def test_memory_of_a_request_is_bounded_by_its_limits(figures: Figures) -> None:
    limits = limits_for(figures)
    assert limits.max_message_bytes >= figures.nbytes
    assert request_bytes(limits) < 1.5 * figures.nbytes + MIB
    Budget(request_bytes(limits)).check(limits.max_message_bytes)
