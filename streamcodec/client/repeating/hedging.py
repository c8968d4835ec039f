"""Hedging: a second attempt at a call, beside one that is slow. The first answer wins.

Some requests wait behind others, or for a machine that is not well, and most do not. A second request on another
connection then mostly has its answer sooner. The attempt whose answer begins first goes on alone, so only one of them
ever writes to the memory of the outputs; the other is cancelled, and its connection is closed. An attempt that fails
leaves the call to the other one. So does one that a server refuses because it is busy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import copy

import anyio

from streamcodec.client.exchange import ClientExchange
from streamcodec.client.repeating.retries import NOT_RUN

Attempt = Callable[[ClientExchange], Awaitable[object]]
"""Makes an exchange."""


class _Beaten(Exception):  # noqa: N818 - it ends an attempt, and nobody sees it
    """The other attempt has an answer."""


async def hedged(attempt: Attempt, again: Attempt, exchange: ClientExchange, seconds: float) -> Runner:
    """Make an exchange, and another one like it after some time; return the attempt that is answered first.

    Args:
        attempt: makes the exchange.
        again: makes the other one.
        exchange: has not begun.
        seconds: without an answer, before the other one is made.

    Returns:
        The attempt, which may have failed after its answer had begun. The first one, if neither has an answer, or if it
        fails before the other one is made.
    """
    race = _Race(exchange)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(race.run, attempt, race.first)
        with anyio.move_on_after(seconds):
            await race.first.is_decided.wait()
        if not race.first.is_decided.is_set():
            await race.run(again, race.second)
    return race.winner()


class Runner:
    """One attempt.

    Attributes:
        exchange: that it makes. Whether a failed call can be made again is to be seen there, and not on the other one.
    """

    def __init__(self, exchange: ClientExchange) -> None:
        """Begin with an exchange that has not begun."""
        self.exchange = exchange
        self.scope = anyio.CancelScope()
        self.is_decided = anyio.Event()
        """Set when it has an answer, or has failed."""
        self.failure: Exception | None = None

    def result(self) -> ClientExchange:
        """Return the exchange, or raise what has ended it."""
        failure, self.failure = self.failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback refers to this frame
        return self.exchange


class _Race:
    """Two attempts."""

    def __init__(self, exchange: ClientExchange) -> None:
        self.first, self.second = Runner(exchange), Runner(copy(exchange))
        self.second.exchange.forget()  # what it has received is its own from now on
        self._winner: Runner | None = None

    async def run(self, attempt: Attempt, runner: Runner) -> None:
        """Make an attempt; keep its failure."""
        other = self.second if runner is self.first else self.first

        def answered(status: int) -> None:
            if status in NOT_RUN:
                return
            if self._winner is not None:  # both answers have come in one turn of the event loop
                raise _Beaten
            self._winner = runner
            other.scope.cancel()
            runner.is_decided.set()

        runner.exchange.on_answer = answered
        with runner.scope:  # the cancellation stays here, so that no exception refers to the tensors for long
            try:
                await attempt(runner.exchange)
            except Exception as failure:  # noqa: BLE001 - the caller's task raises it
                runner.failure = failure
        runner.is_decided.set()

    def winner(self) -> Runner:
        """Return the attempt that has an answer; the first one if none has."""
        winner = self._winner or self.first
        loser = self.second if winner is self.first else self.first
        loser.failure = None  # its traceback refers to the attempt
        return winner
