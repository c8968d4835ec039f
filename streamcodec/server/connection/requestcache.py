"""RequestCache: recognizes the heads of usual requests, and answers small ones that have come whole in one step.

The ordinary way of a request handles bodies of any size in any pieces. A small request arrives as a whole, in one read,
and its model may run at once. Then nothing must be kept between two steps, which saves most of the cost. A larger one
takes several steps, but begins with the same knowledge of its head and its JSON header.

One strict expression reads the head (`http.plainheads`). It tells names from numbers. The names (method, target, host,
media type and the like) are the *form* of the head. What a form means is kept: the model, its version, and how its
answers begin (`Recipe`). The numbers and ids are read each time. So it makes no difference whether a request has been
seen before. When a model has been added, removed or replaced, all forms are forgotten.

This is a short cut and never another way. Each step asks those who decide on the ordinary way (the service, the parser
of JSON headers, the model's metadata). At the first special case (another head, an incomplete body, a body that does
not fit its header) it leaves everything unchanged, and the session begins at the first byte on the ordinary way. So
all ways give the same answers; tests compare them for all cases of the corpus, and for all cuts.
"""

from __future__ import annotations

import math
import re
from typing import Final

from streamcodec.engine.cache import Cache, Repeated
from streamcodec.engine.compression.inflate import inflate_short
from streamcodec.engine.errors import MessageError
from streamcodec.http.connection import Incoming
from streamcodec.http.heads.messages import Fields, RequestHead
from streamcodec.http.heads.plain import (
    ACCEPTED,
    CHUNKED,
    CODING,
    HEADER_LENGTH,
    HOST_FIELD,
    LENGTH,
    MEDIA_TYPE,
    METHOD,
    OPTION,
    OTHER,
    TARGET,
    match_plain_head,
)
from streamcodec.http.scratch import LONG_SCRATCH_BYTES, SCRATCH_BYTES
from streamcodec.runtime.models.pace import run_at_once
from streamcodec.runtime.observation import Observation
from streamcodec.service import Reply, ResolvedHead, Service
from streamcodec.service.request.plan import Plan, Recipe, Recipes
from streamcodec.service.routes import UPLOADS

_MAX_HEAD_BYTES: Final = 2 << 10
"""Longer heads go the ordinary way."""

_HEAD_END: Final = b"\r\n\r\n"
_MAX_HEADS: Final = 256
_MAX_FORMS: Final = 256
_MAX_FORM_BYTES: Final = _MAX_HEAD_BYTES + 64

_MAX_REPLY_BYTES: Final = 4 << 10
"""Longer replies are made anew: a client can ask for the metadata of one large model with any number of heads."""

_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"
"""What follows the data of the only chunk of a body."""

_FORM: Final = (METHOD, TARGET, HOST_FIELD, MEDIA_TYPE, ACCEPTED, CODING)
"""What is a name in a head. All else are numbers, or mean nothing more."""

_METHODS: Final = {b"GET", b"POST"}

_Form = tuple[bytes | None, ...]

_NO_FIELDS: Final = Fields(())


