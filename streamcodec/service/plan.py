"""Plan: a cache of what a known JSON header means to its model.

A client that repeats a request sends the same JSON header with other numbers after it. The positions of the tensors,
the check against the model and the beginning of the answer do not change. What remains is to copy, to compute, and to
send. A plan belongs to one model, version, media type and set of limits. It is immutable, except that it remembers the
beginnings of answers by the form of the outputs.

Many clients give each request another `id`. So a plan is known by its header without the id (`_Text`), if the id is
plain text of the same length. The id changes nothing but itself, in the request and in the answer.

Only requests whose layout is always the same are planned. This excludes JSON tensors; BYTES, whose lengths vary; and
BOOL, whose bytes must be checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import numpy as np

from streamcodec.engine.cache import Cache
from streamcodec.engine.datatypes import datatype_of, to_wire
from streamcodec.engine.errors import MessageError
from streamcodec.engine.events import NEED_DATA, NEED_TURN, EndOfMessage
from streamcodec.engine.placement import aligned_bytes, byte_view
from streamcodec.engine.record import record
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.encoder import Tensor
from streamcodec.formats.v2.header import parse_request_header
from streamcodec.formats.v2.headercache import is_immutable
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.service.inference import Arrays, ResolvedHead
from streamcodec.service.models import Outputs
from streamcodec.service.observing import CallWatch
from streamcodec.service.replies import Reply, message_reply

_UNPLANNED_KINDS: Final = "Ob"
_PLAIN_OUTPUT: Final = frozenset({np.ndarray})
_MAX_PLANS: Final = 256
_MAX_KEY_BYTES: Final = 4 << 10
_ID: Final = re.compile(rb'"id"[ \t\r\n]*:[ \t\r\n]*"([ !#-\[\]-~]{1,128})"')
"""The id in a JSON header, if it is plain: none of its characters is written in another way in JSON."""
_ID_NAME: Final = b'"id"'
_NO_ID: Final = b"\0"
"""Stands for each character of the id. It cannot occur in a JSON header that is accepted."""
_MAX_FORMS: Final = 16
"""Different forms of the outputs of one request; usually there is one."""

_QUICK_SECONDS: Final = 0.0005
"""CPU time of a call that may run on an event loop: as long as two small requests with heads never seen before."""
_STALL_SECONDS: Final = 0.002
"""A call that took longer must have a thread next time, although other threads may have been the reason."""
_LEAST_CALLS: Final = 2
"""Quick calls in a row, in a thread, before one runs on an event loop."""


@record()
class _Beginning:
    """The beginning of an answer whose outputs have a certain form."""

    headers: tuple[tuple[str, str], ...]
    """Fields of the reply."""
    text: bytes
    """The JSON header, up to the id if ids differ."""
    rest: bytes
    """The JSON header behind the id; empty if ids do not differ."""
    names: tuple[str, ...]
    """Names of the outputs after it, in order."""
    body_length: int
    """Bytes of the text and the outputs."""


class Plans:
    """The plans of a service, by model, version, media type and JSON header."""

    def __init__(self) -> None:
        """Begin without plans."""
        self._known: Cache[Plan] = Cache(_MAX_PLANS, _MAX_KEY_BYTES)

    def find(self, resolved: ResolvedHead, body: bytes | memoryview) -> tuple[Plan, RequestHeader] | None:
        """Return the plan for a body, and its JSON header; None if the request cannot be planned.

        Args:
            resolved: what the head of the request means.
            body: all of it, or as much as has arrived.

        Raises:
            RemoteProtocolError: the body would be refused.
        """
        length, body_length = resolved.header_length or 0, resolved.body_length
        if length > len(body) or body_length is None or not resolved.is_planned:
            return None  # a slice would stop at the end of the body, and hide the error
        text = bytes(body[:length])
        key = resolved.key + text
        plan = self._known.get(key)
        if plan is not None:
            return (plan, plan.header) if plan.body_length == body_length else None
        id_ = _plain_id(text)
        key_of_any = key if id_ is None else resolved.key + _without(text, id_)
        plan = self._known.get(key_of_any)
        if plan is None:
            plan = _plan(resolved, text, body_length, id_)
            if plan is not None and is_immutable(plan.header):
                self._known.put(key_of_any if plan.has_id else key, plan)
        if plan is None or plan.body_length != body_length:
            return None
        return plan, plan.header if id_ is None or not plan.has_id else _with_id(plan.header, id_[1].decode())


def _plain_id(text: bytes) -> re.Match[bytes] | None:
    """Find what can only be the id of a JSON header, if it is plain.

    A name occurs once, and no escape could write it in another way. So whether the name is that of the id is the same
    for all headers that differ only in its value.
    """
    return _ID.search(text) if text.count(_ID_NAME) == 1 and b"\\" not in text else None


def _with_id(header: RequestHeader, id_: str) -> RequestHeader:
    """Return the header with another id. It names each field, because `replaced` takes four times as long."""
    return RequestHeader(tensors=header.tensors, outputs=header.outputs, id=id_, parameters=header.parameters)


def _without(text: bytes, id_: re.Match[bytes]) -> bytes:
    """Return a JSON header with another value of the same length as its id, which no other header has."""
    start, end = id_.span(1)
    return text[:start] + _NO_ID * (end - start) + text[end:]


def infer_at_once(
    resolved: ResolvedHead, plans: Plans, body: bytes | memoryview, watch: CallWatch | None = None
) -> Reply | None:
    """Call the model with a whole body that is not compressed.

    Returns:
        The reply; None if making it takes long, or the body is refused. The ordinary way then handles the request.
    """
    if not resolved.is_inline(len(body)):
        return None
    try:
        if (planned := plans.find(resolved, body)) is not None and planned[0].body_length == len(body):
            plan, header = planned
            return plan.run(header, body, watch)
        inference = resolved.begin()
        inference.watch = watch
        inference.decoder.feed(body)
        while not ((event := inference.decoder.next_event()) is NEED_DATA or event is NEED_TURN):
            inference.receive(event)
            if isinstance(event, EndOfMessage):
                return inference.run()
    except MessageError:
        pass
    return None


def _plan(resolved: ResolvedHead, text: bytes, body_length: int, id_: re.Match[bytes] | None) -> Plan | None:
    limits = resolved.headers.limits
    is_too_long = len(text) > limits.max_header_bytes or body_length > limits.max_message_bytes
    if is_too_long or not text:
        return None
    header = parse_request_header(text, limits)  # cached as a part of the plan
    end = len(text)
    for spec in header.tensors:  # a generator for each question would take a tenth of the plan's time
        if spec.data is not None or spec.datatype.kind in _UNPLANNED_KINDS:
            return None
        end += spec.nbytes
    if end != body_length:
        return None
    resolved.check(header)
    return Plan(resolved, header, body_length, has_id=id_ is not None and header.id == id_[1].decode())


class Plan:
    """Answers requests with one header, or with headers that differ only in their ids.

    Attributes:
        header: of the first request.
        body_length: bytes of the body.
        has_id: whether the plan is for any id of the same length.
    """

    def __init__(self, resolved: ResolvedHead, header: RequestHeader, body_length: int, *, has_id: bool) -> None:
        """Make a plan for a header that has been accepted."""
        self._resolved = resolved
        self.header = header
        self.body_length = body_length
        self.has_id = has_id
        self._beginnings: dict[tuple[Any, ...], _Beginning] = {}
        self._quick_calls = 0

    def measured(self, seconds: float, cpu_seconds: float) -> None:
        """Take the time of a call, with its reply.

        Args:
            seconds: that passed, also while other threads had the interpreter.
            cpu_seconds: that the thread worked.
        """
        if seconds > _STALL_SECONDS:
            self._quick_calls = 0
        elif cpu_seconds <= _QUICK_SECONDS:
            self._quick_calls += 1

    @property
    def is_quick(self) -> bool:
        """Whether the last calls took so little time that the next one may run on an event loop."""
        return self._quick_calls >= _LEAST_CALLS

    def run(self, header: RequestHeader, body: bytes | memoryview, watch: CallWatch | None = None) -> Reply:
        """Call the model with the tensors of a whole body, and make the reply; `watch` is told about the call."""
        inputs = {spec.name: _tensor(spec, body) for spec in header.tensors}
        return self._resolved.call(self._resolved.request(header, inputs, {}), self.reply, watch)

    def reply(self, outputs: Outputs, header: RequestHeader) -> Reply:
        """Make the reply; its beginning depends only on the form of the outputs."""
        if not _PLAIN_OUTPUT.issuperset(map(type, outputs.values())):
            return self._resolved.reply(outputs, header)
        arrays = cast("Mapping[str, np.ndarray[Any, Any]]", outputs)
        form = tuple([(name, array.dtype, array.shape) for name, array in arrays.items()])
        beginning = self._beginnings.get(form)
        if beginning is None:
            return self._first_reply(form, arrays, header)
        views = [_bytes_of(arrays[name]) for name in beginning.names]
        text = beginning.text
        if self.has_id and header.id is not None:
            text = b"".join((text, header.id.encode(), beginning.rest))
        return Reply(
            status=200,
            headers=beginning.headers,
            buffers=(text, *views),
            body_length=beginning.body_length,
        )

    def _first_reply(self, form: tuple[Any, ...], arrays: Arrays, header: RequestHeader) -> Reply:
        """Make the first reply with a form, and remember its beginning if it can be used again."""
        tensors = self._resolved.select(arrays, header)
        message = self._resolved.encode(tensors, header)
        reply = message_reply(message, self._resolved.media_type)
        text = message.parts[0]
        if isinstance(text, bytes) and len(self._beginnings) < _MAX_FORMS and all(map(_is_plain, tensors)):
            beginning, rest = self._around_id(text, header)
            if beginning:
                names = tuple(tensor.name for tensor in tensors)
                self._beginnings[form] = _Beginning(
                    headers=tuple(reply.headers),
                    text=beginning,
                    rest=rest,
                    names=names,
                    body_length=message.body_length,
                )
        return reply

    def _around_id(self, text: bytes, header: RequestHeader) -> tuple[bytes, bytes]:
        """Return the text of an answer before its id and behind it; nothing before it if it cannot be found."""
        if not self.has_id or header.id is None:
            return text, b""
        found = _plain_id(text)
        if found is None or found[1].decode() != header.id:
            return b"", b""
        return text[: found.start(1)], text[found.end(1) :]


def _is_plain(tensor: Tensor) -> bool:
    array = tensor.array
    if not isinstance(array, np.ndarray) or not tensor.is_binary or not array.size:
        return False
    datatype = datatype_of(array.dtype)
    return not datatype.is_bytes and array.dtype == datatype.dtype


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the binary form of an array that has elements, in the byte order of the wire."""
    try:
        return array.data.cast("B")
    except (TypeError, ValueError):  # not contiguous, or a type without a Python view
        return byte_view(to_wire(array))


def _tensor(spec: TensorSpec, body: bytes | memoryview) -> np.ndarray[Any, Any]:
    """Return a new array with the bytes of a tensor."""
    memory = aligned_bytes(spec.nbytes)
    start = spec.offset or 0
    memory.data[:] = body[start : start + spec.nbytes]
    return np.ndarray(spec.shape, spec.datatype.dtype, memory)
