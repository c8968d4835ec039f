"""KnownHeads: small requests with known heads, for frameworks that read heads themselves.

It does for a framework what `Express` does for connections of the bundled server. The meaning of a head is cached by
its content, and a whole small body needs only its plan. When the models change, the cache is cleared.
"""

from __future__ import annotations

from typing import Final

from streamcodec.engine.cache import Cache
from streamcodec.engine.errors import MessageError
from streamcodec.http.messages import RequestHead
from streamcodec.service import Reply, ResolvedHead, Service
from streamcodec.service.observing import CallWatch
from streamcodec.service.plan import Plans, infer_at_once

MEANINGFUL_FIELDS: Final = frozenset(
    {
        b"accept-encoding",
        b"access-control-request-headers",
        b"access-control-request-method",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"expect",
        b"host",
        b"inference-header-content-length",
        b"origin",
        b"transfer-encoding",
    }
)
"""Fields that the service, or the reading of a head, looks at."""

_MAX_HEADS: Final = 256
_MAX_KEY_BYTES: Final = 2 << 10


class KnownHead:
    """What a head means, and the plans that belong to it.

    It holds even if the models change before the body has come: the request began with the model that there was.
    """

    __slots__ = ("_plans", "_resolved", "head", "length")

    def __init__(self, resolved: ResolvedHead, plans: Plans, length: int) -> None:
        """Remember."""
        self._resolved = resolved
        self._plans = plans
        self.head: RequestHead = resolved.head
        self.length: int = length

    def reply(self, body: bytes, watch: CallWatch | None) -> Reply | None:
        """Answer a whole request; None if it has to go the ordinary way."""
        return infer_at_once(self._resolved, self._plans, body, watch)


class KnownHeads:
    """The cached meaning of heads, by keys that the framework makes of them. Threads may share it.

    A thread that clears the cache replaces all of it, and sets last for which models it is. A thread that adds an entry
    first stores where it will write. So an entry for models that are gone goes to a cache that nobody reads any more.
    """

    def __init__(self, service: Service) -> None:
        """Know nothing yet."""
        self._service = service
        self._known = _Known()
        self._generation = service.models.generation

    def find(self, key: bytes) -> KnownHead | None:
        """Return what a head means, if it is known."""
        generation = self._service.models.generation
        if self._generation != generation:
            self._known = _Known()
            self._generation = generation
        return self._known.heads.get(key)

    def learn(self, key: bytes, head: RequestHead) -> None:
        """Remember what a head means, if it begins requests that may be answered at once."""
        known = self._known
        try:
            if not head.content_length or head.fields.encoding_of(head.content_length) is not None:
                return
        except MessageError:  # by something else
            return
        outcome = self._service.open(head)
        if isinstance(outcome, ResolvedHead) and outcome.is_inline(head.content_length):
            known.heads.put(key, KnownHead(outcome, known.plans, head.content_length))


class _Known:
    """Of one generation of models."""

    def __init__(self) -> None:
        self.heads: Cache[KnownHead] = Cache(_MAX_HEADS, _MAX_KEY_BYTES)
        self.plans = Plans()
