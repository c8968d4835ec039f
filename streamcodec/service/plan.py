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

from collections.abc import Hashable, Sequence
from math import prod
from typing import Any, Final, cast

import numpy as np

from streamcodec.engine.datatypes import datatype_of, to_wire
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import LocalProtocolError, MessageError
from streamcodec.engine.limits import Limits
from streamcodec.engine.placement import ALIGNMENT, aligned_bytes, byte_view
from streamcodec.engine.record import constructor
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD
from streamcodec.formats.v2.header import parse_request_header
from streamcodec.formats.v2.headercache import is_immutable
from streamcodec.formats.v2.jsonoutput import to_json
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.service.inference import Arrays, ResolvedHead, check_outputs
from streamcodec.service.models import Inputs, Outputs
from streamcodec.service.observing import CallWatch
from streamcodec.service.planned import copied_arrays
from streamcodec.service.replies import Reply, WrittenFields, error_reply

MAX_HEADER_BYTES: Final = 4 << 10
"""Most bytes of a JSON header that is read at once. A longer one may take too long for one turn of an event loop."""

_MAX_PLANS: Final = 256
_MAX_FORMS: Final = 64
"""Outputs of different names and dtypes whose form a recipe keeps; a model has few."""

_CHECKED_KINDS: Final = "Ob"
"""Kinds of datatypes in whose bytes something can be wrong."""

Answer = tuple[list[Any], bytes, Sequence[tuple[str, str]]]
"""The id and the form of each output; the JSON header for these; and the fields."""

_TYPE: Final = (("Content-Type", "application/octet-stream"),)
_LINES: Final = (
    b"Content-Type: application/octet-stream\r\n%b: %%d\r\nContent-Length: %%d\r\n" % HEADER_LENGTH_FIELD.encode()
)

NO_ANSWER: Final[Answer] = [], b"", ()

_reply: Final = constructor(Reply)


class Plan:
    """What the body of a request is, or will be, and the calls of the model with it.

    Attributes:
        header: the JSON header.
        nbytes: of the body.
        is_fixed: whether any bytes are valid in its tensors, whose places are known.
        answer: the beginning of the last answer.
    """

    __slots__ = ("_recipe", "answer", "header", "is_fixed", "nbytes")

    def __init__(self, recipe: Recipe, header: RequestHeader, length: int) -> None:
        """Make the plan of a body whose header, of so many bytes, has been accepted."""
        self._recipe = recipe
        self.header: RequestHeader = header
        self.answer: Answer = NO_ANSWER
        is_fixed, nbytes = True, length
        for spec in header.tensors:
            nbytes += spec.nbytes
            if spec.data is not None or spec.datatype.kind in _CHECKED_KINDS:
                is_fixed = False
        self.is_fixed: bool = is_fixed
        self.nbytes: int = nbytes

    def reply(self, outputs: Outputs, header: RequestHeader) -> Reply:
        """Make the reply; see `ResolvedHead.reply`."""
        return self._recipe.reply(outputs, header, self)


