"""Channels: the two ways to move a connection's bytes. This room knows nothing of the protocol.

A `SocketChannel` waits for its own socket, under anyio on any event loop. The channel here, `ProtocolChannel`, is an
asyncio transport that calls back, on plain asyncio and uvloop. A request that is answered within the callback needs
neither a wait nor a task that wakes up. Elsewhere these are most of the cost of a small request.

Each sent answer may wake the client, which costs more than the sending. If answers are sent one right after the other,
most of them find the client awake. Several answers for one client are sent as one (`Outbox`).
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final, TypeVar, cast

import anyio

from streamcodec.engine.events import NEED_DATA
from streamcodec.engine.memory.rows import Rows
from streamcodec.http.server import ServerConnection
from streamcodec.runtime.models.calls import ModelCaller
from streamcodec.runtime.timeouts import Look, WriteTimeout
from streamcodec.server.connection.session import Session, Step
from streamcodec.server.connection.socketchannel import ARRIVED_BYTES, SocketChannel, has_ended, has_left
from streamcodec.transports import turns
from streamcodec.transports.inlet import Inlet
from streamcodec.transports.protocol import EventProtocol
from streamcodec.transports.sockets.acknowledged import unacknowledged_bytes
from streamcodec.transports.sockets.vectors import Parts
from streamcodec.transports.source import EventSource


class Outbox:
    """The answers that one event loop sends at the end of this turn."""

    def __init__(self) -> None:
        """Begin inside a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Transport, list[bytes]] = {}

    def put(self, transport: asyncio.Transport, data: bytes) -> None:
        """Send data at the end of this turn."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.setdefault(transport, []).append(data)

    def nbytes(self, transport: asyncio.Transport) -> int:
        """Return the number of bytes that wait for a transport."""
        parts = self._waiting.get(transport)
        return sum(map(len, parts)) if parts else 0

    def flush(self) -> None:
        """Send everything now."""
        waiting, self._waiting = self._waiting, {}
        for transport, parts in waiting.items():
            if transport.is_closing():  # it may have been closed in this turn
                continue
            try:
                transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
            except MemoryError:
                transport.abort()  # the next answer would be taken for this one


_EventT = TypeVar("_EventT")

_TURN_ANSWERS: Final = 16
"""Most small requests of one client that are answered in one turn of the event loop. They take 0.2 ms, or 2 ms if each
has a new head."""

_AT_ONCE_BYTES: Final = 1 << 20
"""Of an answer that is sent within a callback. To wake a task for a longer one costs little in comparison, and the
system seldom takes all of it at once."""

_JOINED_BYTES: Final = 16 << 10
"""Of an answer from a batch that is copied, to be sent with the others: then it keeps none of the batch's memory."""

_REST_SECONDS: Final = 0.002
"""How long the rest of a small request is awaited before the request begins without it. Many clients send head and body
by two calls, so the body comes some microseconds after the head. A request that has come whole takes a third of the
time. Its answer is not late: it needs the rest in any case."""

_READING_SECONDS: Final = 0.001
"""In which the event loop reads what it has been told of: any time does, because it reads before its timers."""


_CALL_SECONDS: Final = 0.25
"""How long a request waits for its batch, or for a thread, before the task of its connection waits, too: for the time
limit of the model, and for the client to leave."""


