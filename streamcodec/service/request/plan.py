"""Plan: answers short requests whose body has come whole, and tells what the body of a longer one will be.

The ordinary way handles bodies of any size in any pieces: a decoder reads the header, checks it, and places one tensor
after the other. If the whole body is there, or at least its JSON header, all of that is known at once. So the header is
read and checked by the same functions, each tensor is copied to its array, and the model is called.

A `Recipe` is for all requests whose heads have the same form: model, version, media type and the like. It keeps nothing
that a number, an id or a value means, but for the JSON headers that it has read lately: the same bytes mean the same.

What is unusual is left to the ordinary way, with nothing changed: bodies that do not fit their header, headers that
take long, models with a placement of their own. Errors of the JSON header and of the model's metadata are those of the
ordinary way, because the same functions raise them in the same order.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from streamcodec.engine.cache import Repeated
from streamcodec.engine.errors import MessageError
from streamcodec.formats.v2.header.cache import is_immutable
from streamcodec.formats.v2.header.compact import MOST_BYTES, read_compactly
from streamcodec.formats.v2.header.parsing import parse_request_header
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.formats.v2.whole import CHECKED_KINDS, MAX_HEADER_BYTES, copied_arrays, whole_values
from streamcodec.service.answers import NO_ANSWER, Answer, Answers
from streamcodec.service.batches.keys import key_of
from streamcodec.service.models.model import InferenceRequest, Outputs
from streamcodec.service.observing import CallWatch
from streamcodec.service.replies import Reply, drop_tracebacks, error_reply
from streamcodec.service.request.inference import ResolvedHead

_MAX_PLANS: Final = 256

_NO_HEADER: Final = RequestHeader(tensors=())


class Plan:
    """What the body of a request is, or will be, and the calls of the model with it.

    Attributes:
        header: the JSON header.
        nbytes: of the body; of a header that is refused, the length of the body that it came with.
        is_fixed: whether any bytes are valid in its tensors, whose places are known.
        answer: the beginning of the last answer.
        refusal: the reply to a header that is refused, or does not fit the model; None if all is well.
        key: what agrees for requests that go together in a batch.
    """

    __slots__ = ("_recipe", "answer", "header", "is_fixed", "key", "nbytes", "refusal")

    def __init__(self, recipe: Recipe, header: RequestHeader, length: int) -> None:
        """Make the plan of a body whose header has so many bytes."""
        self._recipe = recipe
        self.header: RequestHeader = header
        self.answer: Answer = NO_ANSWER
        self.refusal: Reply | None = None
        is_fixed, nbytes = True, length
        for spec in header.tensors:
            nbytes += spec.nbytes
            if spec.data is not None or spec.datatype.kind in CHECKED_KINDS:
                is_fixed = False
        self.is_fixed: bool = is_fixed
        self.nbytes: int = nbytes
        batch, version = recipe.resolved.model.batch, recipe.resolved.version
        self.key: Hashable = None if batch is None else key_of(header, version)

    def request(self, body: memoryview) -> InferenceRequest:
        """Return the argument of the model's callable for a whole body, if the plan `is_fixed`."""
        resolved = self._recipe.resolved
        return resolved.request(self.header, resolved.sent(copied_arrays(self.header.tensors, body)), {})

    def reply(self, outputs: Outputs, header: RequestHeader) -> Reply:
        """Make the reply; see `ResolvedHead.reply`."""
        reply, self.answer = self._recipe.answers.reply(outputs, header, self.answer)
        return reply


