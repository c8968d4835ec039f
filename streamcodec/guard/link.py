"""Link: serves one connection of a client, from its first request to its last, under anyio.

Each request is read as far as the guard needs to decide. Only then a connection to the server behind is asked for. So
that server sees nothing of a refused request, not even a connection. Plain requests are passed on by a `Relay`, and
come here if something about them is unusual. With all others, two things go on at once: a task reads pieces of the body
and sends them on, and this one waits for the answer. A piece is read when the one before it has been taken, and the
same holds for the answer. So a slow reader on either side holds up the sender on the other.

If the body breaks a rule on its way, the connection to the server behind is closed, and the client is answered. At that
moment the server behind has less than the declared length: the last byte is kept back until the whole body was checked
(`RowWriter`). If an answer breaks off, so does the client's connection: it must not look complete.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import aclosing
from functools import partial
from typing import cast

import anyio

from streamcodec.engine.errors import MessageError
from streamcodec.engine.memory.placement import zeros
from streamcodec.engine.memory.rows import Rows
from streamcodec.engine.message import Part
from streamcodec.guard.pieces import PIECE_BYTES, Pieces
from streamcodec.guard.reading import BodyReader, ClientRequests
from streamcodec.guard.relaying.arrived import PieceChannel
from streamcodec.guard.relaying.passing import Passed, catch_up
from streamcodec.guard.relaying.relay import Relay, can_relay
from streamcodec.guard.relaying.requests import AT_ONCE_BYTES, PlainRequest
from streamcodec.guard.rules.crossing import Crossing
from streamcodec.guard.rules.fields import has_wrong_length, response_fields
from streamcodec.guard.rules.gate import Permit, is_health_check, no_answer, no_place, refusal, told
from streamcodec.guard.shared import Shared
from streamcodec.guard.upstream import Held
from streamcodec.http.bodies.chunks import Chunks
from streamcodec.http.connection import State
from streamcodec.http.heads.messages import ConnectionClosed, HttpEvent, RequestHead, ResponseHead
from streamcodec.http.scratch import SCRATCH_BYTES
from streamcodec.runtime.observation import Observe
from streamcodec.runtime.timeouts import Phase
from streamcodec.server.connection.waits import ClientWaits
from streamcodec.service.memory.budget import Reservation
from streamcodec.service.replies import Reply, sendable
from streamcodec.service.routes import Resource
from streamcodec.transports import turns
from streamcodec.transports.duplex import AsyncDuplex


class Link:
    """One connection of a client.

    Attributes:
        reservation: of the memory of its current request, if that is more than the buffers of every link.
        waits: how long it waits for the client.
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
        self._requests = ClientRequests(shared.limits, observe)
        self._connection = self._requests.connection
        self._is_observed = observe is not None
        self._recording = self._requests.recording
        self._has_begun_answer = False
        self._channel: PieceChannel | None = None
        self._relay: Relay | None = None
        self.reservation: Reservation = Reservation(shared.admission.budget)
        self._has_room = partial(_has_room, self.reservation)
        self.waits: ClientWaits = ClientWaits(shared.options, self._requests)
        self._reading = BodyReader(self.waits)

    @property
    def request_count(self) -> int:
        """How many requests have come, at least their heads."""
        return self._requests.request_count

    @property
    def is_idle(self) -> bool:
        """Whether no request is lost if the connection is closed."""
        return self.waits.is_waiting and self._requests.crossing is None

    def leave(self) -> None:
        """Close the connection, which is idle, because others need its place."""
        self.waits.leave()

    async def serve(self, channel: PieceChannel) -> None:
        """Serve until the client or the guard ends the connection. The channel stays open.

        Raises:
            OSError: the client has left, or does not read; or an answer has broken off.
        """
        self._channel = self.waits.waiting = channel
        if can_relay(channel, self._shared.upstream):
            self._relay = self.waits.waiting = Relay(channel, self._client, self._requests, self, self._shared)
        try:
            while await self._serve_one(channel):
                pass
            self._close_relay()
            if self._connection.has_unread_body and not self.waits.is_leaving:
                self.waits.waiting = channel
                await self.waits.linger(channel)
        finally:
            self._close_relay()
            self._channel = self.waits.waiting = None

    def _close_relay(self) -> None:
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.close()

    async def _serve_one(self, channel: PieceChannel) -> bool:
        """Serve a request; return whether there may be another."""
        try:
            reply = await self._attempt(channel)
            self.waits.is_waiting = False
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
        self._requests.crossing = None
        self._has_begun_answer = False
        if self._is_observed:
            self._recording.end(given)
        self.waits.taking.has_all()
        self._shared.admission.used(self)
        return not self.waits.is_leaving and self._connection.incoming.state is not State.CLOSED

    async def _reply(self, channel: PieceChannel, reply: Reply) -> None:
        """Send an answer of the guard's own."""
        reply = sendable(reply)
        self._recording.replies(reply)
        fields = [
            *reply.headers,
            ("Date", self._shared.dates.now()),
            *([] if self.may_go_on() else [("Connection", "close")]),
        ]
        await channel.send(self._connection.send_response(reply.status, fields, reply.buffers))

    async def _attempt(self, channel: PieceChannel) -> Reply | None:
        """Serve a request as far as it goes; return what is left to answer, if anything."""
        try:
            head = await self._next_head(channel)
            if head is None:
                self._connection.incoming.close()
                return None
            if isinstance(head, Passed):
                self._requests.crossing = head
                self._connection.is_urgent = is_health_check(head.request.known.head, head.request.known.permit)
                catch_up(self._connection, head)
                return await self._pass_on(channel, head)
            self._connection.is_urgent = False
            permit = self._shared.gate.judge(head)
            if (reply := self._own_reply(head, permit)) is not None:
                return reply
            crossing = await self._decide(channel, head, permit)
        except MessageError as error:
            return refusal(error)
        return await self._pass_on(channel, crossing)

    def _own_reply(self, head: RequestHead, permit: Permit) -> Reply | None:
        """Return the guard's own answer to a request that may come in; None if the server behind is asked."""
        admission = self._shared.admission
        self._connection.is_urgent = is_health_check(head, permit)
        if not (admission.admits(self) or self._connection.is_urgent or admission.makes_room(self)):
            return no_place(is_stopping=admission.is_stopping)
        if permit.resource is Resource.SERVER_READY and admission.is_stopping:
            return no_place(is_stopping=True)
        return self._shared.pages[permit.page]() if permit.page else None

    async def _decide(self, channel: PieceChannel, head: RequestHead, permit: Permit) -> Crossing:
        """Read a request until it may be passed on.

        Raises:
            RemoteProtocolError: the request is refused.
            OutOfMemoryError: there is no room for it now.
            OSError: the client has left.
        """
        self._requests.crossing = crossing = Crossing(head, permit, self._shared.limits, self._has_room)
        if interim := crossing.open(self._connection):
            await channel.send([interim])
        event: HttpEvent | None = None
        while not crossing.is_ready(event):
            event = await self.waits.body_event(channel.next_event)
        if crossing.is_document:  # all others, such as health checks, need no turn
            await turns.work_off(crossing.check())
        return crossing

    async def _next_head(self, channel: PieceChannel) -> RequestHead | Passed | None:
        """Wait for a request; None if there is no other."""
        self.waits.is_waiting = True
        self.waits.reading.resume()
        try:
            if self._relay is None:
                event: HttpEvent | Passed = await channel.next_event(self._requests, self.waits.look)
            else:
                event = await self._relay.next_event(self.waits.look)
        except TimeoutError:
            if self.waits.is_leaving or self._requests.phase is Phase.IDLE:
                return None
            raise self._requests.too_slow() from None
        finally:
            self.waits.is_waiting = False
        if isinstance(event, Passed):
            return event
        if isinstance(event, ConnectionClosed) or self.waits.is_leaving:
            return None
        head = cast("RequestHead", event)  # the first event of a request
        self._requests.request_count += 1
        return head

    async def _pass_on(self, channel: PieceChannel, crossing: Crossing | Passed) -> Reply | None:
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
                    return refusal(failure)
                if failure is not None:
                    raise failure from None
            finally:
                del failure  # its traceback refers to this frame
            self._shared.complaints.add(f"no answer of the server behind: {told(error)}")
            return no_answer(error)
        return None

    async def _exchange(self, channel: PieceChannel, crossing: Crossing | Passed) -> None:
        if isinstance(crossing, Passed):
            known, held = crossing.request.known, cast("Held", crossing.held)
            body: list[Part] = [zeros(known.length)] if known.length else []
            rest = [*crossing.unsent, *self._rows(channel, crossing.left)]
            target, holding = known.permit.target, self._shared.upstream.keeping(held)
            async with holding, held.exchanging(known.head.method, target, known.fields, body, rest=rest) as duplex:
                held.connection.http.feed(crossing.come)
                await self._answer(channel, held, duplex, crossing)
        else:
            parts: list[Part] = [crossing.beginning] if crossing.beginning else []
            if 0 < crossing.rest_bytes <= AT_ONCE_BYTES:  # sent at once, without a task, and after all was checked
                parts += [bytes(piece.data) async for piece in self._reading.pieces(channel)]
            elif crossing.rest_bytes or not crossing.has_header:
                parts += self._rows(channel, crossing.rest_bytes)
            else:
                await self._reading.end(channel)
            head, fields = crossing.head, crossing.fields(self._shared.upstream.address.authority, self._client)
            async with (
                self._shared.upstream.holding() as held,
                held.exchanging(head.method, crossing.permit.target, fields, parts) as duplex,
            ):
                await self._answer(channel, held, duplex)
        # Only now nobody reads the request any more: the server behind may have answered before all of it had come.
        await channel.send([self._connection.end_response()])

    def _rows(self, channel: PieceChannel, nbytes: int) -> list[Part]:
        """Return what a client has yet to send of its request, if there is anything."""
        return [Rows("UINT8", (nbytes,), self._reading.pieces(channel))] if nbytes else []

    async def _answer(
        self, channel: PieceChannel, held: Held, duplex: AsyncDuplex[HttpEvent], passed: Passed | None = None
    ) -> None:
        """Send the answer of the server behind, while it comes; or its rest, if a relay has begun.

        A short one is sent when all of it has come, so that there can be another answer if it breaks off.
        """
        connection, http = self._connection, held.connection.http
        http.is_urgent = connection.is_urgent
        begun = None if passed is None or passed.answer is None else passed
        coming: Awaitable[HttpEvent] = duplex.next_event()  # the head is the first event
        answer = cast("ResponseHead", await (coming if begun else self._while_client_waits(channel, coming)))
        held.is_last = has_wrong_length(answer)
        length = answer.content_length
        left = length if begun is None else begun.answer_left
        http.incoming.read_body(
            Pieces(left, piece_bytes=PIECE_BYTES if self._has_room(2 * PIECE_BYTES) else SCRATCH_BYTES),
            content_length=left,
            chunks=Chunks(self._shared.limits) if length is None and answer.fields.is_chunked else None,
            is_prompt=length is None,  # it may be a stream of events, and the client waits for each of them
        )
        is_short = begun is None and length is not None and length <= SCRATCH_BYTES
        async with aclosing(held.pieces(duplex)) as pieces:
            whole = [bytes(piece) async for piece in pieces] if is_short else []
            self.answers(answer.status)
            fields = response_fields(answer, is_last=not self.may_go_on())
            unsent: list[bytes | memoryview] = [connection.begin_response(answer.status, fields)]
            for piece in whole:
                unsent += connection.response_piece(piece)
            if begun is not None:
                connection.response_piece(zeros((length or 0) - begun.answer_left))  # this much the relay has taken
                unsent = [*begun.answer_unsent]
            async for view in pieces:
                await channel.send_buffers([*unsent, *connection.response_piece(view)])
                unsent = []
        await channel.send_buffers(unsent)

    async def _while_client_waits(self, channel: PieceChannel, answer: Awaitable[HttpEvent]) -> HttpEvent:
        """Wait for an answer, and look from time to time whether the client still waits for it.

        Raises:
            ConnectionResetError: it has gone.
        """
        with anyio.CancelScope() as scope:
            call = self._shared.disconnects.watch(channel, self._connection, scope)
            self._recording.asks()
            try:
                return await answer
            finally:
                call.forget()
        msg = "the client has left before its answer"
        self._reading.failure = ConnectionResetError(msg)
        raise self._reading.failure

    # What a relay asks

    def may_begin(self) -> bool:
        """Whether a request may be passed on now, and another one after it."""
        return not self.waits.is_leaving and self._shared.admission.keeps(self, ahead=1)

    def may_go_on(self) -> bool:
        """Whether another request may follow the current one."""
        return self._shared.admission.keeps(self)

    def has_room(self, nbytes: int) -> bool:
        """Whether the current request may take so much memory in all."""
        return self._has_room(nbytes)

    def comes(self) -> None:
        """Report that a part of a request has come."""
        if self._is_observed:
            self._recording.comes()

    def begins(self, request: PlainRequest) -> None:
        """Report that a request is passed on."""
        self.waits.is_waiting = False
        self._requests.request_count += 1
        if self._is_observed:
            self._recording.begin(request.known.head)
            self._recording.asks()

    def answers(self, status: int) -> None:
        """Report that an answer is sent."""
        if not self._has_begun_answer:
            self._has_begun_answer = True
            if self._is_observed:
                self._recording.answers(status)

    def ends(self, request: PlainRequest) -> None:
        """Report that the answer has been sent."""
        self._connection.incoming.received += request.size
        if self.reservation.nbytes:
            self.reservation.release()
        self._ends(cast("PieceChannel", self._channel).given)
        self.waits.is_waiting = True


def _has_room(reservation: Reservation, nbytes: int) -> bool:
    """Whether the current request may take so much memory in all. The first bytes are in the scratch memory."""
    if nbytes <= max(reservation.nbytes, SCRATCH_BYTES):
        return True
    return reservation.ask_at_once(nbytes + SCRATCH_BYTES)
