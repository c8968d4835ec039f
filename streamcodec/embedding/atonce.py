"""AtOnce: short requests of a framework whose whole body is there: a head and a body make a reply.

Most requests are such. They need no `Exchange`, no memory of their own in the budget, and no task or timer. If their
model must not run on the event loop, they need all of that, but their body has a plan, and no decoder. All others go
the ordinary way, and so does a request that is refused: its body is received again, by its events.

Nothing is known of a head before it has come. How the answers of its model begin is known from earlier ones (`Recipe`).
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Final, NamedTuple

from streamcodec.engine.errors import MessageError
from streamcodec.engine.memory.rows import Rows
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.models.pace import run_at_once
from streamcodec.runtime.observation import Observation
from streamcodec.service import Reply, ResolvedHead, Service
from streamcodec.service.models.listing import Listing
from streamcodec.service.request.exchange import Exchange, ExchangeStep
from streamcodec.service.request.plan import Recipe, Recipes

_WHOLE_BYTES: Final = 68 << 10
"""A body up to this size may be awaited before memory is asked for: a tensor of 64 KiB and its JSON header."""


class Opened(NamedTuple):
    """What a head means. It stays valid if the models change before the body has come: it began with the old model."""

    outcome: Reply | ResolvedHead | Listing
    """See `Service.open`."""
    recipe: Recipe | None
    """Answers such requests; None if they have to go the ordinary way."""
    model_timeout: float
    """See `ServerOptions`."""
    body: bytes | None = None
    """All of it, if it has come and `reply` has left it."""

    @property
    def whole_bytes(self) -> int | None:
        """Bytes of the body, if it may be answered at once; None if it has to be received by its events."""
        if not isinstance(self.outcome, ResolvedHead):
            return None
        nbytes = self.outcome.head.body_length
        return nbytes if nbytes and nbytes <= _WHOLE_BYTES else None

    def reply(self, body: bytes, observation: Observation | None) -> Reply | None:
        """Answer a whole request; None if it has to go the ordinary way."""
        if self.recipe is None or not isinstance(self.outcome, ResolvedHead):
            return None
        return run_at_once(self.recipe, self.outcome.header_length, memoryview(body), observation, self.model_timeout)


class AtOnce:
    """Opens the heads of one service. Threads may share it.

    The recipes belong to one generation of models, so no model is kept when it has been removed. A thread takes them
    before it asks for the models, so a recipe for an old model goes to recipes that are not used any more.
    """

    def __init__(self, service: Service, model_timeout: float = math.inf) -> None:
        """Begin without recipes; for `model_timeout` see `ServerOptions`."""
        self._model_timeout = model_timeout
        self._service = service
        self._recipes = Recipes()
        self._generation = service.models.generation

    def open(self, head: RequestHead) -> Opened:
        """Decide on a request by its head."""
        generation = self._service.models.generation
        if self._generation != generation:
            self._recipes = Recipes()
            self._generation = generation
        recipes = self._recipes
        outcome = self._service.open(head)
        recipe = recipes.of(outcome) if isinstance(outcome, ResolvedHead) else None
        return Opened(outcome, recipe, self._model_timeout)


def begin(exchange: Exchange, head: RequestHead, opened: Opened | None) -> ExchangeStep:
    """Begin a request that has no reply yet; `opened` is what its head means, if that is known. See `Exchange.begin`.

    After `ExchangeStep.FILL`, the body of `opened` has been taken.

    Raises:
        MessageError: the request is refused.
    """
    outcome = None if opened is None else opened.outcome
    if isinstance(outcome, Reply):
        return exchange.refuse(head, outcome)
    if opened is None or not isinstance(outcome, ResolvedHead):
        return exchange.begin(head)
    plan, body, length = None, opened.body, outcome.header_length
    if opened.recipe is not None and body is not None and length and outcome.is_known:
        with suppress(MessageError):  # the ordinary way raises it, in the order of its checks
            plan = opened.recipe.plan(body[:length], len(body))
    return exchange.begin(head, outcome, plan, None if plan is None or body is None else memoryview(body))


def is_there(reply: Reply) -> bool:
    """Whether no part of a reply is made while it is sent."""
    return Rows not in map(type, reply.buffers)