class Recipe:
    """Answers the requests whose heads have one form.

    Attributes:
        resolved: what such a head decides. What it says about numbers is not used.
        answers: writes the answers.
    """

    __slots__ = ("_plans", "answers", "resolved")

    def __init__(self, resolved: ResolvedHead, plans: Plans | None = None) -> None:
        """Begin with the first head of the form; `plans` are those of other recipes, too."""
        self.resolved: ResolvedHead = resolved
        self._plans: Plans = Repeated(_MAX_PLANS) if plans is None else plans
        self.answers: Answers = Answers(resolved, resolved.model.name, resolved.version)

    def infer(
        self, header_length: int | None, body: memoryview, watch: CallWatch | None = None, *, may_refuse: bool = True
    ) -> Reply | None:
        """Answer a request.

        Args:
            header_length: of the JSON header; None if it is not declared. Then it has to be the whole body.
            body: all of it.
            watch: is told about the call of the model.
            may_refuse: whether the request may be refused here, for its JSON header.

        Returns:
            The reply; None if the ordinary way has to make it.
        """
        resolved = self.resolved
        is_read_here = header_length is None and len(body) <= MOST_BYTES  # else nothing has been done
        if not resolved.is_inline(len(body), is_planned=is_read_here) or (header_length or 0) > len(body):
            return None
        may_refuse = may_refuse and header_length is not None  # without a declared length, it may be another one
        plan = self._read(bytes(body[:header_length]), len(body))
        if plan is None or plan.refusal is not None:
            if plan is None or not may_refuse:
                return None
            if watch is not None:
                watch.request_id = plan.header.id
            return plan.refusal
        header = plan.header
        if plan.is_fixed:
            inputs = resolved.sent(copied_arrays(header.tensors, body))
        else:
            values = whole_values(header.tensors, body, resolved.headers.limits)
            if values is None:
                return None
            inputs = resolved.inputs(values)
        return resolved.call(resolved.request(header, inputs, {}), plan.reply, watch)

    def plan(self, text: bytes, nbytes: int) -> Plan | None:
        """Return the plan for a body that has not come whole; None if it cannot be planned.

        Args:
            text: the JSON header.
            nbytes: of the body.
        """
        plan = self._read(text, nbytes)
        return plan if plan is not None and plan.is_fixed and plan.refusal is None else None

    def _read(self, text: bytes, nbytes: int) -> Plan | None:
        """Read a JSON header, and check it; None if the ordinary way has to decide.

        Headers that have come twice lately need not be read again: the same bytes mean the same, also if they are
        refused.
        """
        key = self, text
        plan = self._plans.get(key)
        if plan is None:
            limits = self.resolved.headers.limits
            if (
                not 0 < len(text) <= min(nbytes, MOST_BYTES, limits.max_header_bytes)
                or nbytes > limits.max_message_bytes
            ):
                return None
            is_short, header = len(text) <= MAX_HEADER_BYTES, _NO_HEADER
            try:
                read = parse_request_header(text, limits) if is_short else read_compactly(text, limits)
                if read is None:
                    return None
                header = read
                plan = Plan(self, header, len(text))
                if plan.nbytes != nbytes:
                    return None
                self.resolved.check(header)
            except MessageError as error:
                plan = Plan(self, header, len(text))
                plan.nbytes, plan.refusal = nbytes, error_reply(error)
                drop_tracebacks(error)  # they refer to this frame, which refers to the plan
            if is_short and is_immutable(header) and self._plans.comes_again(key):
                self._plans.put(key, plan)
        return plan if plan.nbytes == nbytes else None


Plans = Repeated[tuple[Recipe, bytes], Plan]
"""What JSON headers mean to the model of a recipe."""


class Recipes:
    """The recipes of a service for one generation of its models. Threads may share them.

    What they remember is bounded for all of them together: some models and versions have recipes, and a client can name
    each of them in any number of heads.
    """

    def __init__(self) -> None:
        """Begin without recipes."""
        self._recipes: dict[Hashable, Recipe] = {}
        self._plans: Plans = Repeated(_MAX_PLANS)

    def of(self, resolved: ResolvedHead) -> Recipe | None:
        """Return the recipe for a head; None if its requests have to go the ordinary way."""
        if not resolved.is_planned or resolved.raw is not None:
            return None
        recipe = self._recipes.get(resolved.key)
        if recipe is None:
            recipe = self._recipes[resolved.key] = Recipe(resolved, self._plans)
        return recipe
