"""Answers: writes the responses of one model and version, from templates in which only numbers, ids and values change.

Usual outputs are arrays of numbers, or a few texts. What is the same for all of one name and dtype is written once. The
bytes are those of `ResolvedHead.reply`. What is unusual is left to it, and so is every error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np

from streamcodec.engine.datatypes import Datatype, datatype_of, to_wire
from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.elements.payloads import encode_payloads
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.memory.placement import ALIGNMENT, byte_view
from streamcodec.engine.message import Part
from streamcodec.engine.record import constructor
from streamcodec.formats.v2.encoder import encode_response
from streamcodec.formats.v2.fields import HEADER_LENGTH_FIELD
from streamcodec.formats.v2.json.output import NonFiniteOutput, to_json
from streamcodec.formats.v2.json.values import json_values
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.service.models.model import Outputs
from streamcodec.service.replies import Reply, WrittenFields, message_reply
from streamcodec.service.request.inference import ResolvedHead, as_values, check_outputs, select_outputs

_MAX_FORMS: Final = 64
"""Outputs of different names and dtypes whose form is kept; a model has few."""

_BINARY_TYPE: Final = (("Content-Type", "application/octet-stream"),)
_BINARY_LINES: Final = (
    b"Content-Type: application/octet-stream\r\n%b: %%d\r\nContent-Length: %%d\r\n" % HEADER_LENGTH_FIELD.encode()
)
_JSON_TYPE: Final = (("Content-Type", "application/json"),)
_JSON_LINES: Final = b"Content-Type: application/json\r\nContent-Length: %d\r\n"

_Forms = tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]
"""Name, dtype and shape of each output."""

Answer = tuple[_Forms, Part, Sequence[tuple[str, str]], int]
"""The form of each output; the JSON header for these; the fields; and the length of the body."""

NO_ANSWER: Final[Answer] = (), b"", (), 0

_NO_FORMS: Final[_Forms] = ()
_PLAIN: Final = frozenset({np.ndarray, Elements})
_OBJECTS: Final = np.dtype(object)

_Entry = tuple[str, Datatype]
"""The text of an output up to its shape, and its datatype."""

_reply: Final = constructor(Reply)


class EndpointAnswers:
    """Writes the answers of an endpoint, which has no model."""

    model = None
    classifies = False
    nonfinite = NonFiniteOutput.LITERAL

    def __init__(self, model_name: str, model_version: str | None, media_type: str | None = None) -> None:
        """Name the endpoint as a model; for the media type see `message_reply`."""
        self._model_name = model_name
        self._model_version = model_version
        self.media_type: str | None = media_type

    def reply(self, outputs: Outputs, header: RequestHeader) -> Reply:
        """Make the answer from arrays or rows; see `ReceivedRequest.reply`."""
        values = {name: as_values(value) for name, value in outputs.items()}
        message = encode_response(
            select_outputs(values, header),
            model_name=self._model_name,
            model_version=self._model_version,
            request_id=header.id,
        )
        return message_reply(message, self.media_type)


class Answers:
    """Writes the answers of one model and version to requests that do not give the header's length in another way."""

    __slots__ = ("_entries", "_last", "_ordinary", "_start")

    def __init__(self, ordinary: ResolvedHead | EndpointAnswers, model_name: str, model_version: str | None) -> None:
        """Begin without answers; a version that is None is left out."""
        self._ordinary = ordinary
        version = "" if model_version is None else f'"model_version":{to_json(model_version)},'
        self._start = f'{{"model_name":{to_json(model_name)},{version}'
        self._entries: dict[tuple[str, np.dtype[Any]], _Entry] = {}
        self._last: tuple[_Forms, str] = _NO_FORMS, ""

    def reply(self, outputs: Outputs, header: RequestHeader, last: Answer) -> tuple[Reply, Answer]:
        """Make the reply from a model's outputs.

        Args:
            outputs: of the model.
            header: of the request.
            last: the beginning of the last answer to this header; it may be the same again.

        Returns:
            The reply, and the beginning of the last answer from now on.
        """
        ordinary, forms = self._ordinary, _NO_FORMS
        if ordinary.media_type is not None or (header.outputs and ordinary.classifies):
            return ordinary.reply(outputs, header), last
        arrays: Mapping[str, Any] = outputs if isinstance(outputs, dict) else dict(outputs)
        if not header.outputs and header.wants_binary(None) and (forms := _forms(arrays)) and forms == last[0]:
            _, head, fields, length = last
            parts = map(_bytes_of, arrays.values())
            return _reply(status=200, headers=fields, buffers=(head, *parts), body_length=length), last
        try:
            reply = self._written(arrays, header, forms)
        except (LocalProtocolError, UnicodeEncodeError):  # the ordinary way raises it, and names the output
            reply = None
        if reply is None:
            return ordinary.reply(outputs, header), last
        if forms:
            last = forms, reply.buffers[0], reply.headers, reply.body_length
        return reply, last

    def _written(self, arrays: Mapping[str, Any], header: RequestHeader, forms: _Forms) -> Reply | None:
        """Write the outputs that are wanted, each in its form; None if an output is not usual.

        Raises:
            LocalProtocolError: an output has not this form, or is not as declared.
        """
        start = self._start if header.id is None else f'{self._start}"id":{to_json(header.id)},'
        last_forms, last_text = self._last  # read once, because threads share it
        if forms and forms == last_forms:
            return _message(f"{start}{last_text}".encode(), [*map(_bytes_of, arrays.values())])
        model = self._ordinary.model
        if not arrays or not _PLAIN.issuperset(map(type, arrays.values())):
            return None
        if model is not None and model.outputs is not None:
            check_outputs(model, arrays)
        parts: list[bytes | memoryview] = []
        entries: list[str] = []
        wanted: Iterable[tuple[str, bool]] = zip(arrays, repeat(header.wants_binary(None)))
        if header.outputs:
            wanted = [(output.name, header.wants_binary(output)) for output in header.outputs]
        for name, is_binary in wanted:
            text = self._text(name, arrays.get(name), parts, is_binary=is_binary)
            if text is None:
                return None
            entries.append(text)
        text = f'"outputs":[{",".join(entries)}]}}'
        if forms:
            self._last = forms, text
        return _message(f"{start}{text}".encode(), parts)

    def _text(
        self,
        name: str,
        values: np.ndarray[Any, Any] | Elements | None,
        parts: list[bytes | memoryview],
        *,
        is_binary: bool,
    ) -> str | None:
        """Return the text of an output, and append its binary form; None if the ordinary way writes it."""
        entry = None if values is None else self._entry(name, values)
        if values is None or entry is None:
            return None
        start, datatype = entry
        text = f'{start}{",".join(map(str, values.shape))}],"datatype":"{datatype.name}"'
        if is_binary:
            part: bytes | memoryview
            if isinstance(values, Elements):
                part = byte_view(values.data)
            else:
                part = encode_payloads(values) if datatype.is_bytes else _bytes_of(values)
            parts.append(part)
            return f'{text},"parameters":{{"binary_data_size":{len(part)}}}}}'
        data = json_values(values, datatype, self._ordinary.nonfinite)
        return f'{text},"data":{data}}}' if isinstance(data, str) else None  # else it is large

    def _entry(self, name: str, values: np.ndarray[Any, Any] | Elements) -> _Entry | None:
        """Return the beginning of the text of an output; None if the ordinary way writes it."""
        dtype = values.dtype if isinstance(values, np.ndarray) else _OBJECTS
        # The mark of a dtype may say its datatype, and is not compared with the rest of a dtype.
        if not math.prod(values.shape) or dtype.metadata is not None:
            return None
        entry = self._entries.get((name, dtype))
        if entry is None and type(name) is str and name:
            try:
                datatype = datatype_of(dtype)
            except LocalProtocolError:
                return None
            if dtype != datatype.dtype:
                return None
            entry = f'{{"name":{to_json(name)},"shape":[', datatype
            if len(self._entries) < _MAX_FORMS:
                self._entries[name, dtype] = entry
        return entry


