"""What a replica reports, and how many replicas that asks for."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from streamcodec import LocalProtocolError
from streamcodec.ray.autoscaling import LOAD, REQUESTS, LoadPolicy, Meter


@dataclass
class Told:
    """Stands for a server, and for both clocks."""

    reserved_bytes: int = 0
    requests_in_progress: int = 0
    now: float = 100.0
    cpu: float = 7.0
    process: float = 9.0


@dataclass
class Context:
    """What Ray gives to a policy."""

    aggregated_metrics: dict[str, dict[str, float]] | None
    target_num_replicas: int = 3


def meter(told: Told, processors: float = 1.0) -> Meter:
    clocks = {"clock": lambda: told.now, "cpu_clock": lambda: told.cpu, "process_clock": lambda: told.process}
    return Meter(told, 1000, processors=processors, **clocks)


def test_load_is_the_part_of_the_time_since_the_last_call_in_which_the_loop_computed() -> None:
    told = Told(requests_in_progress=5)
    measured = meter(told)
    told.now, told.cpu = 110.0, 9.5
    assert measured.measure() == {LOAD: 0.25, REQUESTS: 5.0}
    told.now, told.cpu = 112.0, 11.5
    assert measured.measure()[LOAD] == 1.0


@pytest.mark.parametrize(("processors", "load"), [(1.0, 0.81), (4.0, 0.2025), (100.0, 0.02)])
def test_models_in_threads_count_by_the_processors_that_are_reserved(processors: float, load: float) -> None:
    told = Told()
    measured = meter(told, processors)
    told.now, told.cpu, told.process = 110.0, 7.2, 17.1
    assert measured.measure()[LOAD] == pytest.approx(load)
    told.now, told.cpu, told.process = 120.0, 7.2, 17.1
    assert measured.measure()[LOAD] == 0


def test_memory_counts_if_it_is_more() -> None:
    told = Told(reserved_bytes=900)
    measured = meter(told)
    told.now, told.cpu = 110.0, 9.5
    assert measured.measure()[LOAD] == 0.9


def test_no_time_has_passed() -> None:
    assert meter(Told()).measure() == {LOAD: 0.0, REQUESTS: 0.0}


@pytest.mark.parametrize(
    ("loads", "wanted"), [([0.6], 1.0), ([0.6, 0.6], 2.0), ([0.9, 0.9], 3.0), ([0.05, 0.1], 0.25), ([0.0], 0.0)]
)
def test_replicas_follow_the_sum_of_loads(loads: list[float], wanted: float) -> None:
    context = Context({LOAD: dict(zip("ab", loads, strict=False))})
    found, remembered = LoadPolicy(0.6)(context)
    assert found == pytest.approx(wanted)
    assert remembered == {}


def test_replicas_follow_requests_if_that_asks_for_more() -> None:
    context = Context({LOAD: {"a": 0.1}, REQUESTS: {"a": 30.0, "b": 10.0}})
    assert LoadPolicy(0.5, target_requests=8)(context)[0] == 5.0
    assert LoadPolicy(0.5)(context)[0] == pytest.approx(0.2)


@pytest.mark.parametrize("metrics", [None, {}, {LOAD: {}}, {"other": {"a": 1.0}}])
def test_nothing_is_known_so_nothing_changes(metrics: dict[str, dict[str, float]] | None) -> None:
    assert LoadPolicy()(Context(metrics)) == (3.0, {})


@pytest.mark.parametrize("targets", [(0.0, None), (-1.0, None), (0.5, 0.0)])
def test_targets_are_above_zero(targets: tuple[float, float | None]) -> None:
    with pytest.raises(LocalProtocolError, match="above 0"):
        LoadPolicy(*targets)
