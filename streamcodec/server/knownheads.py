"""KnownHeads: small requests of heads that have been seen before, for frameworks that read heads themselves.

It is to a framework what `Express` is to connections of the bundled server: what a head means to the service is
remembered by what the head says, and a whole small body needs no more than its plan. Where the models change,
everything is forgotten.
"""

from __future__ import annotations

from typing import Final

from streamcodec.engine.cache import Cache
from streamcodec.engine.errors import MessageError
from streamcodec.http.messages import RequestHead
from streamcodec.service import Reply, ResolvedHead, Service
from streamcodec.service.observing import CallWatch
from streamcodec.service.plan import Plans, infer_at_once

_MAX_HEADS: Final = 256
_MAX_KEY_BYTES: Final = 2 << 10


class KnownHeads:
    """What heads have meant, by keys that the framework makes of them."""

    def __init__(self, service: Service) -> None:
        """Know nothing yet."""
        self._service = service
        self._forget()

    def find(self, key: bytes) -> ResolvedHead | None:
        """Return what a head means, if it is known."""
        if self._generation != self._service.models.generation:
            self._forget()
        return self._heads.get(key)

    def learn(self, key: bytes, head: RequestHead) -> None:
        """Remember what a head means, if it begins requests that may be answered at once."""
        try:
            if not head.content_length or head.fields.encoding_of(head.content_length) is not None:
                return
        except MessageError:  # by something else
            return
        outcome = self._service.open(head)
        if isinstance(outcome, ResolvedHead) and outcome.is_inline(head.content_length):
            self._heads.put(key, outcome)

    def reply(self, resolved: ResolvedHead, body: bytes, watch: CallWatch | None) -> Reply | None:
        """Answer a whole request; None if it has to go the ordinary way."""
        return infer_at_once(resolved, self._plans, body, watch)

    def _forget(self) -> None:
        self._generation = self._service.models.generation
        self._heads: Cache[ResolvedHead] = Cache(_MAX_HEADS, _MAX_KEY_BYTES)
        self._plans = Plans()
