"""Workers by themselves: whose thread it is, who has a place, and what is left of work that nobody waits for."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import numpy as np
import pytest
from anyio.lowlevel import checkpoint

from streamcodec.server.tasks import open_tasks
from streamcodec.server.workers import NoThreadError, Work, Workers
from streamcodec.service.budget import Budget, Reservation

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
        assert (work.has_begun, work.has_ended, work.has_place) == (True, True, False)
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


def test_as_many_work_at_once_as_there_are_places_however_many_threads_anyio_would_give(run: Run) -> None:
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
        budget = work.reservation._budget  # noqa: SLF001 - which is given away
        assert work.reservation.ask(600)
        given = work.reservation
        async with open_tasks() as workers.watchers:
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
                assert (late.has_begun, late.has_place) == (False, False)
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

        async def wait() -> None:
            assert await anyio.to_thread.run_sync(workers.wait, slow, come) == "window"
            order.append("goes on")
            assert slow.has_place

        await workers._take_place(slow)  # noqa: SLF001 - as `run` does
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await _until(lambda: not slow.has_place)
            await workers.run(_work(), lambda: order.append("another"))
            with _stuck() as (hang, began, may_go):
                tasks.start_soon(workers.run, _work(), hang)
                await _until(began.is_set)
                event.set()
                for _ in range(10):
                    await checkpoint()
                assert order == ["waits", "another"], "it has come, and there is no place"
                may_go.set()
        assert order == ["waits", "another", "goes on"]

    run(main)


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


def test_work_that_was_given_up_before_its_thread_has_begun_never_begins() -> None:
    work, calls = _work(), list[int]()
    assert not work.give_up()
    work.run(lambda: calls.append(1))
    assert (calls, work.has_begun, work.take()) == ([], False, None)


def test_work_goes_on_from_its_first_line_to_its_last() -> None:
    work, seen = _work(), list[bool]()
    work.run(lambda: seen.append(work.give_up()))
    assert seen == [True]
    assert not work.give_up()


def test_the_result_is_there_once_unless_the_work_was_given_up() -> None:
    work = _work()
    work.run(lambda: 5)
    assert (work.take(), work.take()) == (5, None)
    work = _work()
    work.run(lambda: 5)
    work.give_up()
    assert work.take() is None
    work = _work()
    work.run(lambda: str(work.give_up()))
    assert work.take() is None


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
