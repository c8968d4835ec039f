"""Express: answers small requests in one step, and caches known heads.

The ordinary way of a request handles bodies of any size in any pieces. A small request arrives as a whole, in one read,
and its model may run at once. Then nothing must be kept between two steps, which saves most of the cost. A larger one
takes several steps, but uses the same cached knowledge of its head and its JSON header. Clients repeat themselves. What
h11 makes of a head depends only on its bytes, so it is computed once and cached by those exact bytes. The JSON header
(in the service) and the head of a response are cached too. If each request has its own trace id or date, the cache key
leaves out such fields, which mean nothing to HTTP or to this service. When a model has been added, removed or replaced,
the caches are cleared.

This is a short cut and never another way. Each step asks those who decide on the ordinary way (the connection, the
service, the decoder). At the first special case (a refusal, an incomplete header, a field that asks for more, an
incomplete body) it leaves everything unchanged, and the session begins at the first byte: with the known head, or else
the ordinary way. So all ways give the same answers; tests compare them for all cases of the corpus, and for all cuts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from streamcodec.engine.cache import Cache
from streamcodec.engine.errors import MessageError
from streamcodec.engine.limits import Limits
from streamcodec.engine.placement import zeros
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.http.connection import Incoming
from streamcodec.http.messages import RequestHead
from streamcodec.http.server import ServerConnection
from streamcodec.server.observation import Observation
from streamcodec.service import Listing, Reply, ResolvedHead, Service
from streamcodec.service.plan import Plan, Plans, infer_at_once

_HEAD_END: Final = b"\r\n\r\n"
_PLAIN_VERSION: Final = b" HTTP/1.1\r"
_MAX_HEADS: Final = 256
_MAX_HEAD_BYTES: Final = 4 << 10
"""Longer heads go the ordinary way."""
_OPAQUE_FIELD: Final = re.compile(
    rb"\r\n(?!(?:host|connection|expect|upgrade|origin|transfer-encoding|accept-encoding|content-length|content-encoding"
    rb"|content-type|inference-header-content-length|upload-complete|access-control-request-[a-z]+"
    rb"|tensor-memory|answer-memory):)"
    rb"[a-z][a-z0-9-]*: [!-~]+(?: [!-~]+)*(?=\r\n[^ \t])",
    re.ASCII | re.IGNORECASE,
)
"""A field without a meaning here, in a simple form that h11 always accepts. Every other field stays a part of the head
that is looked up."""

_UNPLAIN: Final = re.compile(
    rb"\r\n(?:transfer-encoding:|content-encoding:|expect:|upload-complete:|connection:(?! *keep-alive\r))",
    re.IGNORECASE,
)
"""Fields that make a head not plain. This search takes less than reading the head, which takes 0.2 ms."""

_OTHER_LINES: Final = 2
"""Lines of a head that are no fields: the first one and the last, which is blank."""

_ANY_DATE: Final = "the date"

_MAX_PLANNED_BYTES: Final = 4 << 10
"""Most bytes of a JSON header that has a plan. Longer headers are not cached, and may take too long to read."""

_PLAIN_METHODS: Final = {"GET", "POST"}
_KEEPING: Final = {b"keep-alive"}
"""Values of `Connection` that change nothing."""


Recognized = tuple[RequestHead | ResolvedHead, bytes]
"""The meaning of a head, and its bytes."""


class Express:
    """Answers whole small requests; one for all connections of a service."""

    def __init__(self, service: Service) -> None:
        """Begin with empty caches."""
        self._service = service
        self._models = service.models
        self._forget()

    def find(self, incoming: Incoming) -> Recognized | None:
        """Recognize the head of the next request; None if it is not complete, not known, or not plain."""
        if self._generation != self._models.generation:
            self._forget()
        data = incoming.peek(_MAX_HEAD_BYTES)
        end = data.find(_HEAD_END) + len(_HEAD_END)
        if end < len(_HEAD_END):
            return None
        beginning = data[:end]
        known = self._known.get(beginning) or self._recognize(beginning)
        return None if known is None else (known, beginning)

    def reply(
        self, recognized: Recognized, incoming: Incoming, observation: Observation | None = None
    ) -> tuple[RequestHead, Reply] | None:
        """Answer the next request, if it is complete and quick to answer.

        Args:
            recognized: its head, as from `find`.
            incoming: the request.
            observation: of the request; it is used further if the request goes the ordinary way.

        Returns:
            The request's head and the reply; the request is then removed from `incoming`. None if the request has to go
            the ordinary way; then nothing has changed.
        """
        known, beginning = recognized
        end = len(beginning)
        head = known if isinstance(known, RequestHead) else known.head
        size = end + (head.content_length or 0)
        if incoming.kept < size:
            return None
        if observation is not None:
            observation.bytes_in = size
            observation.begin(head, beginning)
        outcome = (
            self._service.open(known)
            if isinstance(known, RequestHead)
            else infer_at_once(known, self._plans, incoming.peek_from(end, size), observation)
        )
        if not isinstance(outcome, Reply):
            return None
        incoming.skip(size)
        return head, outcome

    def plan(self, resolved: ResolvedHead, text: bytes, incoming: Incoming) -> tuple[Plan, RequestHeader] | None:
        """Return the plan and the JSON header of a request that does not come whole, or takes long, if it has a plan.

        Args:
            resolved: the meaning of its head.
            text: its head.
            incoming: the request.
        """
        length = resolved.header_length or 0
        if not resolved.is_known or length > _MAX_PLANNED_BYTES:
            return None
        try:
            return self._plans.find(resolved, incoming.peek_from(len(text), len(text) + length))
        except MessageError:  # the ordinary way raises it, in the order of its checks
            return None

    def _forget(self) -> None:
        """Clear the caches, which were filled for other models."""
        self._generation = self._models.generation
        self._plans = Plans()
        self._known: Cache[RequestHead | ResolvedHead] = Cache(_MAX_HEADS, _MAX_HEAD_BYTES)

    def _recognize(self, data: bytes) -> RequestHead | ResolvedHead | None:
        """Find a head in the cache by the fields that matter, or else read it.

        Args:
            data: the head.

        Returns:
            The meaning of the head; None if it is not plain, or not known and not worth reading.
        """
        essence = _OPAQUE_FIELD.sub(b"", data)
        limits = self._service.limits  # they also bound the fields that were left out
        is_long = len(data) > limits.max_head_bytes or data.count(b"\n") - _OTHER_LINES > limits.max_head_fields
        if is_long or (known := self._known.get(essence)) is None:
            known = None if _UNPLAIN.search(data) else self._read(data)
            if known is not None:
                self._known.put(data, known)
                self._known.put(essence, known)
        return known

    def _read(self, data: bytes) -> RequestHead | ResolvedHead | None:
        """Read a head with a connection of its own; return None if it is not plain."""
        head = plain_head(data, self._service.limits)
        if head is None:
            return None
        outcome = self._service.open(head)
        if isinstance(outcome, ResolvedHead):
            return outcome
        if isinstance(outcome, Listing):
            return None
        if outcome.refusal is not None:  # its traceback refers to this frame, which refers to it
            outcome.refusal.__traceback__ = None
        return head if outcome.status == HTTPStatus.OK else None


def plain_head(data: bytes, limits: Limits) -> RequestHead | None:
    """Read a head; return None if it is refused, or asks for more than an answer (`ServerConnection.take_head`)."""
    connection = ServerConnection(limits)
    if not data.partition(b"\n")[0].endswith(_PLAIN_VERSION) or connection.feed(data) < len(data):
        return None
    try:
        head = connection.next_event()
    except MessageError:
        return None
    if not isinstance(head, RequestHead) or head.method not in _PLAIN_METHODS or head.content_length is None:
        return None
    fields = head.fields
    is_kept = all(value.lower() in _KEEPING for value in fields.values(b"connection"))
    return head if is_kept and not fields.values(b"expect") and not fields.values(b"content-encoding") else None


@lru_cache(maxsize=_MAX_HEADS)
def response_head(status: int, headers: tuple[tuple[str, str], ...], nbytes: int) -> tuple[bytes, bytes]:
    """Return the head of a response to a plain request, as a connection writes it: before its date, and after."""
    connection = ServerConnection()
    connection.feed(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    connection.next_event()
    head = bytes(connection.send_response(status, (*headers, ("Date", _ANY_DATE)), (zeros(nbytes),))[0])
    beginning, _, rest = head.rpartition(_ANY_DATE.encode())
    return beginning, rest
