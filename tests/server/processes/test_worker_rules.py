"""Workers by themselves: whose thread it is, who has a place, and what is left of work that nobody waits for."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import anyio
import numpy as np
import pytest

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.runtime.models import threads
from streamcodec.runtime.models.workers import NoThreadError, Work, Workers
from streamcodec.runtime.tasks import open_tasks
from streamcodec.service.memory.budget import Budget, Reservation
from tests.waiting import until

LONG = 30.0
"""Seconds that nothing here takes, unless it hangs."""


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs a test on each event loop."""

    def run(test: Callable[[], Awaitable[None]]) -> None:
        async def limited() -> None:
            with anyio.fail_after(LONG):
                await test()

        anyio.run(limited, backend=request.param)

    return run


Run = Callable[[Callable[[], Awaitable[None]]], None]


def _work() -> Work:
    return Work(Reservation(Budget(1000)))


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - of threads, which know no event loop
        await anyio.sleep(0.005)


@contextmanager
def _stuck() -> Iterator[tuple[Callable[[], None], threading.Event, threading.Event]]:
    """Return a function that hangs until the block ends, what tells that it has begun, and what ends it before."""
    began, may_go = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        assert may_go.wait(LONG)

    try:
        yield hang, began, may_go
    finally:
        may_go.set()


def test_a_function_runs_in_another_thread_and_its_result_is_returned(run: Run) -> None:
    async def main() -> None:
        workers, work = Workers(1, 1), _work()
        assert await workers.run(work, threading.get_ident) != threading.get_ident()
        assert (work.has_begun, work.has_ended, workers.busy) == (True, True, 0)
        assert (workers.abandoned, workers.unfinished) == (0, 0)

    run(main)


@pytest.mark.parametrize("error", [ValueError, RuntimeError, MemoryError, OSError])
def test_what_a_function_raises_is_its_own_and_leaves_a_free_place(run: Run, error: type[Exception]) -> None:
    raised = error("its own")

    def fail() -> None:
        raise raised

    async def main() -> None:
        workers = Workers(1, 1)
        with pytest.raises(error) as caught:
            await workers.run(_work(), fail)
        assert caught.value is raised
        assert await workers.run(_work(), lambda: 5) == 5

    run(main)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_would_end_a_program_is_a_failure_of_the_function(run: Run, error: type[BaseException]) -> None:
    def leave() -> None:
        raise error

    async def main() -> None:
        with pytest.raises(RuntimeError, match=f"^a function in a thread raised {error.__name__}$") as caught:
            await Workers(1, 1).run(_work(), leave)
        assert isinstance(caught.value.__cause__, error)

    run(main)


def test_as_many_work_at_once_as_there_are_places_however_many_that_are(run: Run) -> None:
    count = 50  # anyio's own limit is 40
    meeting = threading.Barrier(count)

    async def main() -> None:
        workers = Workers(count, 1)
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(workers.run, _work(), lambda: meeting.wait(LONG))

    run(main)


def test_work_that_is_given_up_is_not_waited_for_and_keeps_its_place_and_memory_until_it_ends(run: Run) -> None:
    async def main() -> None:
        workers, work = Workers(1, 1), _work()
        budget = work.reservation.budget  # which is given away
        assert work.reservation.ask(600)
        given = work.reservation
        with _stuck() as (hang, began, may_go):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(workers.run, work, hang)
                await _until(began.is_set)
                tasks.cancel_scope.cancel()
            assert (workers.abandoned, workers.unfinished, work.has_ended) == (1, 1, False)
            given.release()  # the request is over
            assert (budget.reserved, work.reservation.nbytes) == (600, 600)
            with anyio.move_on_after(0.05) as waiting:
                await workers.run(_work(), int)
            assert waiting.cancelled_caught, "the only place is taken"
            may_go.set()
            await _until(lambda: budget.reserved == 0)
            assert await workers.run(_work(), int) == 0
        assert (workers.abandoned, workers.unfinished) == (1, 0)

    run(main)


def test_work_that_waits_for_a_place_is_given_up_without_a_trace(run: Run) -> None:
    async def main() -> None:
        workers, late = Workers(1, 1), _work()
        async with anyio.create_task_group() as tasks:
            with _stuck() as (hang, began, may_go):
                tasks.start_soon(workers.run, _work(), hang)
                await _until(began.is_set)
                with anyio.move_on_after(0.02):
                    await workers.run(late, int)
                assert (late.has_begun, late.has_ended, workers.waiting) == (False, True, 0)
                may_go.set()
        assert workers.abandoned == 0
        assert await workers.run(_work(), int) == 0

    run(main)