def _forms(arrays: Mapping[str, Any]) -> _Forms:
    """Return what the JSON header of an answer in binary depends on; nothing if it depends on values, too."""
    forms = []
    for name, array in arrays.items():
        if type(array) is not np.ndarray or not array.size or array.dtype.metadata is not None or array.dtype.hasobject:
            return _NO_FORMS
        forms.append((name, array.dtype, array.shape))
    return tuple(forms)


def _message(head: bytes, parts: Sequence[bytes | memoryview]) -> Reply:
    """Return the reply with a JSON header, and with the binary parts behind it."""
    if not parts:
        fields = WrittenFields((*_JSON_TYPE, ("Content-Length", str(len(head)))))
        fields.lines = _JSON_LINES % len(head)
        return _reply(status=200, headers=fields, buffers=(head,), body_length=len(head))
    head += b" " * (-len(head) % ALIGNMENT)
    length = len(head) + sum(map(len, parts))
    fields = WrittenFields((*_BINARY_TYPE, (HEADER_LENGTH_FIELD, str(len(head))), ("Content-Length", str(length))))
    fields.lines = _BINARY_LINES % (len(head), length)
    return _reply(status=200, headers=fields, buffers=(head, *parts), body_length=length)


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the binary form of an array that has elements, in the byte order of the wire."""
    try:
        return array.data.cast("B")
    except (TypeError, ValueError):  # not contiguous, or a type without a Python view
        return byte_view(to_wire(array))
