"""Link: serves one connection of a client, from its first request to its last, under anyio.

Each request is read as far as the guard needs to decide. Only then a connection to the server behind is asked for. So
that server sees nothing of a refused request, not even a connection. From then on, two things go on at once: a task
reads pieces of the body and sends them on, and this one waits for the answer. A piece is read when the one before it
has been taken, and the same holds for the answer. So a slow reader on either side holds up the sender on the other.

If the body breaks a rule on its way, the connection to the server behind is closed, and the client is answered. At that
moment the server behind has less than the declared length: the last byte is kept back until the whole body was checked
(`RowWriter`). If an answer breaks off, so does the client's connection: it must not look complete.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar, cast

import anyio

from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import EndOfMessage, WindowReceived
from streamcodec.engine.message import Part
from streamcodec.engine.rows import Rows
from streamcodec.guard.answers import Answer
from streamcodec.guard.arrived import PieceChannel
from streamcodec.guard.crossing import Crossing
from streamcodec.guard.fields import response_fields
from streamcodec.guard.pieces import PIECE_BYTES, Pieces
from streamcodec.guard.progress import Progress
from streamcodec.guard.reading import Reading
from streamcodec.guard.recording import Recording
from streamcodec.guard.relay import Relay, Unsent, can_relay
from streamcodec.guard.routing import origin_form
from streamcodec.guard.screening import no_room
from streamcodec.guard.shared import Shared
from streamcodec.guard.upstream import Held
from streamcodec.guard.whole import Alone, Incoming, Whole
from streamcodec.http.chunks import Chunks
from streamcodec.http.connection import State
from streamcodec.http.messages import ConnectionClosed, HttpEvent, RequestHead, ResponseHead
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.http.server import ServerConnection
from streamcodec.server.lingering import Rest
from streamcodec.server.observation import Observe
from streamcodec.server.patience import Patience, Phase, Taking
from streamcodec.service.budget import Reservation
from streamcodec.service.replies import Reply, error_reply, failure_reply, unavailable_reply
from streamcodec.service.routes import is_health_check
from streamcodec.transports.duplex import AsyncDuplex

_T = TypeVar("_T")

_AT_ONCE_BYTES: Final = 256 << 10
_CLOSE: Final = ("Connection", "close")


class Link:
    """One connection of a client.

    Attributes:
        reservation: of the memory of its current request, if that is more than the buffers of every link.
        taking: says how long its channel waits for the client to read.
    """

    def __init__(self, shared: Shared, client: str, observe: Observe | None = None) -> None:
        """Prepare to serve.

        Args:
            shared: of all links.
            client: address of the client without a port; empty if it is not known.
            observe: begins the observation of a request.
        """
        self._shared = shared
        self._client = client
        self._connection = ServerConnection(shared.limits, paced=True)
        self._recording = Recording(observe, self._connection.incoming)
        self._incoming = Incoming(self._connection, shared.requests, client)
        self._has_begun_answer = False
        self._is_waiting = True
        self._is_leaving = False
        self._channel: PieceChannel | None = None
        self._relay: Relay | None = None
        self.reservation: Reservation = Reservation(shared.admission.budget)
        self._has_room = partial(_has_room, self.reservation)
        self.taking: Taking = Taking(shared.options)
        self._progress = Progress(self._connection, self._incoming)
        self._patience = Patience(shared.options, self._progress)
        self._reading = Reading(self._connection, self._patience)

    @property
    def request_count(self) -> int:
        """How many requests have come, at least their heads."""
        return self._progress.request_count

    @property
    def is_idle(self) -> bool:
        """Whether no request is lost if the connection is closed."""
        return self._is_waiting and self._progress.crossing is None

    def stop(self) -> None:
        """Wait only a moment for another request."""
        self._patience.hurry()
        self._look_again()

    def leave(self) -> None:
        """Close the connection, which is idle, because others need its place."""
        self._is_leaving = True
        self._look_again()

    async def serve(self, channel: PieceChannel) -> None:
        """Serve until the client or the guard ends the connection. The channel stays open.

        Raises:
            OSError: the client has left, or does not read; or an answer has broken off.
        """
        self._channel = channel
        if can_relay(channel, self._shared.upstream):
            self._relay = Relay(channel, self._incoming, self, self._shared.upstream, self._shared.answers)
        try:
            while await self._serve_one(channel):
                pass
            if self._connection.has_unread_body and not self._is_leaving:
                channel.end()
                with anyio.move_on_after(self._shared.options.linger_timeout), suppress(TimeoutError):
                    await channel.next_event(Rest(), lambda _: self._shared.options.linger_timeout)
        finally:
            if self._relay is not None:
                self._relay.close()
            self._channel = self._relay = None

    async def _serve_one(self, channel: PieceChannel) -> bool:
        """Serve a request; return whether there may be another."""
        try:
            reply = await self._attempt(channel)
            self._is_waiting = False
            if reply is not None:
                await self._reply(channel, reply)
        except BaseException as error:
            self._recording.end(channel.given, error)
            raise
        finally:
            self._reading.failure = None  # its traceback refers to this object
            if self.reservation.nbytes:
                self.reservation.release()
        return self._ends(channel.given)

    def _ends(self, given: int) -> bool:
        """Report that a request is over, and how much has been sent; return whether there may be another."""
        self._progress.crossing = None
        self._has_begun_answer = False
        self._recording.end(given)
        self.taking.has_all()
        self._shared.admission.used(self)
        return not self._is_leaving and self._connection.incoming.state is not State.CLOSED

    async def _reply(self, channel: PieceChannel, reply: Reply) -> None:
        """Send an answer of the guard's own."""
        self._recording.replies(reply)
        fields = [*reply.headers, ("Date", self._shared.dates.now()), *([] if self._keeps() else [_CLOSE])]
        await channel.send(self._connection.send_response(reply.status, fields, reply.buffers))

    async def _attempt(self, channel: PieceChannel) -> Reply | None:
        """Serve a request as far as it goes; return what is left to answer, if anything."""
        try:
            head = await self._next_head(channel)
            if head is None:
                self._connection.incoming.close()
                return None
            if isinstance(head, Unsent):
                await channel.send_buffers(head.buffers)
                return None
            admission = self._shared.admission
            if not (admission.admits(self) or _is_health_check(head) or admission.makes_room(self)):
                return unavailable_reply("the guard has the maximum number of connections", retry_after=1)
            if isinstance(head, RequestHead) and head.method == "GET" and (page := self._shared.pages.get(head.target)):
                return page()
            crossing = await self._decide(channel, head)
        except MessageError as error:
            return error_reply(error.with_traceback(None))  # its frames would keep the request
        return await self._pass_on(channel, crossing)

    async def _decide(self, channel: PieceChannel, head: RequestHead | Whole) -> Crossing | Whole:
        """Read a request until it may be passed on.

        Raises:
            RemoteProtocolError: the request is refused.
            OutOfMemoryError: there is no room for it now.
            OSError: the client has left.
        """
        if isinstance(head, Whole):
            self._progress.crossing = head
            if head.missing:
                if not self._has_room(len(head.beginning)):
                    raise no_room()
                await self._reading.receive(channel, head)
            return head
        self._progress.crossing = crossing = Crossing(head, self._shared.limits, self._has_room)
        if interim := crossing.open(self._connection):
            await channel.send([interim])
        event: HttpEvent | None = None
        while not crossing.is_ready(event):
            event = await self._reading.pull(channel)
        return crossing

    async def _next_head(self, channel: PieceChannel) -> RequestHead | Whole | Unsent | None:
        """Wait for a request; None if there is no other."""
        self._is_waiting = True
        self._patience.resume()
        relay = self._relay
        event: Whole | HttpEvent | Unsent
        try:
            if relay is None:
                event = await channel.next_event(self._incoming, self._look)
            else:
                event = await relay.next_event(self._look)
        except TimeoutError:
            if self._is_leaving or self._progress.phase is Phase.IDLE:
                return None
            raise self._reading.too_slow() from None
        finally:
            self._is_waiting = False
        if isinstance(event, ConnectionClosed) or self._is_leaving:
            return None
        request = cast("RequestHead | Whole | Unsent", event)  # the first event of a request
        if not (isinstance(request, Unsent) or (relay is not None and relay.is_asking)):
            self._counts(request)
        return request

    def _counts(self, request: RequestHead | Whole | Alone) -> None:
        """Report that the head of a request has come."""
        self._progress.request_count += 1
        if isinstance(request, RequestHead):
            self._recording.begin(request)
        else:
            self._recording.begin(request.head, request.text)

    async def _pass_on(self, channel: PieceChannel, crossing: Crossing | Whole) -> Reply | None:
        """Ask the server behind, and send its answer; return the guard's own answer if there is none."""
        try:
            await self._exchange(channel, crossing)
        except (OSError, MessageError) as error:
            if self._has_begun_answer:
                msg = "an answer of the server behind has broken off"
                raise ConnectionAbortedError(msg) from error
            failure = self._reading.failure
            try:
                if isinstance(failure, MessageError):
                    return error_reply(failure.with_traceback(None))
                if failure is not None:
                    raise failure from None
            finally:
                del failure  # its traceback refers to this frame
            self._shared.complaints.add(f"no answer of the server behind: {error}")
            return _no_answer(error)
        return None

    async def _exchange(self, channel: PieceChannel, crossing: Crossing | Whole) -> None:
        parts: list[Part] = [crossing.beginning] if crossing.beginning else []
        if 0 < crossing.rest_bytes <= _AT_ONCE_BYTES:  # sent at once, without a task, and only after all was checked
            parts += [bytes(piece.data) async for piece in self._reading.pieces(channel)]
        elif crossing.rest_bytes:
            parts.append(Rows("UINT8", (crossing.rest_bytes,), self._reading.pieces(channel)))
        elif crossing.has_header and not isinstance(crossing, Whole):
            await self._reading.end(channel)
        begun = None if self._relay is None else self._relay.take_held()
        async with self._shared.upstream.holding() if begun is None else self._shared.upstream.keeping(begun) as held:
            if isinstance(crossing, Whole) and await self._ask(channel, held, crossing):
                return
            head, address = crossing.head, self._shared.upstream.address
            target = origin_form(head.target, address.prefix)
            fields = crossing.fields(address.authority, self._client)
            is_asked = isinstance(crossing, Whole)
            async with held.exchanging(head.method, target, fields, parts, is_asked=is_asked) as duplex:
                await self._answer(channel, held, duplex)
        # Only now nobody reads the request any more: the server behind may have answered before all of it had come.
        await channel.send([self._connection.end_response()])

    async def _ask(self, channel: PieceChannel, held: Held, request: Whole) -> bool:
        """Ask the server behind in the short way, and send its answer; return whether that was possible."""
        answer = await self._while_client_waits(channel, held.ask(request.outgoing, self._shared.answers))
        if answer is None:
            return False
        await channel.send_buffers(self._answer_of(answer))
        return True

    def _answer_of(self, answer: Answer) -> list[memoryview]:
        """Report that an answer is sent; return what is sent."""
        self._begins_answer(answer.status)
        fields = answer.fields if self._keeps() else [*answer.fields, _CLOSE]
        return [memoryview(part) for part in self._connection.send_response(answer.status, fields, [answer.body])]

    async def _answer(self, channel: PieceChannel, held: Held, duplex: AsyncDuplex[HttpEvent]) -> None:
        """Send the answer of the server behind, while it comes."""
        # The head is the first event of a request.
        answer = cast("ResponseHead", await self._while_client_waits(channel, duplex.next_event()))
        length = answer.content_length
        chunks = Chunks(self._shared.limits) if length is None and answer.fields.is_chunked else None
        # An answer whose length is not known may be a stream of events, and the client waits for each of them.
        http = held.connection.http
        piece_bytes = PIECE_BYTES if self._has_room(2 * PIECE_BYTES) else SCRATCH_BYTES
        http.incoming.read_body(
            Pieces(length, piece_bytes=piece_bytes), content_length=length, chunks=chunks, is_prompt=length is None
        )
        connection = self._connection
        fields = response_fields(answer, is_last=not self._keeps())
        self._begins_answer(answer.status)
        unsent: list[bytes | memoryview] = [connection.begin_response(answer.status, fields)]
        while not isinstance(event := await held.next_piece(duplex), EndOfMessage):
            piece = cast("WindowReceived", event).array.data
            await channel.send_buffers([*unsent, *connection.response_piece(piece)])
            unsent = []
        await channel.send_buffers(unsent)

    async def _while_client_waits(self, channel: PieceChannel, answer: Awaitable[_T]) -> _T:
        """Wait for an answer, and look from time to time whether the client still waits for it.

        Raises:
            ConnectionResetError: it has gone.
        """
        with anyio.CancelScope() as scope:
            call = self._shared.departures.watch(channel, self._connection, scope)
            self._recording.asks()
            try:
                return await answer
            finally:
                call.forget()
        msg = "the client has left before its answer"
        self._reading.failure = ConnectionResetError(msg)
        raise self._reading.failure

    def _begins_answer(self, status: int) -> None:
        self._has_begun_answer = True
        self._recording.answers(status)

    # What a relay asks

    def may_begin(self) -> bool:
        """Whether a request may be passed on now, and another one after it."""
        return not self._is_leaving and self._shared.admission.keeps_another(self)

    def begin(self, request: Alone) -> None:
        """Report that a request is passed on."""
        self._is_waiting = False
        self._counts(request)
        self._recording.asks()

    def answer(self, answer: Answer, request: bytes) -> list[memoryview]:
        """Report that an answer is sent; return what is sent.

        Args:
            answer: of the server behind.
            request: all bytes of the request, which the HTTP connection has not got.
        """
        if not self._keeps():
            self._incoming.take(request)
            self._incoming.next_event()
            return self._answer_of(answer)
        self._incoming.count(len(request))
        self._begins_answer(answer.status)
        return [answer.head, answer.body]

    def goes_on(self, given: int) -> bool:
        """Report that the answer has been sent; return whether another request may follow."""
        self._is_waiting = self._ends(given)
        return self._is_waiting

    def _keeps(self) -> bool:
        return self._shared.admission.keeps(self)

    def _look(self, now: float) -> float:
        if self._is_leaving:
            raise TimeoutError
        return self._patience.look(now)

    def _look_again(self) -> None:
        if self._channel is not None and self._is_waiting:
            (self._relay or self._channel).look_again()


def _is_health_check(request: RequestHead | Whole) -> bool:
    """Whether a request is a health check, which needs no seat. One with a body could hold its place for long."""
    head = request if isinstance(request, RequestHead) else request.head
    return head.content_length == 0 and is_health_check(head.method, head.target)


def _has_room(reservation: Reservation, nbytes: int) -> bool:
    """Whether the current request may take so much memory in all. The first bytes are in the scratch memory."""
    if nbytes <= max(reservation.nbytes, SCRATCH_BYTES):
        return True
    return reservation.ask_at_once(nbytes + SCRATCH_BYTES)


def _no_answer(error: Exception) -> Reply:
    if isinstance(error, TimeoutError):
        return failure_reply("the server behind this guard does not answer in time", status=504)
    return failure_reply("the server behind this guard cannot be reached, or has broken off", status=502)