class Recognized:
    """A plain head.

    Attributes:
        text: the head as received, up to and including the blank line.
        length: bytes of the body; None if it comes in chunks.
        size: bytes of the request, head included, as far as the head tells.
        header_length: the declared length of the JSON header; None if it is not declared.
        is_compressed: whether the body is, with gzip.
        is_last: whether the client wants the connection to be closed.
        form: what its names are.
        recipe: answers requests of this form; None if it is no usual inference, or was not met before.
        reply: to this head, if it lasts and is short.
        resolved: what it decides, if somebody has asked.
    """

    def __init__(self, text: bytes, found: re.Match[bytes], generation: int) -> None:
        """Take the result of the expression."""
        length, header_length, option, coding = found.group(LENGTH, HEADER_LENGTH, OPTION, CHUNKED)
        self.text: bytes = text
        self.generation: int = generation
        self.length: int | None = None if coding else int(length) if length else 0
        self.size: int = len(text) + (self.length or 0)
        self.is_compressed: bool = found[CODING] is not None
        self.is_last: bool = option is not None and len(option) == len(b"close")
        self.header_length: int | None = int(header_length) if header_length else None
        self.form: _Form = ()
        self.recipe: Recipe | None = None
        self.reply: Reply | None = None
        self.resolved: ResolvedHead | None = None
        self._found = found
        self._head: RequestHead | None = None
        self._outline: RequestHead | None = None

    @property
    def is_long_json(self) -> bool:
        """Whether the body is JSON without binary tensors, and so long that it is worth to be read in one piece."""
        is_json = self.recipe is not None and self.header_length is None and self.length is not None
        return is_json and SCRATCH_BYTES < self.size <= LONG_SCRATCH_BYTES

    @property
    def head(self) -> RequestHead:
        """The whole head."""
        if self._head is None:
            self._head = self._read(Fields.of_accepted(self.text))
        return self._head

    @property
    def outline(self) -> RequestHead:
        """The head without its fields, for records that read them when somebody asks."""
        if self._outline is None:
            self._outline = self._read(_NO_FIELDS)
        return self._outline

    def _read(self, fields: Fields) -> RequestHead:
        method, target = self._found[METHOD].decode(), self._found[TARGET].decode()
        return RequestHead(method=method, target=target, fields=fields, content_length=self.length)


