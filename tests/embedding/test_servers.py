"""Servers: the service within other people's, live: what it answers, and what is left of clients that misbehave."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.benchmarks.embedding import Client, request
from tests.embedding.conformance import Answer, ask, compare, listed
from tests.embedding.faults import do, is_settled, settled, state_of
from tests.embedding.servers import HALF_CLOSED, SERVERS, Embedding, embedded
from tests.processes import peak_resident

pytestmark = pytest.mark.slow

_SECONDS: Final = 20
_MIB: Final = 1 << 20
FAULT_COUNT: Final = int(os.environ.get("STREAMCODEC_FAULTS", "200"))
"""Clients that break off, for each server; `python -m tests.embedding.faults` has 10,000 and takes some minutes."""

FAULTS_AT_FIRST: Final = 16

_NAMES: Final = list(SERVERS)


@pytest.fixture(autouse=True)
def _is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # some models of the corpus fail


@pytest.mark.parametrize("name", _NAMES)
def test_answers_differ_where_the_server_causes_it(name: str, tmp_path: Path) -> None:
    command, kind = SERVERS[name]
    with embedded(command, f"tests.embedding.apps:chosen_{kind}", tmp_path / "log") as embedding:
        known = listed(name)
        found = compare(embedding, half_closes=name in HALF_CLOSED, silent=known)
    # A server that closes at once and a client that still sends decide by chance whether there is an answer.
    by_chance = {case for table in (found, known) for case, letter in table.items() if letter == "n"}
    assert {case: found[case] for case in found.keys() - by_chance} == {
        case: known[case] for case in known.keys() - by_chance
    }
    assert {case for case, letter in found.items() if letter == "n"} <= known.keys()


@pytest.fixture(params=_NAMES)
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedding]:
    command, kind = SERVERS[request.param]
    with embedded(command, f"tests.embedding.apps:watched_{kind}", tmp_path / "log") as embedding:
        yield embedding


def whole(model: str, nbytes: int) -> bytes:
    return b"".join(request(f"/v2/models/{model}/infer", np.zeros(nbytes // 4, np.float32)))


def test_nothing_is_left_of_clients_that_break_off(watched: Embedding) -> None:
    do(watched.address, FAULTS_AT_FIRST)  # all is imported by then
    before = settled(watched)
    do(watched.address, FAULT_COUNT)
    after = settled(watched, before)
    assert is_settled(after, before), (before, after)


def test_a_server_that_is_stopped_ends_with_its_requests(watched: Embedding) -> None:
    found: list[Answer | None] = []
    message = whole("slow", 64)
    threads = [
        threading.Thread(target=lambda: found.append(ask(watched.address, message, half_closes=False)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    watched.process.send_signal(signal.SIGTERM)
    watched.process.wait(_SECONDS)
    for thread in threads:
        thread.join(_SECONDS)
    assert all(answer is None or answer[0] == 200 for answer in found)
    with pytest.raises(ConnectionError):
        socket.create_connection(watched.address, 1).close()


def test_no_memory_waits_for_the_garbage_collector(watched: Embedding) -> None:
    state_of(watched, b"?collector=off")
    large = request("/v2/models/sink/infer", np.zeros(4 * _MIB, np.float32))
    pid = watched.pids[-1]
    peaks = []
    for number in range(100):
        client = Client(watched.address)
        client.ask(large)
        client.close()
        if number in {9, 99}:
            peaks.append(peak_resident(pid))
    assert peaks[1] - peaks[0] < 64 * _MIB  # each thread of a server has pieces of 4 MiB; the requests, 1,440
