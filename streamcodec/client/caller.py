"""Caller: exchanges requests for their answers; all that both clients do, written once.

It takes a place and a connection from the pool, begins the exchange, and gives both back at the end. How to wait is the
business of `Waits`: a thread is blocked, or a task lets others run. A small request is sent by one call of the system,
and its answer mostly comes with one read. Then the exchange takes the answer as a whole. Everything else goes event by
event.

In a thread, nothing here ever suspends: the methods are coroutines that `run` brings to their end at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from streamcodec.client.common import Common
from streamcodec.client.connections.address import Address
from streamcodec.client.connections.connection import Connection
from streamcodec.client.connections.reaching import reaching
from streamcodec.client.connections.timeouts import Times
from streamcodec.client.exchange import ClientExchange
from streamcodec.client.lane.opening import send_opening
from streamcodec.client.lane.tensors import MemoryLane
from streamcodec.client.repeating.hedging import hedged
from streamcodec.client.repeating.retries import ONCE, Retries
from streamcodec.engine.errors import MessageError
from streamcodec.engine.message import Part
from streamcodec.formats.v2.model import Event
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.transports.timelimit import TimeLimit
from streamcodec.transports.tls.sockets import Socket

T = TypeVar("T")


class ClientDuplex(Protocol):
    """Sends one request while its answer is read; see `transports.duplex`."""

    lost: ConnectionError | None
    is_sent: bool

    @property
    def sent(self) -> int:
        """Bytes that the operating system has taken."""
        ...

    def send_at_once(self) -> bool:
        """Send as much as possible without waiting; return whether that is all."""
        ...

    def stop_sending(self) -> None:
        """Send nothing more."""
        ...

    def sending(self) -> AbstractAsyncContextManager[None]:
        """Send the rest while the block reads."""
        ...

    async def read(self) -> None:
        """Wait, and read once."""
        ...

    async def event(self) -> HttpEvent:
        """Return the next event of the answer."""
        ...


class Waits(Protocol):
    """Waits, in a thread or in a task."""

    shares_thread: bool
    """Whether others wait while this call computes."""

    def new_event(self) -> Any:  # noqa: ANN401 - of its own kind
        """Make what the pool sets for a call that has waited for a place."""
        ...

    async def has_come(self, event: Any, seconds: float | None) -> bool:  # noqa: ANN401 - of `new_event`
        """Wait for an event; return whether it has come in time."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    async def apart(self, function: Callable[[], T], limit: TimeLimit) -> T:
        """Return what a function returns that takes long."""
        ...

    async def connect(self, address: Address, times: Times) -> Socket:
        """Open a connection, with TLS if that is wanted."""
        ...

    def duplex(self, connection: Connection, parts: list[Part], times: Times) -> ClientDuplex:
        """Prepare to send the parts of a request."""
        ...


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Bring a coroutine to its end that never suspends, and return its result.

    Raises:
        RuntimeError: it has suspended.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("the coroutine waits for an event loop")


