"""Receiving: receives a request for a user's own endpoint, from any framework that has a `Peer`.

`Receiving` has the bounds of one request: its share of the memory of all endpoints, and what `Patience` with its client
is measured by. They are those of the service. Memory is asked for in steps while the JSON header arrives, and all of it
before memory is taken for tensors. A client that is too slow for the memory that it has must make room for others.
Sans-IO: a task (`receive_from`) or a thread of WSGI waits, and does what it says.

The reservation belongs to the received request afterwards, and is given back when that is deleted. Nothing here may
refer to itself, as in `server.frontend`: whoever waits has the `Patience`, which refers to `Receiving`.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import lru_cache
from typing import Final

from streamcodec.engine.errors import ErrorCode, OutOfMemoryError, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, NEED_TURN, HeaderReceived, NeedData, NeedTurn
from streamcodec.formats.v2.model import Event
from streamcodec.http.fed import FedBody
from streamcodec.http.messages import HttpEvent
from streamcodec.server.endpoint import in_shared_pool
from streamcodec.server.looking import looking
from streamcodec.server.options import ServerOptions
from streamcodec.server.patience import Patience, Phase, first_timeout
from streamcodec.server.peer import Peer
from streamcodec.server.sharing import SharedBudget, SharedReservation
from streamcodec.server.waiting import look_for_memory
from streamcodec.service.reception import ReceivedRequest, Reception
from streamcodec.transports import turns
from streamcodec.transports.limited import current_time

READ_TIMEOUT: Final = 30.0
"""Seconds without a byte: a network recovers within that time or not at all."""

MIN_RATE: Final = 1024.0
"""Bytes a second, as of the bundled server."""

_HEADER_TIMEOUT: Final = 60.0


@lru_cache(maxsize=64)
def options_of(timeout: float | None, min_rate: float) -> ServerOptions:
    """Return the limits of time of an endpoint.

    Args:
        timeout: seconds without a byte; None leaves all limits of time to the framework.
        min_rate: bytes a second of tensors, after a first `timeout`.
    """
    if timeout is None:
        return ServerOptions(
            max_memory_bytes=1, header_timeout=math.inf, read_timeout=math.inf, request_timeout=math.inf, min_rate=0.0
        )
    return ServerOptions(
        max_memory_bytes=1,
        header_timeout=max(timeout, _HEADER_TIMEOUT),
        read_timeout=timeout,
        min_rate=min_rate,
    )


class Receiving:
    """One request on its way.

    Attributes:
        body: takes the bytes, and returns the events.
        reservation: the memory of the request.
    """

    request_count = 1

    def __init__(self, reception: Reception, budget: SharedBudget, options: ServerOptions) -> None:
        """Begin before the body.

        Raises:
            LimitExceededError: it takes more memory than there is for all requests.
        """
        self._reception = reception
        self._budget = budget
        self._options = options
        self.body: FedBody = reception.begin()
        self.reservation: SharedReservation = SharedReservation(budget)
        self.reservation.check(reception.least_bytes)
        self.reservation.taken = self._taken
        self.reservation.is_short = True  # it has nothing yet, and asks for a first step

    @property
    def phase(self) -> Phase:
        """What is awaited."""
        return Phase.BODY if self._reception.has_header else Phase.HEADER

    @property
    def received(self) -> int:
        """Bytes that have come."""
        return self.body.received

    @property
    def has_work(self) -> bool:
        """Whether what has come waits to be worked on."""
        return self.body.has_work

    @property
    def has_lost(self) -> bool:
        """Whether it has been too slow while others wait for its memory."""
        return self.reservation.is_lost

    def waits_for_memory(self) -> bool:
        """Whether memory has to come before more of the body is taken.

        Raises:
            LimitExceededError: it takes more than there is for all requests.
        """
        reservation, reception = self.reservation, self._reception
        if reservation.is_short and not reservation.missing:
            reservation.has_room(reception.taken_bytes, reception.memory_bytes)
        return bool(reservation.missing)

    def receive(self, event: HttpEvent) -> ReceivedRequest | None:
        """Take an event of the body; return the request after the last one.

        Raises:
            LimitExceededError: it takes more memory than there is for all requests.
        """
        reception, reservation = self._reception, self.reservation
        request = reception.receive(event)
        if isinstance(event, HeaderReceived):
            reservation.ask(reception.memory_bytes or 0, held=reception.held_bytes)
        if request is None:
            return None
        reservation.taken = None
        return request.holding(self._budget.hold(reservation))

    def end(self) -> None:
        """Give everything back: the request is refused, or given up."""
        self.reservation.release()

    def check_memory(self, *, is_granted: bool) -> None:
        """Refuse a request that has waited too long for memory.

        Raises:
            OutOfMemoryError: it has.
        """
        if not is_granted:
            raise OutOfMemoryError("other requests use all of the memory for requests")

    def too_slow(self) -> RemoteProtocolError:
        """Return the error of a client that has had its time."""
        part = "body" if self._reception.has_header else "JSON header"
        most, least = self._options.read_timeout, self._options.min_rate
        msg = f"the {part} of the request comes too slowly: {most:g} seconds without a byte, or below {least:g} bytes/s"
        if not self.received:
            msg = f"nothing of the body has come within {most:g} seconds, or the server's program has read it before"
        return RemoteProtocolError(msg, code=ErrorCode.TOO_SLOW, status_hint=408)

    def _taken(self) -> int | None:
        return None if self.body.has_work else self._reception.taken_bytes


def whole_bytes(reception: Reception, budget: SharedBudget) -> int | None:
    """Return the bytes of a body that may be received at once; None if it has to be received by its events.

    Raises:
        LimitExceededError: it takes more memory than there is for all requests.
    """
    nbytes = reception.whole_bytes if reception.place is in_shared_pool else None
    if nbytes is not None:
        budget.budget.check(nbytes)
    return nbytes


def receive_at_once(reception: Reception, body: bytes, budget: SharedBudget) -> ReceivedRequest | None:
    """Receive a whole body; None if there is no memory for it now, or if it has to be received by its events."""
    hold, request = budget.hold_at_once(len(body)), None
    if hold is not None:
        try:
            request = reception.receive_whole(body, hold)
        finally:
            if request is None:
                hold.end()
    return request


async def receive_from(
    peer: Peer, reception: Reception, budget: SharedBudget, options: ServerOptions
) -> ReceivedRequest:
    """Receive a request.

    Args:
        peer: brings the body.
        reception: takes it; paced.
        budget: the memory of all requests.
        options: by `options_of`.

    Raises:
        RemoteProtocolError: the request is refused; `too-slow`, or `connection-closed` if the client has left.
        OutOfMemoryError: as above, for want of memory.
    """
    if (length := whole_bytes(reception, budget)) is not None:
        body = await peer.whole(length, first_timeout(options))
        if body is not None and (request := receive_at_once(reception, body, budget)) is not None:
            return request
    receiving = Receiving(reception, budget, options)
    patience = Patience(options, receiving)
    if peer.waited is not None:
        patience.has_waited(*peer.waited)
    try:
        while True:
            if receiving.waits_for_memory():
                is_granted = await look_for_memory(receiving.reservation, options.budget_timeout)
                receiving.check_memory(is_granted=is_granted)
                continue
            event = await _next_event(peer, receiving, patience)
            if event is NEED_TURN:
                await turns.work(receiving.body)
            elif event is NEED_DATA:
                continue
            elif (request := receiving.receive(event)) is not None:
                return request
    except BaseException:
        receiving.end()
        raise


async def _next_event(peer: Peer, receiving: Receiving, patience: Patience) -> Event | NeedData | NeedTurn:
    """Return the next event; `NEED_DATA` if memory is needed before more is taken. See `server.Conversation`."""
    body = receiving.body
    if (event := body.next_event()) is not NEED_DATA:
        return event
    if peer.has_piece:
        await _take_piece(peer, body)
        return body.next_event()
    patience.resume()
    try:
        with suppress(TimeoutError), looking(patience.look):
            while event is NEED_DATA:
                receiving.reservation.begin_to_wait()
                await _take_piece(peer, body)
                event = body.next_event()
                if receiving.reservation.is_short:
                    break
            return event
    finally:
        patience.pause(current_time())
        receiving.reservation.end_to_wait()
    raise receiving.too_slow()


async def _take_piece(peer: Peer, body: FedBody) -> None:
    if turns.is_over():  # a framework that has a piece already need not wait
        await turns.wait()
    try:
        piece = await peer.receive()
    except ConnectionError as error:
        raise RemoteProtocolError(str(error), code=ErrorCode.CONNECTION_CLOSED) from None
    if piece is None:
        body.receive_eof()
    else:
        body.feed(piece)
