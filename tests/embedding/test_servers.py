"""Servers: the service within other people's, live: what it answers, and what is left of clients that misbehave."""

from __future__ import annotations

import json
import logging
import math
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.benchmarks.embedding import Client, request
from tests.embedding.conformance import Answer, ask, compare, listed
from tests.embedding.servers import HALF_CLOSED, SERVERS, Embedding, embedded
from tests.processes import peak_resident

pytestmark = pytest.mark.slow

_SECONDS: Final = 20
_MIB: Final = 1 << 20
_ROUNDS: Final = 30
_NAMES: Final = list(SERVERS)

STATE: Final = b"GET /~/state HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(autouse=True)
def _is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # some models of the corpus fail


@pytest.mark.parametrize("name", _NAMES)
def test_answers_differ_where_the_server_causes_it(name: str, tmp_path: Path) -> None:
    command, kind = SERVERS[name]
    with embedded(command, f"tests.embedding.apps:chosen_{kind}", tmp_path / "log") as embedding:
        found, known = compare(embedding, half_closes=name in HALF_CLOSED), listed(name)
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


def state_of(embedding: Embedding, query: bytes = b"") -> dict[str, Any]:
    """Return what the server has in use."""
    answer = ask(embedding.address, STATE.replace(b"state", b"state" + query), half_closes=False)
    assert answer is not None
    assert answer[0] == 200
    state: dict[str, Any] = json.loads(answer[1])
    return state


def whole(model: str, nbytes: int) -> bytes:
    return b"".join(request(f"/v2/models/{model}/infer", np.zeros(nbytes // 4, np.float32)))


def leave_abruptly(sock: socket.socket) -> None:
    """Close with a reset, as a program that has crashed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def gone_in_mid_body(address: tuple[str, int], message: bytes) -> None:
    sock = socket.create_connection(address, _SECONDS)
    with suppress(OSError):
        sock.sendall(message[: len(message) // 2])
    leave_abruptly(sock)


def gone_in_mid_answer(address: tuple[str, int], message: bytes) -> None:
    sock = socket.create_connection(address, _SECONDS)
    sock.sendall(message)
    sock.recv(1000)
    leave_abruptly(sock)


def half_closed_in_mid_body(address: tuple[str, int], message: bytes) -> None:
    with socket.create_connection(address, 1) as sock, suppress(OSError):
        sock.sendall(message[: len(message) // 2])
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass


def settled(embedding: Embedding, files: float = math.inf) -> dict[str, Any]:
    """Wait until nothing is in use that was taken for requests, and no more files than that; return the last state.

    Servers close connections of clients that have left when they find out.
    """
    end = time.monotonic() + _SECONDS
    state = state_of(embedding)
    while (state["reserved"] or state["used"] or state["files"] > files) and time.monotonic() < end:
        time.sleep(0.2)
        state = state_of(embedding)
    return state


def test_nothing_is_left_of_clients_that_leave(watched: Embedding) -> None:
    ask(watched.address, whole("sink", 4 * _MIB), half_closes=False)
    before = settled(watched)
    for _ in range(_ROUNDS):
        gone_in_mid_body(watched.address, whole("sink", 4 * _MIB))
        gone_in_mid_answer(watched.address, whole("identity", 4 * _MIB))
        gone_in_mid_answer(watched.address, whole("rows", 64))
    for _ in range(3):
        half_closed_in_mid_body(watched.address, whole("sink", _MIB))
    after = settled(watched, before["files"] + 4)
    assert (after["reserved"], after["used"]) == (0, 0)
    assert after["threads"] <= before["threads"] + 8  # those that the server keeps for later
    assert after["files"] <= before["files"] + 4


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