class Caller:
    """Makes the calls of one client."""

    def __init__(self, common: Common, waits: Waits) -> None:
        """Work for one client."""
        self._common = common
        self._waits = waits

    async def call(self, exchange: ClientExchange, times: Times, retries: Retries = ONCE) -> ClientExchange:
        """Send a request, and keep what the answer has for the result; several times, as `retries` permit.

        Returns:
            The exchange, or one like it that was answered sooner.

        Raises:
            ServerError: the answer is one.
            TimeoutError: it took too long.
            OSError: the connection could not be made, or broke.
            MessageError: the answer breaks a rule.
        """
        failures = 0
        exchange.is_idempotent = retries.is_idempotent
        while True:
            if not self._common.pool.enter_at_once():  # as it mostly can
                await self.enter(times)
            try:
                if retries.hedge is None or not exchange.may_be_hedged:
                    return await self._attempt(exchange, times)
                attempt, again = partial(self._attempt, times=times), partial(self._beside, times=times)
                winner = await hedged(attempt, again, exchange, retries.hedge)
                exchange = winner.exchange  # a failure is judged by this one
                return winner.result()
            except (OSError, MessageError) as error:
                failures += 1
                seconds = retries.pause(exchange, error, failures, times)
                if seconds is None:
                    raise
            exchange.forget()
            await self._waits.sleep(seconds)

    async def _attempt(self, exchange: ClientExchange, times: Times) -> ClientExchange:
        """Make a call once, in the place that it has entered; leave the place."""
        try:
            kept = self._common.take_kept()
            if kept is None or not await self._perform(kept, exchange, times):
                await self._perform(await self._connect_for_call(times), exchange, times)
        finally:
            self._common.pool.leave()
        exchange.check_status()
        return exchange

    async def _beside(self, exchange: ClientExchange, times: Times) -> None:
        """Make a call beside another one, in a place of its own."""
        await self.enter(times)
        await self._attempt(exchange, times)

    @asynccontextmanager
    async def events(self, exchange: ClientExchange, times: Times) -> AsyncIterator[AsyncIterator[Event]]:
        """Send a request, and yield the events of its answer.

        On a kept connection, this waits for the first bytes of the answer, because the connection may have died.
        """
        async with self.place(times):
            for kept in (self._common.take_kept(), None):
                connection = kept or await self._connect_for_call(times)
                async with self._sending(connection, exchange, times) as duplex:
                    first: HttpEvent | None = None
                    if connection.is_kept and exchange.is_repeatable:
                        try:
                            first = await duplex.event()
                        except (ConnectionError, MessageError) as error:
                            if connection.may_have_died(exchange, error):
                                continue
                            raise connection.failure(exchange, error, duplex.lost) from None
                    async with aclosing(self._events(connection, exchange, duplex, times, first)) as events:
                        yield events
                    return

    @asynccontextmanager
    async def place(self, times: Times) -> AsyncIterator[None]:
        """Hold a place in the pool.

        Raises:
            TimeoutError: none was free in time.
        """
        await self.enter(times)
        try:
            yield
        finally:
            self._common.pool.leave()

    async def enter(self, times: Times) -> None:
        """Take a place in the pool, which the caller leaves.

        Raises:
            TimeoutError: none was free in time.
        """
        pool = self._common.pool
        waiter = pool.enter(self._waits.new_event)
        if waiter is None:
            return
        has_come = False
        try:
            has_come = await self._waits.has_come(waiter, times.limit.at_most(times.timeout.pool))
        finally:
            if not has_come:
                pool.give_up(waiter)
        if not has_come:
            raise self._common.no_place(times)

    async def connect(self, times: Times) -> Connection:
        """Open a connection; the caller holds a place for it.

        Raises:
            TimeoutError: it took too long.
            OSError: the server cannot be reached.
        """
        address = self._common.address
        with reaching(address, times):
            sock = await self._waits.connect(address, times)
        return self._common.connection(sock, is_paced=self._waits.shares_thread)

    async def _perform(self, connection: Connection, exchange: ClientExchange, times: Times) -> bool:
        """Make an exchange on a connection; return whether it was made. Else the connection has died before."""
        duplex: ClientDuplex | None = None
        try:
            parts = connection.start(exchange)
            duplex = connection.sending = self._waits.duplex(connection, parts, times)
            try:
                if duplex.send_at_once():
                    await duplex.read()
                    if exchange.take_whole(connection.http):
                        return True
                async with duplex.sending():
                    while not exchange.has_ended:
                        event = exchange.receive(connection.http, await duplex.event())
                        if not exchange.is_success:
                            duplex.stop_sending()
                        if event is not None:
                            exchange.keep(event)
            except (ConnectionError, MessageError) as error:
                if connection.may_have_died(exchange, error):
                    exchange.forget()
                    return False
                raise connection.failure(exchange, error, duplex.lost) from None
            return True
        finally:
            self._common.give_back(connection, exchange, is_sent=duplex is not None and duplex.is_sent)

    @asynccontextmanager
    async def _sending(
        self, connection: Connection, exchange: ClientExchange, times: Times
    ) -> AsyncIterator[ClientDuplex]:
        """Begin an exchange on a connection, send while the block reads, and give the connection back at the end."""
        duplex: ClientDuplex | None = None
        try:
            parts = connection.start(exchange)
            duplex = connection.sending = self._waits.duplex(connection, parts, times)
            async with duplex.sending():
                yield duplex
        finally:
            self._common.give_back(connection, exchange, is_sent=duplex is not None and duplex.is_sent)

    async def _events(
        self,
        connection: Connection,
        exchange: ClientExchange,
        duplex: ClientDuplex,
        times: Times,
        first: HttpEvent | None,
    ) -> AsyncGenerator[Event, None]:
        try:
            while not exchange.has_ended:
                http_event, first = (await duplex.event() if first is None else first), None
                event = exchange.receive(connection.http, http_event)
                if not exchange.is_success:
                    duplex.stop_sending()
                if event is not None:
                    with times.limit.paused():
                        yield event
        except (ConnectionError, MessageError) as error:
            raise connection.failure(exchange, error, duplex.lost) from None
        exchange.check_status()

    async def _connect_for_call(self, times: Times) -> Connection:
        """Open a connection, and its memory lane if there shall be one."""
        connection = await self.connect(times)
        memory = self._common.memory_lane
        if memory is None or await self._opens_lane(connection, memory, times):
            return connection
        return await self.connect(times)

    async def _opens_lane(self, connection: Connection, memory: MemoryLane, times: Times) -> bool:
        """Open the memory lane of a new connection; return whether the connection can be used afterwards.

        Raises:
            OSError: the connection is broken, or there is no memory.
        """
        try:
            exchange = self._common.calls.open_lane()
            lane = send_opening(connection, exchange, memory)
            duplex = self._waits.duplex(connection, [], times)
            while not exchange.has_ended:
                exchange.receive(connection.http, await duplex.event())
        except BaseException:
            self._common.drop(connection)
            raise
        if exchange.is_success:
            connection.lane = lane
        is_usable = connection.is_usable
        if not is_usable:
            self._common.drop(connection)
        return is_usable
