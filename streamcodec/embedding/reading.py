"""Reading: a task brings the body of a request from a framework, and waits for it: for pieces, for memory, for turns.

It does what a `FrameworkRequest` says. A thread of WSGI does the same in `wsgi.reading`.

A wait for a client must not be cancelled and begun again for each look at the time: a framework may then lose the piece
that it was about to hand over. granian does, and the upload is never complete. So a task that waits is left alone until
its time is over, and is cancelled only then. The looks are made by a timer of the event loop. trio has no timers;
there, one task looks for all waits, and ends at the first look for which nobody waits. A task for each wait took 50 us,
a third of a small request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final, Protocol, TypeVar, cast

import anyio
from anyio.lowlevel import RunVar

from streamcodec.embedding.request import FrameworkRequest, Step
from streamcodec.engine.events import NEED_DATA, NEED_TURN
from streamcodec.engine.receiving import Buffer
from streamcodec.formats.v2.model import Event
from streamcodec.http.bodies.fed import FedBody
from streamcodec.runtime.memory.waiting import wait_for_memory
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.timeouts import Look, ReadTimeout
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.request.exchange import ExchangeStep
from streamcodec.transports import turns
from streamcodec.transports.limited import current_time


class Peer(Protocol):
    """One request of a framework.

    Attributes:
        is_decoded: whether the framework decompresses bodies.
        can_close: whether `Connection: close` means something to the client: not in HTTP/2.
        waited: from when to when `whole` has waited; None if it did not, or was not called.
        has_piece: whether a piece has come that `receive` returns without waiting.
    """

    is_decoded: bool
    can_close: bool
    waited: tuple[float, float] | None
    has_piece: bool

    async def whole(self, length: int, seconds: float) -> bytes | None:
        """Return the body, if the first piece is all of it; `receive` returns what has come once more.

        Args:
            length: of the body, as its head says.
            seconds: how long to wait for the first piece. If it has not come by then, `receive` raises `TimeoutError`.

        Returns:
            The body; None if it has to be received in pieces.
        """
        ...

    async def receive(self) -> Buffer | None:
        """Return the next piece of the body, an empty one if nothing has come; None at its end.

        Raises:
            ConnectionError: the client has left.
        """
        ...

    async def gone(self) -> None:
        """Wait until the client has left. Called after the end of the body, and cancelled when the answer exists."""
        ...

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Begin the answer."""
        ...

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer; it belongs to the framework then. Wait until the client can take more."""
        ...


_T = TypeVar("_T")


class TaskReader:
    """Reads one request."""

    def __init__(
        self,
        request: FrameworkRequest,
        peer: Peer,
        options: ServerOptions,
        wait: Callable[[Reservation, float], Awaitable[bool]] = wait_for_memory,
    ) -> None:
        """Begin after the head.

        Args:
            request: says what comes next.
            peer: brings the body.
            options: the limits of time.
            wait: waits for memory.
        """
        self._request = request
        self._peer = peer
        self._wait = wait
        self._budget_timeout = options.budget_timeout
        self._patience = ReadTimeout(options, request)
        if peer.waited is not None:
            self._patience.has_waited(*peer.waited)

    async def next_step(self) -> Step:
        """Return `CALL` or `ANSWER`.

        Raises:
            MessageError: the request is refused: `too-slow`, or another error.
        """
        request = self._request
        while (step := await self._until(request.next_step)) is ExchangeStep.WAIT:
            request.granted(has_come=await self._wait(request.reservation, self._budget_timeout))
        return step

    async def next_event(self) -> Event:
        """Return the next event of the body, for a model that takes windows.

        Raises:
            RemoteProtocolError: the request breaks a rule, or comes too slowly.
        """
        return cast("Event", await self._until(self._body.next_event))

    @property
    def _body(self) -> FedBody:
        return cast("FedBody", self._request.body)

    async def _until(self, go_on: Callable[[], _T]) -> _T:
        """Read and work until there is something else to do, and return that."""
        found = go_on()
        while True:
            if found is NEED_DATA:
                found = await self._read(go_on)
            elif found is NEED_TURN:
                await turns.work(self._body)
                found = go_on()
            else:
                return found

    async def _read(self, go_on: Callable[[], _T]) -> _T:
        """Take pieces until something else comes next.

        One limit of time holds for all pieces that come meanwhile, because a limit for each would cost more than to
        take a piece: it took half of the time of a body in pieces of 64 KiB. A wait for a piece is cancelled only when
        the request is over: the framework could lose that piece.

        Raises:
            RemoteProtocolError: `too-slow`.
        """
        patience, reservation = self._patience, self._request.reservation
        if self._peer.has_piece:
            await self._take_piece()
            return go_on()
        patience.resume()
        try:
            with suppress(TimeoutError), looking(patience.look):
                while True:
                    reservation.begin_to_wait()
                    await self._take_piece()
                    found = go_on()
                    if found is not NEED_DATA:
                        return found
        finally:
            patience.pause(current_time())
            reservation.end_to_wait()
        raise self._request.too_slow()

    async def _take_piece(self) -> None:
        if turns.is_over():  # a framework that has a piece already need not wait
            await turns.wait()
        try:
            piece = await self._peer.receive()
        except ConnectionError as error:
            self._request.lost(error)
            return
        if piece is None:
            self._body.receive_eof()
        elif len(piece):
            self._body.feed(piece)


@contextmanager
def looking(look: Look) -> Iterator[None]:
    """Leave a block early if its time is over: a wait within it is cancelled then, and not before.

    Raises:
        TimeoutError: the time is over before the block begins.
    """
    now = anyio.current_time()
    seconds = look(now)
    with anyio.CancelScope() as scope:
        looks = _Looks(look, scope)
        try:
            end = looks.begin_timer(asyncio.get_running_loop(), seconds)
        except RuntimeError:
            if (looker := _LOOKER.get(None)) is None:  # that of this event loop
                _LOOKER.set(looker := _Looker())
            end = looker.add(looks, now + seconds)
        try:
            yield
        finally:
            end()


class _Looks:
    """The looks beside one block."""

    _timer: asyncio.TimerHandle

    def __init__(self, look: Look, scope: anyio.CancelScope) -> None:
        self._look = look
        self._scope = scope

    def begin_timer(self, loop: asyncio.AbstractEventLoop, seconds: float) -> Callable[[], object]:
        """Look in so many seconds, and then whenever it is due; return what ends that."""
        self._timer = loop.call_later(seconds, self._look_by_timer, loop)
        return self._end_timer

    def seconds(self, now: float) -> float | None:
        """Look, and return the seconds until the next look; None if the time is over."""
        try:
            return self._look(now)
        except TimeoutError:
            self._scope.cancel()
            return None

    def _look_by_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if (seconds := self.seconds(loop.time())) is not None:  # anyio tells the time only in a task
            self.begin_timer(loop, seconds)

    def _end_timer(self) -> None:
        self._timer.cancel()


class _Looker:
    """Looks for all waits of an event loop of trio."""

    _sleep: anyio.CancelScope

    def __init__(self) -> None:
        self._due: dict[_Looks, float] = {}
        self._is_running = False

    def add(self, looks: _Looks, due: float) -> Callable[[], object]:
        """Look at this time, and then whenever it is due; return what ends that."""
        self._due[looks] = due
        if not self._is_running:
            self._is_running = True
            self._sleep = anyio.CancelScope(deadline=due)
            sys.modules["trio"].lowlevel.spawn_system_task(self._run)  # it is there, because it runs this
        elif due < self._sleep.deadline:
            self._sleep.deadline = due
        return partial(self._due.pop, looks, None)

    async def _run(self) -> None:
        while self._due:
            with self._sleep:
                await anyio.sleep_forever()
            now = anyio.current_time()
            for looks in [looks for looks, due in self._due.items() if due <= now]:
                if (seconds := looks.seconds(now)) is None:
                    del self._due[looks]
                else:
                    self._due[looks] = now + seconds
            self._sleep = anyio.CancelScope(deadline=min(self._due.values(), default=now))
        self._is_running = False


_LOOKER: Final = RunVar[_Looker]("_LOOKER")