class Recipe:
    """Answers the requests whose heads have one form.

    Attributes:
        resolved: what such a head decides. What it says about numbers is not used.
    """

    __slots__ = ("_entries", "_plans", "_start", "resolved")

    def __init__(self, resolved: ResolvedHead, plans: Plans | None = None) -> None:
        """Begin with the first head of the form; `plans` are those of other recipes, too."""
        self.resolved: ResolvedHead = resolved
        self._plans: Plans = {} if plans is None else plans
        model, version = to_json(resolved.model.name), to_json(resolved.version)
        self._start = f'{{"model_name":{model},"model_version":{version},'
        self._entries: dict[tuple[str, np.dtype[Any]], tuple[str, str]] = {}

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
        if not resolved.is_inline(len(body)) or (header_length or 0) > len(body):
            return None
        try:
            plan = self._read(bytes(body[:header_length]), len(body))
        except MessageError as error:  # without a declared length, it may be another one
            return error_reply(error) if may_refuse and header_length is not None else None
        if plan is None:
            return None
        header = plan.header
        inputs = copied_arrays(header, body) if plan.is_fixed else _values(header, body, resolved.headers.limits)
        if inputs is None:
            return None
        return resolved.call(resolved.request(header, inputs, {}), plan.reply, watch)

    def plan(self, text: bytes, nbytes: int) -> Plan | None:
        """Return the plan for a body that has not come whole; None if it cannot be planned.

        Args:
            text: the JSON header.
            nbytes: of the body.

        Raises:
            MessageError: the header is refused.
        """
        plan = self._read(text, nbytes)
        return plan if plan is not None and plan.is_fixed else None

    def _read(self, text: bytes, nbytes: int) -> Plan | None:
        """Read a JSON header, and check it; None if the ordinary way has to decide.

        Headers that have been read lately need not be read again: the same bytes mean the same.

        Raises:
            MessageError: it is refused.
        """
        plan = self._plans.get((self, text))
        if plan is None:
            limits = self.resolved.headers.limits
            most = min(MAX_HEADER_BYTES, limits.max_header_bytes)
            if not 0 < len(text) <= min(most, nbytes) or nbytes > limits.max_message_bytes:
                return None
            plan = Plan(self, parse_request_header(text, limits), len(text))
            if plan.nbytes == nbytes:
                try:
                    self.resolved.check(plan.header)
                except MessageError:  # the ordinary way raises it, and tells its observers the id
                    return None
                if is_immutable(plan.header):
                    self._keep(text, plan)
        return plan if plan.nbytes == nbytes else None

    def _keep(self, text: bytes, plan: Plan) -> None:
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()  # to choose which to drop would take longer than to read it
        self._plans[self, text] = plan

    def reply(self, outputs: Outputs, header: RequestHeader, plan: Plan) -> Reply:
        """Make the reply from a model's outputs.

        Usual outputs are written here: arrays of a fixed size, all of them, in binary. The bytes are those of
        `ResolvedHead.reply`.
        """
        resolved = self.resolved
        if header.outputs or not header.parameters.get("binary_data_output") or resolved.media_type is not None:
            return resolved.reply(outputs, header)
        forms: list[Any] = [header.id]
        views, nbytes = [], 0
        for name, array in outputs.items():
            # The mark of a dtype may say its datatype, and is not compared with the rest of a dtype.
            if type(array) is not np.ndarray or not array.size or array.dtype.metadata is not None:
                return resolved.reply(outputs, header)
            forms.append((name, array.dtype, array.shape))
            nbytes += array.nbytes
            views.append(_bytes_of(array))
        answer = plan.answer  # read once, because threads share it
        if forms != answer[0]:
            written = self._write(forms, nbytes, outputs)
            if written is None:
                return resolved.reply(outputs, header)
            plan.answer = answer = written
        _, head, fields = answer
        return _reply(status=200, headers=fields, buffers=(head, *views), body_length=len(head) + nbytes)

    def _write(self, forms: list[Any], nbytes: int, outputs: Outputs) -> Answer | None:
        """Write the JSON header of an answer, and its fields; None if the outputs are not usual ones."""
        entries = []
        for name, dtype, shape in forms[1:]:
            entry = self._entry(name, dtype)
            if entry is None:
                return None
            size = dtype.itemsize * prod(shape)
            entries.append(f"{entry[0]}{','.join(map(str, shape))}{entry[1]}{size}}}}}")
        if not entries:
            return None
        if self.resolved.model.outputs is not None:
            check_outputs(self.resolved.model, cast("Arrays", outputs))
        id_ = forms[0]
        text = self._start if id_ is None else f'{self._start}"id":{to_json(id_)},'
        head = f'{text}"outputs":[{",".join(entries)}]}}'.encode()
        head += b" " * (-len(head) % ALIGNMENT)
        length, total = len(head), len(head) + nbytes
        fields = WrittenFields((*_TYPE, (HEADER_LENGTH_FIELD, str(length)), ("Content-Length", str(total))))
        fields.lines = _LINES % (length, total)
        return forms, head, fields

    def _entry(self, name: str, dtype: np.dtype[Any]) -> tuple[str, str] | None:
        """Return what is written before and after the shape of an output; None if the ordinary way writes it."""
        key = (name, dtype)
        entry = self._entries.get(key)
        if entry is None and (entry := _new_entry(name, dtype)) is not None and len(self._entries) < _MAX_FORMS:
            self._entries[key] = entry
        return entry


Plans = dict[tuple[Recipe, bytes], Plan]
"""What JSON headers mean to the model of a recipe."""


class Recipes:
    """The recipes of a service for one generation of its models. Threads may share them.

    What they remember is bounded for all of them together: some models and versions have recipes, and a client can name
    each of them in any number of heads.
    """

    def __init__(self) -> None:
        """Begin without recipes."""
        self._recipes: dict[Hashable, Recipe] = {}
        self._plans: Plans = {}

    def of(self, resolved: ResolvedHead) -> Recipe | None:
        """Return the recipe for a head; None if its requests have to go the ordinary way."""
        if not resolved.is_planned or resolved.raw is not None:
            return None
        recipe = self._recipes.get(resolved.key)
        if recipe is None:
            recipe = self._recipes[resolved.key] = Recipe(resolved, self._plans)
        return recipe


def _new_entry(name: str, dtype: np.dtype[Any]) -> tuple[str, str] | None:
    if type(name) is not str or not name:
        return None
    try:
        datatype = datatype_of(dtype)
    except LocalProtocolError:
        return None
    if datatype.is_bytes or dtype != datatype.dtype:
        return None
    return f'{{"name":{to_json(name)},"shape":[', f'],"datatype":"{datatype.name}","parameters":{{"binary_data_size":'


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the binary form of an array that has elements, in the byte order of the wire."""
    try:
        return array.data.cast("B")
    except (TypeError, ValueError):  # not contiguous, or a type without a Python view
        return byte_view(to_wire(array))


def _values(header: RequestHeader, body: memoryview, limits: Limits) -> Arrays | None:
    """Return the tensors of a whole body; None if the ordinary way has to refuse one."""
    values: dict[str, np.ndarray[Any, Any] | Elements] = {}
    for spec in header.tensors:
        if spec.data is not None:
            values[spec.name] = spec.data
            continue
        start = spec.offset or 0
        memory = aligned_bytes(spec.nbytes)
        memory.data[:] = body[start : start + spec.nbytes]
        if spec.datatype.is_bytes:
            try:
                values[spec.name] = Elements.from_wire(memory, spec.shape)
            except MessageError:
                return None
            if spec.nbytes > limits.max_element_bytes:
                return None
        elif spec.datatype.kind == "b" and spec.nbytes and memory.max() > 1:
            return None
        else:
            values[spec.name] = np.ndarray(spec.shape, spec.datatype.dtype, memory)
    return Inputs(values)