def test_others_work_while_work_waits_and_then_it_waits_for_a_place_again(run: Run) -> None:
    async def main() -> None:
        workers, slow = Workers(1, 1), _work()
        event, order = anyio.Event(), list[str]()

        async def come() -> str:
            order.append("waits")
            await event.wait()
            return "window"

        def wait() -> None:
            assert workers.wait(slow, come) == "window"
            order.append("goes on")
            assert workers.busy == 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workers.run, slow, wait)
            await _until(lambda: bool(order))
            assert workers.busy == 0
            await workers.run(_work(), lambda: order.append("another"))
            with _stuck() as (hang, began, may_go):
                tasks.start_soon(workers.run, _work(), hang)
                await _until(began.is_set)
                event.set()
                await _until(lambda: workers.waiting == 1)
                assert order == ["waits", "another"], "it has come, and there is no place"
                may_go.set()
        assert order == ["waits", "another", "goes on"]

    run(main)


def test_who_waits_for_a_place_has_it_in_turn(run: Run) -> None:
    """A thread that goes on comes between two calls; the thread that hands it the place takes another one."""

    async def main() -> None:
        workers, slow, order = Workers(2, 1), _work(), list[str]()
        event = anyio.Event()

        def wait() -> None:
            workers.wait(slow, event.wait)
            order.append("goes on")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workers.run, slow, wait)
            await _until(lambda: slow.pull is not None)
            with _stuck() as (hang, began, may_go), _stuck() as (hang_too, began_too, _):
                tasks.start_soon(workers.run, _work(), hang)
                tasks.start_soon(workers.run, _work(), hang_too)
                await _until(lambda: began.is_set() and began_too.is_set())
                tasks.start_soon(workers.run, _work(), lambda: order.append("first"))
                await _until(lambda: workers.waiting == 1)
                event.set()
                await _until(lambda: workers.waiting == 2)
                tasks.start_soon(workers.run, _work(), lambda: order.append("last"))
                await _until(lambda: workers.waiting == 3)
                may_go.set()
                await _until(lambda: len(order) == 3)
        assert order == ["first", "goes on", "last"]
        await _until(lambda: workers.busy == 0)

    run(main)


def test_a_thread_whose_work_is_given_up_while_it_waits_is_told_so(run: Run) -> None:
    async def main() -> None:
        workers, work, told = Workers(1, 1), _work(), list[str]()

        def wait() -> None:
            for _ in range(2):
                with pytest.raises(LocalProtocolError) as caught:
                    workers.wait(work, anyio.sleep_forever)
                told.append(str(caught.value))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workers.run, work, wait)
            await _until(lambda: work.pull is not None)
            tasks.cancel_scope.cancel()
        await _until(lambda: work.has_ended)
        assert told == ["the model has not answered in time; its request is over"] * 2
        assert (workers.abandoned, workers.unfinished, workers.busy) == (1, 0, 0)

    run(main)


def test_a_function_has_the_context_of_its_task_and_changes_only_a_copy(run: Run) -> None:
    variable = ContextVar("variable", default="none")

    def look() -> str:
        value = variable.get()
        variable.set("of the thread")
        return value

    async def main() -> None:
        variable.set("of the task")
        workers = Workers(1, 1)
        assert [await workers.run(_work(), look) for _ in range(2)] == ["of the task"] * 2
        assert variable.get() == "of the task"

    run(main)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_function_may_run_an_event_loop_of_its_own(run: Run, backend: str) -> None:
    async def main() -> None:
        assert await Workers(1, 1).run(_work(), partial(anyio.run, anyio.sleep, 0, backend=backend)) is None

    run(main)


def test_nothing_is_kept_of_work_that_has_ended(run: Run) -> None:
    class Held:
        def method(self) -> Held:
            return self

    async def main() -> None:
        workers, works, held = Workers(1, 1), [_work(), _work()], [Held(), Held()]
        references = [weakref.ref(each) for each in held]
        async with anyio.create_task_group() as tasks:
            with _stuck() as (hang, began, _):
                assert await workers.run(works[0], held[0].method) is held[0]
                tasks.start_soon(workers.run, _work(), hang)
                await _until(began.is_set)
                with anyio.move_on_after(0.01):
                    await workers.run(works[1], held[1].method)
                held.clear()
                assert [reference() for reference in references] == [None, None]

    gc.disable()
    try:
        run(main)
    finally:
        gc.enable()


def test_work_given_up_in_an_event_loop_that_has_ended_gives_its_memory_back_in_the_next_one() -> None:
    workers, work = Workers(1, 1), _work()
    budget = work.reservation.budget  # which is given away
    assert work.reservation.ask(600)

    async def give_up(began: threading.Event, hang: Callable[[], None]) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workers.run, work, hang)
            await _until(began.is_set)
            tasks.cancel_scope.cancel()

    with _stuck() as (hang, began, _):
        anyio.run(give_up, began, hang)
        assert (workers.busy, budget.reserved) == (1, 600)
    until(lambda: workers.busy == 0)
    assert anyio.run(workers.run, _work(), partial(int, 5), backend="trio") == 5
    assert budget.reserved == 0


