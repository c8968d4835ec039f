"""What endures a shortage of memory that is met outside of any request: event loops, tasks, accepting."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import anyio
import pytest

from streamcodec.runtime.memory.available import MemoryLeft
from streamcodec.runtime.tasks import open_tasks
from streamcodec.server import open_listener
from streamcodec.server.processes import loops
from streamcodec.server.processes.loops import new_loop
from streamcodec.server.sockets import accepting
from streamcodec.server.sockets.accepting import accept_connections
from streamcodec.service import demo_models
from tests.server.programs import ROOT, server_here
from tests.server.wire import GET_LIVE, Wire

STRIDE = 37
"""One allocation in so many is tried here; `python -m tests.server.live_shortage LOOP NAME 1` tries all."""

BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@pytest.mark.slow
@pytest.mark.skipif(find_spec("_testcapi") is None, reason="this interpreter has no way to let allocations fail")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("name", ["health", "small"])
def test_no_allocation_that_fails_ends_the_server(loop: str, name: str) -> None:
    command = [sys.executable, "-m", "tests.server.live_shortage", loop, name, str(STRIDE)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    result = json.loads(run.stdout)
    found = result["found"]
    assert found.pop(result["expected"]) > 0
    # What is silent has lost its event loop's call, and ends with `idle_timeout`.
    assert {outcome.partition(", and")[0] for outcome in found} <= {"503", "closed", "silent", "200"}, result


class Scarce:
    """Lets its first calls fail."""

    def __init__(self, function: Callable[..., Any], count: int = 1) -> None:
        self.function = function
        self.left = count

    def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - anything
        self.left -= 1
        if self.left >= 0:
            raise MemoryError
        return self.function(*arguments, **options)


def test_a_turn_of_the_event_loop_without_memory_is_not_its_last(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = new_loop(is_uvloop=False)
    selector = loop._selector  # type: ignore[attr-defined]  # noqa: SLF001 - what fails is inside
    scarce = Scarce(selector.select, count=3)
    monkeypatch.setattr(selector, "select", scarce)
    try:
        assert loop.run_until_complete(asyncio.sleep(0.001, "result")) == "result"
        assert scarce.left < 0
    finally:
        loop.close()


def test_an_event_loop_that_was_told_to_stop_does_so_whatever_its_last_turn_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = new_loop(is_uvloop=False)

    def fail(*_: object) -> None:
        loop.stop()
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(loop._selector, "select", fail)  # type: ignore[attr-defined]  # noqa: SLF001 - as before
        loop.run_forever()
    loop.close()


@pytest.mark.parametrize("is_uvloop", [False, True])
def test_it_is_an_event_loop_like_any_other(is_uvloop: bool) -> None:
    async def main() -> str:
        await asyncio.sleep(0.001)
        return type(asyncio.get_running_loop()).__mro__[2].__module__.partition(".")[0]

    options = {"loop_factory": partial(new_loop, is_uvloop=is_uvloop)}
    assert anyio.run(main, backend_options=options) == ("uvloop" if is_uvloop else "asyncio")


@pytest.mark.parametrize(("nbytes", "is_address_space"), [(1 << 20, True), (1 << 30, True), (1 << 20, False)])
def test_uvloop_is_not_used_where_little_address_space_is_left(
    monkeypatch: pytest.MonkeyPatch, nbytes: int, is_address_space: bool
) -> None:
    left = MemoryLeft(nbytes=nbytes, limit_bytes=0, own_bytes=0, is_address_space=is_address_space)
    monkeypatch.setattr(loops, "memory_left", lambda: left)
    loop = new_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop) is (nbytes == 1 << 20 and is_address_space)
    loop.close()


@BACKENDS
def test_a_task_that_fails_for_want_of_memory_ends_alone(backend: str) -> None:
    ended: list[str] = []

    async def fail() -> None:
        raise MemoryError

    async def go_on(name: str) -> None:
        await anyio.sleep(0.02)
        ended.append(name)

    async def main() -> None:
        async with open_tasks() as tasks:
            tasks.start_soon(go_on, "one")
            tasks.start_soon(fail)
            tasks.start_soon(go_on, "other")

    anyio.run(main, backend=backend)
    assert sorted(ended) == ["one", "other"]


@BACKENDS
def test_tasks_are_cancelled_by_their_time_or_with_whoever_waits_for_them(backend: str) -> None:
    ended: list[str] = []

    async def stay(name: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            assert anyio.current_effective_deadline() < 0  # which is how a driver knows
            ended.append(name)

    async def main() -> None:
        async with open_tasks() as tasks:
            tasks.start_soon(stay, "by time")
            await anyio.sleep(0.01)
            tasks.end_within(0.01)
        with anyio.move_on_after(0.02):
            async with open_tasks() as tasks:
                tasks.start_soon(stay, "with its group")

    anyio.run(main, backend=backend)
    assert ended == ["by time", "with its group"]


@pytest.mark.parametrize("backend", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("error", [MemoryError(), OSError(24, "Too many open files")], ids=["memory", "descriptors"])
def test_accepting_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, backend: str, error: BaseException
) -> None:
    caplog.set_level(logging.CRITICAL)

    class Listener(socket.socket):
        left = 3

        def accept(self) -> tuple[socket.socket, Any]:
            self.left -= 1
            if self.left >= 0:
                raise error
            return super().accept()

    monkeypatch.setattr(accepting, "_RENEWAL_SECONDS", 0.01)
    with open_listener("127.0.0.1", 0) as original:
        listener = Listener(fileno=original.detach())
    with server_here(demo_models(), backend=backend, listener=listener) as (_, address), Wire(address) as wire:
        assert wire.send(GET_LIVE).response().status == 200
    assert listener.left < 0


def test_a_connection_that_there_is_no_task_for_is_closed() -> None:
    begun: list[socket.socket] = []
    begin = Scarce(begun.append)

    async def main() -> None:
        with open_listener("127.0.0.1", 0) as listener:
            listener.setblocking(False)
            address = listener.getsockname()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(accept_connections, listener, begin, lambda: 0)
                with Wire(address) as one, Wire(address):
                    assert await anyio.to_thread.run_sync(one.is_closed)
                    while not begun:  # noqa: ASYNC110 - it is not told
                        await anyio.sleep(0.001)
                tasks.cancel_scope.cancel()

    anyio.run(main)
    begun[0].close()
