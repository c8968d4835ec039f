"""Threads: they are used again, end when they have nothing to do, and wake event loops as seldom as possible."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from streamcodec.runtime.models import threads
from streamcodec.runtime.models.threads import Mailbox, current_loop, run_in_thread
from tests.waiting import until

SECONDS = 60.0


@pytest.fixture(autouse=True)
def no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_IDLE", [])


def _idle() -> int:
    return len(threads._IDLE)  # noqa: SLF001 - nothing else tells


def _thread_of_a_call() -> int | None:
    found: list[int | None] = []
    run_in_thread(lambda: found.append(threading.get_ident()))
    until(lambda: _idle() > 0)
    return found[0]


def test_an_idle_thread_is_used_again() -> None:
    assert _thread_of_a_call() == _thread_of_a_call() != threading.get_ident()
    assert _idle() == 1


def test_a_function_never_waits_for_another() -> None:
    meeting = threading.Barrier(5)
    for _ in range(4):
        run_in_thread(lambda: meeting.wait(SECONDS))
    meeting.wait(SECONDS)
    until(lambda: _idle() == 4)


def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.01)
    run_in_thread(int)
    until(lambda: (_idle(), threading.active_count()) == (0, before))


def test_a_function_that_comes_when_a_thread_is_about_to_end_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(list[object]):
        """Idle threads, of which one is taken at the moment in which it leaves."""

        def remove(self, worker: object) -> None:
            super().remove(worker)
            called_late.append(worker)
            raise ValueError

    called_late: list[object] = []
    monkeypatch.setattr(threads, "_IDLE", Late())
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.01)
    run_in_thread(int)
    until(lambda: bool(called_late))
    monkeypatch.setattr(threads, "_IDLE", called_late)
    monkeypatch.setattr(threads, "IDLE_SECONDS", SECONDS)
    ran = threading.Event()
    run_in_thread(ran.set)
    assert ran.wait(SECONDS)


def test_a_forked_process_has_threads_of_its_own_and_a_function_that_hangs_keeps_it_from_nothing() -> None:
    code = """
import os, sys, time, threading
from streamcodec.runtime.models import threads
ran = threading.Event()
threads.run_in_thread(ran.set)
ran.wait()
while not threads._IDLE:
    time.sleep(0.001)
child = os.fork()
ran.clear()
threads.run_in_thread(ran.set)
assert ran.wait(60)
if child:
    assert os.waitpid(child, 0)[1] == 0
threads.run_in_thread(lambda: time.sleep(3600))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=SECONDS)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_comes_from_threads_is_brought_in_order_by_one_wake(backend: str) -> None:
    async def main() -> None:
        mailbox, event, order, wakes = Mailbox(current_loop()), anyio.Event(), list[int](), list[int]()
        wake = mailbox._call_soon  # noqa: SLF001 - to count

        def call_soon(function: Callable[[], object]) -> None:
            wakes.append(1)
            wake(function)

        mailbox._call_soon = call_soon  # type: ignore[assignment] # noqa: SLF001 - a simple one
        put = threading.Event()

        def fill() -> None:
            for number in range(100):
                mailbox.put(lambda number=number: order.append(number))  # type: ignore[misc] # of a default
            mailbox.put(event.set)
            put.set()

        for count in (1, 2):
            run_in_thread(fill)
            assert put.wait(SECONDS)  # while the event loop does nothing
            await event.wait()
            assert (order, len(wakes)) == ([*range(100)] * count, count)
            event, put = anyio.Event(), threading.Event()

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_without_memory_for_the_wake_it_is_tried_again(backend: str) -> None:
    async def main() -> None:
        mailbox, event, tries = Mailbox(current_loop()), anyio.Event(), list[int]()
        wake = mailbox._call_soon  # noqa: SLF001 - what fails

        def call_soon(function: Callable[[], object]) -> None:
            tries.append(1)
            if len(tries) < 4:
                raise MemoryError
            wake(function)

        mailbox._call_soon = call_soon  # type: ignore[assignment] # noqa: SLF001 - a simple one
        run_in_thread(lambda: mailbox.put(event.set))
        with anyio.fail_after(SECONDS):
            await event.wait()
        assert len(tries) == 4

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_event_loop_that_has_ended_is_not_woken(backend: str) -> None:
    async def mailbox() -> Mailbox:
        return Mailbox(current_loop())

    ended, called = anyio.run(mailbox, backend=backend), list[int]()
    for _ in range(2):
        ended.put(lambda: called.append(1))
    assert called == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_event_may_come_when_nobody_waits_any_more(backend: str) -> None:
    async def main() -> None:
        mailbox = Mailbox(current_loop())
        event = mailbox.event()
        with anyio.move_on_after(0):
            await event.wait()
        event.set()
        await anyio.lowlevel.checkpoint()

    anyio.run(main, backend=backend)


def test_each_event_loop_is_told_from_others() -> None:
    async def loops() -> tuple[object, bool]:
        return current_loop(), current_loop() is asyncio.get_running_loop()

    first, is_known = asyncio.run(loops())
    assert is_known
    assert first is not asyncio.run(loops())[0]