def test_what_a_thread_waits_for_in_vain_is_not_left_to_the_garbage_collector(run: Run) -> None:
    seen: list[weakref.ref[object]] = []

    async def fail() -> None:
        window = np.zeros(1)
        seen.append(weakref.ref(window))
        raise ValueError(window.size)

    async def main() -> None:
        workers, work = Workers(1, 1), _work()

        def wait() -> None:
            with pytest.raises(ValueError, match=r"^1$"):
                workers.wait(work, fail)

        gc.disable()
        try:
            await workers.run(work, wait)
            assert seen[0]() is None
        finally:
            gc.enable()

    run(main)


def test_who_may_wait_is_counted_once_however_often_it_enters_or_leaves(run: Run) -> None:
    async def main() -> None:
        workers = Workers(8, 2)
        workers.leave("nobody")
        workers.enter("a")
        workers.enter("b")
        with pytest.raises(NoThreadError, match=r"^the maximum number of requests that send windows is reached$"):
            workers.enter("c")
        workers.leave("a")
        workers.leave("a")
        workers.enter("c")
        with pytest.raises(NoThreadError):
            workers.enter("a")

    run(main)


def test_if_no_thread_can_be_started_the_function_is_not_called(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    error: BaseException = RuntimeError("can't start new thread")

    def fail(_: object) -> None:
        raise error

    async def main() -> None:
        nonlocal error
        workers, calls = Workers(1, 1), list[int]()
        with monkeypatch.context() as broken:
            broken.setattr(threads, "_Worker", fail)
            broken.setattr(threads, "_IDLE", [])
            with pytest.raises(NoThreadError, match=r"^no thread for the model can be started$"):
                await workers.run(_work(), lambda: calls.append(1))
            error = MemoryError()
            with pytest.raises(NoThreadError):
                await workers.run(_work(), lambda: calls.append(2))
            error = KeyboardInterrupt()
            with pytest.raises(KeyboardInterrupt):
                await workers.run(_work(), lambda: calls.append(2))
        assert (calls, workers.busy, workers.waiting, workers.abandoned) == ([], 0, 0, 0)
        await workers.run(_work(), lambda: calls.append(3))
        assert calls == [3]

    run(main)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_threads_that_wait_for_windows_go_on_if_no_other_can_be_started(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Two threads have one place, and what they wait for comes at once: one of them needs the place of the other."""
    ended, waiting, have_come = list[str](), 0, anyio.Event()

    def fail(_: object) -> None:
        raise error

    async def come() -> None:
        nonlocal waiting, have_come
        waiting += 1
        if waiting % 2:
            await have_come.wait()
            return
        monkeypatch.setattr(threads, "_Worker", fail)
        have_come.set()
        have_come = anyio.Event()

    async def main() -> None:
        workers = Workers(1, 2)

        def take(work: Work, name: str) -> None:
            for _ in range(20):
                workers.wait(work, come)
            ended.append(name)

        async with anyio.create_task_group() as tasks:
            for name in ("a", "b"):
                work = _work()
                tasks.start_soon(workers.run, work, partial(take, work, name))
        assert (sorted(ended), workers.busy, workers.waiting) == (["a", "b"], 0, 0)

    monkeypatch.setattr(threads, "_IDLE", [])
    run(main)


# Tasks


def test_no_memory_for_one_task_ends_no_other_and_the_block_ends_when_all_have(run: Run) -> None:
    async def main() -> None:
        ended: list[str] = []

        async def fail() -> None:
            raise MemoryError

        async def go_on() -> None:
            await anyio.sleep(0.02)
            ended.append("went on")

        async with open_tasks() as tasks:
            tasks.start_soon(fail)
            tasks.start_soon(go_on)
        assert ended == ["went on"]

    run(main)


def test_tasks_that_go_on_are_cancelled_when_their_time_is_over_and_others_are_not(run: Run) -> None:
    async def main() -> None:
        ended: list[str] = []

        async def work(name: str, seconds: float) -> None:
            try:
                await anyio.sleep(seconds)
                ended.append(name)
            except anyio.get_cancelled_exc_class():
                ended.append(f"{name} was cancelled")
                raise

        async with open_tasks() as tasks:
            tasks.start_soon(work, "short", 0.0)
            tasks.start_soon(work, "long", 2 * LONG)
            await _until(lambda: bool(ended))
            tasks.end_within(0.05)
        assert ended == ["short", "long was cancelled"]

    run(main)


def test_tasks_end_with_the_block_that_is_cancelled(run: Run) -> None:
    async def main() -> None:
        order: list[str] = []

        async def work() -> None:
            order.append("begun")
            try:
                await anyio.sleep(2 * LONG)
            finally:
                order.append("ended")

        with anyio.CancelScope() as scope:
            async with open_tasks() as tasks:
                tasks.start_soon(work)
                tasks.start_soon(work)
                await _until(lambda: len(order) == 2)
                scope.cancel()
        assert order == ["begun", "begun", "ended", "ended"]

    run(main)