class RequestCache:
    """Answers whole small requests; one for all connections of a service."""

    def __init__(self, service: Service, model_timeout: float = math.inf) -> None:
        """Begin without any form; for `model_timeout` see `ServerOptions`."""
        self._service = service
        self.model_timeout: float = model_timeout
        self._models = service.models
        self._most = min(_MAX_HEAD_BYTES, service.limits.max_field_bytes)
        self._forget()

    def find(self, incoming: Incoming, last: Recognized | None = None) -> Recognized | None:
        """Recognize the head of the next request.

        Args:
            incoming: the request.
            last: the head that this connection has sent before it; the same bytes need not be read again.

        Returns:
            None if the head is not complete, or not plain.
        """
        generation = self._models.generation
        data = incoming.peek(self._most)
        if last is not None and last.generation == generation and data.startswith(last.text):
            return last
        if self._generation != generation:
            self._forget()
        end = data.find(_HEAD_END) + len(_HEAD_END)
        if end < len(_HEAD_END):
            return None
        text = data[:end]
        known = self._heads.get(text)
        if known is not None:
            return known
        found = match_plain_head(text, self._service.limits)
        if found is None or found[OTHER] is not None or found[METHOD] not in _METHODS:
            return None
        recognized = Recognized(text, found, generation)
        recognized.form = form = found.group(*_FORM)
        recognized.recipe = self._forms.get(form)
        if self._heads.comes_again(text):
            self._heads.put(text, recognized)
        return recognized

    def reply(self, recognized: Recognized, incoming: Incoming, observation: Observation | None = None) -> Reply | None:
        """Answer the next request, if it is complete and quick to answer.

        Args:
            recognized: its head, as from `find`.
            incoming: the request.
            observation: of the request; it is used further if the request goes the ordinary way.

        Returns:
            The reply; the request is then removed from `incoming`. None if the request has to go the ordinary way; then
            nothing has changed.
        """
        whole = _whole_body(recognized, incoming)
        if whole is None:
            return None
        body, size = whole
        if observation is not None:
            observation.bytes_in = size
            observation.begin(recognized.outline, recognized.text)
        may_refuse = recognized.length is not None  # else the connection has to be closed
        reply = recognized.reply
        if reply is None and recognized.recipe is None:
            reply = self._open(recognized)
        if (recipe := recognized.recipe) is not None:
            length, timeout = recognized.header_length, self.model_timeout
            reply = run_at_once(recipe, length, body, observation, timeout, may_refuse=may_refuse)
        elif not may_refuse:
            return None
        if reply is not None:
            incoming.skip(size)
            if recognized.is_last:
                incoming.close()
        return reply

    def begin(
        self, recognized: Recognized, incoming: Incoming
    ) -> tuple[ResolvedHead, Plan | None, memoryview | None] | None:
        """Return what a head decides, the plan of its body, and the body if it is there; for what takes several steps.

        Args:
            recognized: its head.
            incoming: the request.

        Returns:
            None if it is no inference, or cannot be answered now. No plan if the JSON header has not come, is unusual,
            or is refused.
        """
        if recognized.resolved is None:
            self._open(recognized)
        resolved = recognized.resolved
        if resolved is None or not resolved.model.is_ready:
            return None
        recipe, length, start = recognized.recipe, recognized.header_length, len(recognized.text)
        if recipe is None or not length or recognized.length is None or not resolved.is_known:
            return resolved, None, None
        body = incoming.peek_from(start, recognized.size)
        try:
            plan = recipe.plan(bytes(body[:length]), recognized.length) if len(body) >= length else None
        except MessageError:  # the ordinary way raises it, in the order of its checks
            plan = None
        return resolved, plan, body if plan is not None and len(body) == recognized.length else None

    def whole(self, recognized: Recognized, incoming: Incoming) -> tuple[ResolvedHead, Plan, memoryview] | None:
        """Return the same for a request for a batch that has come whole; None if it has to go the ordinary way."""
        recipe, size = recognized.recipe, recognized.size
        if recipe is None or recipe.resolved.model.batch is None or incoming.kept < size:
            return None
        begun = None if recognized.is_compressed else self.begin(recognized, incoming)
        if begun is None:
            return None
        resolved, plan, body = begun
        return None if plan is None or body is None else (resolved, plan, body)

    def _forget(self) -> None:
        """Forget all forms, which were learned for other models."""
        self._generation = self._models.generation
        self._heads: Repeated[bytes, Recognized] = Repeated(_MAX_HEADS)
        self._forms: Cache[_Form, Recipe] = Cache(_MAX_FORMS, _MAX_FORM_BYTES)
        self._recipes = Recipes()

    def _open(self, recognized: Recognized) -> Reply | None:
        """Have the service decide on a head; return its reply, if there is one at once."""
        target = recognized.head.target
        if target.startswith(UPLOADS) or self._service.has_page(target):  # whose replies have any fields
            return None
        outcome = self._service.open(recognized.head)
        if isinstance(outcome, Reply):
            if outcome.refusal is not None:
                outcome.refusal.__traceback__ = None  # it refers to this frame, which refers to the reply
            if outcome.lasts and outcome.body_length <= _MAX_REPLY_BYTES:
                recognized.reply = outcome
            return outcome
        if isinstance(outcome, ResolvedHead):
            recognized.resolved = outcome
            recipe = self._recipes.of(outcome)
            if recipe is not None and outcome.media_type is None:  # which would have a number in it
                recognized.recipe = recipe
                self._forms.put(recognized.form, recipe)
        return None


def _whole_body(recognized: Recognized, incoming: Incoming) -> tuple[memoryview, int] | None:
    """Return the body of a request, as its decoder gets it, and the bytes of the request; None if it is not there."""
    size, kept, recipe = recognized.size, incoming.kept, recognized.recipe
    if kept < size or (recipe is not None and not recipe.resolved.may_be_inline):
        return None
    body = incoming.peek_from(len(recognized.text), size if recognized.length is not None else kept)
    if recognized.length is None:
        chunk = _CHUNK.match(body)
        if chunk is None:
            return None
        start = chunk.end()
        end = start + int(chunk[1], 16)
        if end == start or bytes(body[end : end + len(_LAST_CHUNK)]) != _LAST_CHUNK:
            return None
        body, size = body[start:end], size + end + len(_LAST_CHUNK)
    if not recognized.is_compressed:
        return body, size
    inflated = inflate_short(body) if recipe is None or recipe.resolved.is_inline(len(body)) else None
    return None if inflated is None else (memoryview(inflated), size)
