"""Reading: a task brings the body of a request from a framework, and waits for it: for pieces, for memory, for turns.

It does what a `FrameworkRequest` says. A thread of WSGI does the same in `wsgi.reading`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar, cast

from streamcodec.embedding.looking import looking
from streamcodec.embedding.peer import Peer
from streamcodec.embedding.request import FrameworkRequest, Step, next_event
from streamcodec.formats.v2.model import Event
from streamcodec.http.bodies.fed import FedBody
from streamcodec.runtime.memory.waiting import wait_for_memory
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.timeouts import ReadTimeout
from streamcodec.service.memory.budget import Reservation
from streamcodec.transports import turns
from streamcodec.transports.limited import current_time

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
        """Return `CALL` or `END`.

        Raises:
            MessageError: the request is refused: `too-slow`, or another error.
        """
        request = self._request
        while (step := await self._until(request.next_step)) is Step.WAIT:
            request.granted(has_come=await self._wait(request.reservation, self._budget_timeout))
        return step

    async def next_event(self) -> Event:
        """Return the next event of the body, for a model that takes windows.

        Raises:
            RemoteProtocolError: the request breaks a rule, or comes too slowly.
        """
        body = self._body
        return cast("Event", await self._until(lambda: next_event(body)))

    @property
    def _body(self) -> FedBody:
        return cast("FedBody", self._request.body)

    async def _until(self, go_on: Callable[[], _T]) -> _T:
        """Read and work until there is something else to do, and return that."""
        found = go_on()
        while True:
            if found is Step.READ:
                found = await self._read(go_on)
            elif found is Step.WORK:
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
                    if found is not Step.READ:
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
