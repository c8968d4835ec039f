"""Bookkeeping: who has a seat, a turn, memory, and the next request; without sockets."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest

from streamcodec import NEED_DATA
from streamcodec.runtime.memory.available import default_budget
from streamcodec.server import ServerOptions, open_listener
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.service import Service
from streamcodec.service.memory.budget import Budget, Reservation
from tests.server.models import models
from tests.server.wire import GET_LIVE, head


class Guest:
    """Serves a connection that is idle."""

    is_idle = True

    def leave(self) -> None:
        """Do nothing."""


def _session(admission: Admission) -> Session:
    service = Service(models())
    session = Session(service, RequestCache(service), admission)
    assert admission.enter(session, Guest())
    return session


# Seats, and requests of one connection


def test_a_seat_that_somebody_has_made_room_for_is_taken_at_once() -> None:
    desk = Admission(ServerOptions(max_connections=1))
    first, second, third = (_session(desk) for _ in range(3))
    assert desk.admits(first)
    assert desk.makes_room(second)
    assert not desk.admits(third), "the seat was made free for somebody else"
    assert desk.admits(second)


def test_only_the_last_request_of_a_connection_is_not_answered_at_once() -> None:
    """It is answered with `Connection: close`, which the short cut knows nothing of."""
    session = _session(Admission(ServerOptions(max_requests_per_connection=3)))
    session.connection.feed(GET_LIVE * 3)
    assert [session.answer_at_once() for _ in range(3)] == [True, True, False]
    assert session.next_event() is Step.SEND
    assert b"Connection: close" in bytes(session.outgoing[0])  # type: ignore[arg-type] # the head


def test_a_budget_asks_for_the_rate_that_the_options_say() -> None:
    assert Admission(ServerOptions(min_rate=5.0)).budget.min_rate == 5.0


REFUSED = {
    "to its end": head("/v2/models/nobody", "Connection: close", method="PUT"),
    "before its body": head("/v2/models/nobody/infer", "Connection: close", "Content-Length: 100000"),
}


@pytest.mark.parametrize("when", REFUSED)
def test_a_connection_is_idle_from_its_answer_on_and_leaves_first_if_that_was_its_last(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Admission(ServerOptions())
    session = _session(desk)
    used: list[tuple[object, bool]] = []
    monkeypatch.setattr(desk, "used", lambda session, *, is_last=False: used.append((session, is_last)))
    session.connection.feed(REFUSED[when])
    assert session.next_event() is Step.SEND
    assert not used
    session.outgoing = []
    session.has_sent()
    assert used == [(session, when == "before its body")]


# Memory


def test_a_short_json_header_takes_no_more_than_its_length() -> None:
    desk = Admission(ServerOptions(max_memory_bytes=64 << 20))
    session = _session(desk)
    lines = ("Content-Length: 1000000", "Inference-Header-Content-Length: 100")
    session.connection.feed(head("/v2/models/identity/infer", *lines))
    assert session.next_event() is NEED_DATA
    assert desk.budget.reserved == 100


def test_who_gave_up_waiting_and_asks_again_comes_behind_those_who_came_meanwhile() -> None:
    budget = Budget(10)
    holds, impatient, patient = (Reservation(budget) for _ in range(3))
    assert holds.ask(10)
    assert not impatient.ask(10)
    impatient.release()
    assert not patient.ask(10)
    assert not impatient.ask(10)
    holds.release()
    assert (patient.nbytes, impatient.nbytes) == (10, 0)
    patient.release()
    assert impatient.nbytes == 10


def test_what_a_system_says_of_its_memory_may_be_in_any_encoding(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_bytes(b"Caf\xe9: 5 kB\nMemTotal: 4096 kB\n")
    assert default_budget(tmp_path) == 2048 << 10


# Listening


def _has(family: socket.AddressFamily, host: str) -> bool:
    with suppress(OSError), socket.socket(family) as probe:
        probe.bind((host, 0))
        return True
    return False


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_an_address_with_a_colon_is_one_of_ipv6(host: str, family: socket.AddressFamily) -> None:
    if not _has(family, host):
        pytest.skip("this machine has no such address")
    with open_listener(host, 0) as listener:
        assert listener.family == family
        assert listener.getsockname()[0] == host