class ProtocolChannel(EventProtocol[Any]):
    """A session on an asyncio transport; it answers from within the transport's callbacks if possible."""

    source: EventSource[Any]
    given: int  # of `EventProtocol`; it is assigned here, so type checkers need a declaration here, too

    def __init__(
        self,
        session: Session,
        taking: WriteTimeout,
        outbox: Outbox,
        max_pipelined_bytes: int,
        caller: ModelCaller,
    ) -> None:
        """Prepare for `connection_made`. The outbox of the event loop sends small answers; `caller` calls models."""
        super().__init__(session)
        self._outbox = outbox
        self._turns = turns.of_loop()
        self._session = session
        self._max_pipelined_bytes = max_pipelined_bytes
        self._taking = taking
        self._look: Look = lambda _: math.inf
        self._is_behind = False
        self._share = turns.Share(self._turns)
        self._rest: asyncio.TimerHandle | None = None
        self._caller = caller
        self._waking: asyncio.TimerHandle | None = None
        self._waits_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin. A small request is expected of each client that has come."""
        super().connection_made(transport)
        self._inlet = Inlet(self.transport)
        self._turns.small += 1

    async def next_event(self, source: EventSource[_EventT], look: Look) -> _EventT:  # type: ignore[override] # a source and a time limit are added
        """Let asyncio read until there is an event that the callbacks have not handled."""
        self.source, self._look = source, look
        event: _EventT = await super().next_event()
        while event is Step.CALL and self._begins_to_wait():
            await self._read()
            event = await super().next_event()
        return event

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waiting, and the timers: they would keep the memory of a request whose client has left."""
        for timer in (self._rest, self._waking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def look_again(self) -> None:
        """Wake a waiting `next_event`, which looks before it waits again."""
        self._wake()

    def take_arrived(self, connection: ServerConnection) -> None:
        """Read until the system has no more, or until it has been much; with TLS, the transport alone can read."""
        connection.incoming.pass_on()
        most = connection.incoming.received + ARRIVED_BYTES
        while not self.transport.is_closing() and connection.incoming.wants_data:
            if not self._inlet.read(connection, most - connection.incoming.received):
                return

    async def _read(self) -> None:
        """Wait for bytes, or until the next look is due. A timer costs a quarter of a cancel scope."""
        timer = self._loop.call_later(self._look(self._loop.time()), self._wake_to_look)
        try:
            await super()._read()
        finally:
            timer.cancel()
            if not self.transport.is_closing():
                self._inlet.wake_for(1)

    def _wake_to_look(self) -> None:
        """End the wait, in which more bytes may have come than the system has told; these are read first."""
        if not self.transport.is_closing() and self._inlet.wake_for(1):
            self._loop.call_later(_READING_SECONDS, self._wake)
        else:
            self._wake()

    async def send(self, parts: Parts) -> None:
        """Send in slices, so that the transport buffers little; without parts, wait until it has sent its buffer."""
        self._outbox.flush()
        if parts == [] or self._sends_parts(parts):
            await self._drain()
        else:
            await super().send(parts)

    async def flush(self) -> None:
        """Send the answers in the outbox."""
        self._outbox.flush()
        await self._drain()

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that have arrived. A large request is read in shares: others have their turn in between."""
        self.source.buffer_updated(nbytes)
        # With a threshold above one byte, this was the last piece of a large request, and the next one may be small.
        if self._session.connection.incoming.is_filling or self._inlet.threshold > 1:
            self._read_on(nbytes)
        else:
            self.received()
        if not self._is_reading:
            self._pause()

    @property
    def _is_filling(self) -> bool:
        """Whether a large tensor is being filled, so that there can be no event yet."""
        session = self._session
        return session.connection.incoming.is_filling and not session.reservation.is_short

    def _read_on(self, nbytes: int) -> None:
        """Read what more has come of a large message than so many bytes, if it has the time and a share left."""
        # Who has waited for this turn reads in any case: those before it may have taken its time.
        is_over = nbytes > 0 and (self._share.is_over(nbytes) or self._turns.is_over(turns.LARGE))
        try:
            while not is_over and self._is_filling and (nbytes := self._inlet.read(self.source, self._share.left)):
                is_over = self._share.is_over(nbytes)
        except OSError:
            self.transport.abort()
            return
        if not self._is_filling:
            self._inlet.wake_for(1)
            self._turns.schedule()  # the next turn is that of others, who come by then; else nobody may tell of it
            self.received()
            return
        self._inlet.wake_for(len(self.source.get_buffer(-1)))
        if is_over:
            self._fall_behind(turns.LARGE)

    def received(self) -> None:
        """Answer small complete requests at once, and leave all others to the waiting task.

        If a client has sent more requests than are answered in one turn, they are answered in several turns, after
        other clients that have done the same. So a thousand requests in one write do not delay clients that have sent
        one.
        """
        if self._turns.is_over(self.source):
            self._fall_behind(self.source)
        else:
            self._answer(1 if self._turns.behind else _TURN_ANSWERS)

    def _answer(self, count: int) -> None:
        """Answer up to `count` requests, and let others have their turn before the rest. A read may contain 1,500."""
        try:
            self._answer_some(count)
        except MemoryError:
            self._break_off()

    def _break_off(self) -> None:
        """Have the task of the connection close it: there is no memory, and an answer may be lost."""
        self._event = self._session.break_off()
        self._stop_reading()

    def _answer_some(self, count: int) -> None:
        session, outbox = self._session, self._outbox
        has_event = self._event is not NEED_DATA  # the waiting task has been woken, and has not taken it yet
        if has_event or self._is_filling or session.has_entered:
            return
        if self.source is session:
            has_waited = self._rest is not None
            if self._rest is not None:
                self._rest.cancel()
                self._rest = None
            # An answer may be a thousand times as long as its request, and a turn may have many reads.
            nbytes = outbox.nbytes(self.transport)
            while nbytes < self._max_pipelined_bytes and self._is_writable and session.answer_at_once():
                if session.entered is not None:
                    self._forget_entered()
                if not session.is_small:
                    self._event = Step.SEND
                    self._stop_reading()
                    return
                nbytes += self._put_small(session)
                if session.is_idle:
                    return
                count -= 1
                if count <= 0:
                    self._fall_behind()
                    return
            if session.is_idle or self._waits(has_waited=has_waited):
                return
        super().received()

    def _put_small(self, session: Session) -> int:
        """Give a small answer to the outbox, and return its size."""
        answer = b"".join(session.outgoing)  # type: ignore[arg-type] # no Rows
        session.outgoing = []
        self._outbox.put(self.transport, answer)
        self.given += len(answer)
        self._turns.small += 1
        if (observation := session.observation) is not None:
            session.observation = None
            observation.bytes_out = len(answer)
            observation.end()
        return len(answer)

    def _forget_entered(self) -> None:
        """Let a request leave its batch, because it was answered in another way: its model has gone."""
        self._session.entered = None
        self._caller.end()
        self._session.reservation.release()

    def _waits(self, *, has_waited: bool) -> bool:
        """Let a request wait for its rest, or for its batch, without beginning it; return whether it does."""
        if not has_waited and self._session.lacks_the_rest:
            self._rest = self._loop.call_later(_REST_SECONDS, self._begin_without_rest)
            return True
        whole = self._session.whole_call() if self._is_reading else None
        if whole is None or not self._caller.begin_whole(*whole, self._called):
            return False
        self._session.entered = whole[:2]
        self._wake_later()
        return True

    def _begin_without_rest(self) -> None:
        """Begin a small request whose rest has not come in time."""
        if self._is_reading:  # else the waiting task has already continued
            self.received()

    def _next_event(self) -> Any:  # noqa: ANN401 - the events of any source
        """Return the next event; send answers of moderate size without waking the task of the connection."""
        session = self._session
        while (event := self.source.next_event()) is Step.SEND and self.source is session and self._sends_at_once():
            self._forget_entered()
            if session.is_idle:
                return NEED_DATA
            if self._turns.is_over(session):
                self._fall_behind()
                return NEED_DATA
        return NEED_DATA if event is Step.CALL and self._is_reading and self._begins_to_wait() else event

    def _begins_to_wait(self) -> bool:
        """Let a request wait for its model without the task of the connection, for some time; return whether it does.

        Meanwhile the transport reads on, so that a client that leaves is noticed at once.
        """
        session = self._session
        incoming = session.connection.incoming
        if self.source is not session or session.is_called or incoming.is_eof:
            return False
        incoming.reads_ahead = True
        has_room = incoming.wants_data  # else many requests have come with it
        if not has_room or session.inference is None or not self._caller.begin(session.inference, self._called):
            incoming.reads_ahead = False
            return False
        session.begin_to_wait()
        self._wake_later()
        return True

    def _wake_later(self) -> None:
        """Have the task of the connection woken if the request still waits then. One timer does for many requests."""
        self._waits_since = self._loop.time()
        if self._waking is None:
            self._waking = self._loop.call_later(_CALL_SECONDS, self._is_late)

    def _is_late(self) -> None:
        self._waking = None
        if not (self._session.is_called or self._session.has_entered):
            return
        left = self._waits_since + _CALL_SECONDS - self._loop.time()
        if left > 0:
            self._waking = self._loop.call_later(left, self._is_late)
        else:
            self._wake()

    def _called(self) -> None:
        """Send the answer of a request that was in a batch, or in a thread."""
        session = self._session
        if not (session.is_called or session.has_entered):  # it has only begun, or the task of the connection has it
            self._loop.call_soon(self._send_called)
        elif self._turns.is_over(session):
            self._turns.later(self._send_called, session)
        else:
            self._send_called()

    def _send_called(self) -> None:
        try:
            self._send_reply()
        except MemoryError:
            self._break_off()

    def _send_reply(self) -> None:
        session = self._session
        if session.has_entered:
            self._send_entered()
            return
        inference = session.inference if session.is_called else None
        reply = None if inference is None else self._caller.finish(inference)
        if reply is None:
            self._wake()
            return
        self._event = NEED_DATA  # the task may have been woken in this turn, to wait for what is here now
        step = session.answer(reply)
        if self.transport.is_closing() or not self._sends_at_once(is_joined=True):
            self._event = step
            self._stop_reading()  # the connection may take nothing more: this may have been its last answer
            return
        self._turns.small += 1
        self._catch_up()

    def _send_entered(self) -> None:
        """Send the answer of a request that was in a batch and has not begun."""
        session = self._session
        if session.entered is None or self.transport.is_closing() or not self._is_writable:
            self._wake()
            return
        resolved, plan = session.entered
        reply = self._caller.finish_whole(resolved, plan.reply)
        if reply is None:
            self._wake()
        elif session.answer_entered(reply):
            self._put_small(session)
            if not session.is_idle:
                self._catch_up()
        else:
            self._event = Step.SEND
            self._stop_reading()

    def _sends_at_once(self, *, is_joined: bool = False) -> bool:
        """Send an answer of moderate size; return whether the system took all of it, so that the request is over.

        With `is_joined`, a small one goes to the outbox.
        """
        session, before = self._session, self.given
        if not session.outgoing or not self._sends_parts(session.outgoing, is_joined=is_joined):
            return False
        session.outgoing = []
        if session.observation is not None:
            session.observation.bytes_out += self.given - before
        if self.transport.get_write_buffer_size():  # the task of the connection waits for the client
            return False
        session.has_sent()
        return True

    def _sends_parts(self, parts: Parts, *, is_joined: bool = False) -> bool:
        """Give parts of moderate size to the transport, if it has none and all of them are there; return whether."""
        transport = self.transport
        if not self._is_writable or transport.is_closing() or self._outbox.nbytes(transport):
            return False
        if type(parts) is not list or Rows in map(type, parts):
            return False
        buffers = cast("list[bytes | memoryview]", parts)
        nbytes = sum(map(len, buffers))
        if nbytes > _AT_ONCE_BYTES:
            return False
        if is_joined and nbytes <= _JOINED_BYTES:
            self._outbox.put(transport, b"".join(buffers))
        else:
            transport.writelines(buffers)
        self.given += nbytes
        return True

    def _fall_behind(self, source: object = None) -> None:
        """Continue in a later turn, and read nothing before it."""
        if not self._is_behind:
            self._is_behind = True
            self._turns.later(self._catch_up, source)
        self._pause()

    def _catch_up(self) -> None:
        self._is_behind = False
        # Else the waiting task has already continued, or will.
        if self._is_reading and self._event is NEED_DATA and not self.transport.is_closing():
            self.transport.resume_reading()  # before the answer, which stops it again: for an event, or for an error
            if self._session.connection.incoming.is_filling:
                self._read_on(0)  # to be told by the system that there is more would take longer than the reading
            else:
                self._answer(_TURN_ANSWERS)

    async def _drain(self) -> None:
        """Wait until the client has taken everything that the transport was given.

        Raises:
            TimeoutError: the client reads too slowly.
        """
        if not self._is_writable:
            await self._wait_for_client()
        self._check()

    async def _wait_for_client(self) -> None:
        self._check()
        self._taking.resume(self._loop.time())
        sock = self.transport.get_extra_info("socket")
        while not self._is_writable:
            taken = self.given - self.transport.get_write_buffer_size() - unacknowledged_bytes(sock)
            with anyio.move_on_after(self._taking.look(self._loop.time(), taken)):
                await super()._drain()
        self._taking.pause(self._loop.time())

    def has_left(self, missing: int | None) -> bool:
        """Ask the system, unless the transport knows."""
        return self.transport.is_closing() or has_left(self.transport.get_extra_info("socket"), missing)

    def has_ended(self) -> bool:
        """Ask the system, unless the transport knows."""
        return self.transport.is_closing() or has_ended(self.transport.get_extra_info("socket"))

    def probe(self, data: bytes) -> None:
        """Send the bytes after all other answers."""
        self._outbox.flush()
        self.transport.write(data)
        self.given += len(data)

    def end(self) -> None:
        """Close one direction."""
        if not self.transport.is_closing():  # else the client has already left
            self.transport.write_eof()

    def close(self) -> None:
        """Close the transport, and drop the bytes in its buffer."""
        self.transport.abort()


Channel = SocketChannel | ProtocolChannel
"""A connection to a client. What the methods do is said at `SocketChannel`."""
