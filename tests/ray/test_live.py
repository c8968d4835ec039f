"""Replicas of a real cluster: what clients see while replicas serve, die, are replaced and scaled, and what is left.

The cluster is started once, which takes half a minute; `tests/ray/cluster.py` says what it needs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest

from streamcodec.client import Client, ServerError
from tests.benchmarks import load
from tests.processes import forget_peak, peak_resident, resident
from tests.ray.clients import abuse, descriptors, hammering, push, request_to, threads
from tests.ray.cluster import HOW, INTERPRETER, Cluster, running, until
from tests.ray.models import SLOW_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(INTERPRETER not in os.environ, reason=HOW)]

_MIB = 1 << 20
_SMALL = load.message_for(4096)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running() as cluster:
        yield cluster


@pytest.mark.parametrize("way", ["shared", "ingress"])
def test_tensors_come_back_as_they_were(cluster: Cluster, way: str) -> None:
    server = cluster.deploy(way)
    x = np.arange(1 << 20, dtype=np.float32)
    with Client(server.url + ("" if way == "shared" else f"/{way}")) as client:
        assert np.array_equal(client.infer("identity", {"x": x})["x"], x)
        with pytest.raises(ServerError) as refused:
            client.infer("unknown", {"x": x})
    assert refused.value.status == 404


def test_the_example_of_the_page(cluster: Cluster) -> None:
    cluster.delete("shared")
    with Client(cluster.deploy("example").url) as client:
        assert client.infer("double", {"x": np.arange(3, dtype=np.float32)})["y"].tolist() == [0, 2, 4]
    cluster.delete("example")


def test_a_reader_that_waits_holds_the_sender_back(cluster: Cluster) -> None:
    server = cluster.deploy("shared")
    pid = cluster.pids("shared")[0]
    before = resident(pid)
    forget_peak(pid)
    sent = push(server, "slow", 256 * _MIB, SLOW_SECONDS / 2)
    assert sent < 32 * _MIB, "what the system's buffers and a window hold"
    assert peak_resident(pid) - before < 32 * _MIB


def test_memory_is_bounded_by_the_budget(cluster: Cluster) -> None:
    server = cluster.deploy("shared", memory=256 * _MIB)
    pid = cluster.pids("shared")[0]
    request = request_to(server, "holding", load.message_for(32 * _MIB))
    before = resident(pid)
    forget_peak(pid)
    with hammering(server, request, 12) as outcome:
        time.sleep(5)
    assert outcome.seconds
    assert not set(outcome.failed) - {"503"}
    assert peak_resident(pid) - before < (128 + 32) * _MIB


def test_a_killed_replica_fails_only_its_own_requests_and_is_replaced(cluster: Cluster) -> None:
    server = cluster.deploy("shared", 2)
    killed = cluster.pids("shared")[0]
    with hammering(server, request_to(server, "identity", _SMALL), 8) as outcome:
        time.sleep(1)
        os.kill(killed, signal.SIGKILL)
        until(lambda: killed not in cluster.pids("shared") and len(cluster.pids("shared")) == 2, 60)
        time.sleep(1)
    assert sum(outcome.failed.values()) <= 16, "one for each connection, and one more for what it then waits for"
    assert len(outcome.seconds) > 200


def test_a_rolling_update_goes_on_answering(cluster: Cluster) -> None:
    server = cluster.deploy("shared", 2)
    old = set(cluster.pids("shared"))
    with hammering(server, request_to(server, "identity", _SMALL), 8) as outcome:
        time.sleep(0.5)
        cluster.deploy("shared", 2)
        time.sleep(0.5)
    assert not old & set(cluster.pids("shared"))
    assert not outcome.failed
    assert outcome.longest_gap < 5


def test_replicas_follow_the_load(cluster: Cluster) -> None:
    cluster.delete("shared")
    server = cluster.deploy("shared", most=2)
    assert len(cluster.pids("shared")) == 1
    with hammering(server, request_to(server, "identity", _SMALL), 8) as outcome:
        until(lambda: len(cluster.pids("shared")) == 2, 60)
    assert not outcome.failed
    until(lambda: len(cluster.pids("shared")) == 1, 90)


def test_after_thousands_of_events_nothing_is_left(cluster: Cluster) -> None:
    cluster.delete("shared")
    server = cluster.deploy("shared")
    pid = cluster.pids("shared")[0]
    abuse(server, 600)
    until(lambda: cluster.state()["requests"] == 0, 10)
    files, running_threads, memory, state = descriptors(pid), threads(pid), resident(pid), cluster.state()
    seen = abuse(server, 12_000)
    assert seen == {"404": 2000, "400": 2000, "200": 2000}
    until(lambda: cluster.state()["requests"] == 0, 10)
    after = cluster.state()
    assert after["reserved_bytes"] == after["abandoned_calls"] == 0
    assert after["tasks"] <= state["tasks"] + 2
    assert descriptors(pid) <= files + 4
    assert threads(pid) <= running_threads + 4
    assert resident(pid) - memory < 16 * _MIB
