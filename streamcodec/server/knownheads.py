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
"""Fields that the service or the parser of heads uses."""

_MAX_HEADS: Final = 256
_MAX_KEY_BYTES: Final = 2 << 10


class KnownHead:
    """The meaning of a head, and its plans.

    It stays valid if the models change before the body has arrived: the request began with the old model.
    """

    __slots__ = ("_plans", "_resolved", "head", "length")

    def __init__(self, resolved: ResolvedHead, plans: Plans, length: int) -> None:
        """Store the meaning."""
        self._resolved = resolved
        self._plans = plans
        self.head: RequestHead = resolved.head
        self.length: int = length

    def reply(self, body: bytes, watch: CallWatch | None) -> Reply | None:
        """Answer a whole request; None if it has to go the ordinary way."""
        return infer_at_once(self._resolved, self._plans, body, watch)


class KnownHeads:
    """A cache of the meaning of heads. The framework makes the keys. Threads may share it.

    A thread that clears the cache replaces it by a new one, and then sets the generation of its models. A thread that
    adds an entry first takes a reference to the cache. So an entry for old models goes to a cache that is not read any
    more.
    """

    def __init__(self, service: Service) -> None:
        """Begin with an empty cache."""
        self._service = service
        self._known = _Known()
        self._generation = service.models.generation

    def find(self, key: bytes) -> KnownHead | None:
        """Return the meaning of a head; None if it is not known."""
        generation = self._service.models.generation
        if self._generation != generation:
            self._known = _Known()
            self._generation = generation
        return self._known.heads.get(key)

    def learn(self, key: bytes, head: RequestHead) -> None:
        """Store the meaning of a head, if its requests may be answered at once."""
        known = self._known
        try:
            if not head.content_length or head.fields.encoding_of(head.content_length) is not None:
                return
        except MessageError:  # the ordinary way refuses it
            return
        outcome = self._service.open(head)
        if isinstance(outcome, ResolvedHead) and outcome.is_inline(head.content_length):
            known.heads.put(key, KnownHead(outcome, known.plans, head.content_length))


class _Known:
    """The caches for one generation of models."""

    def __init__(self) -> None:
        self.heads: Cache[KnownHead] = Cache(_MAX_HEADS, _MAX_KEY_BYTES)
        self.plans = Plans()
