"""Listing: a request for the index of the repository that has a body.

Triton's model repository extension: the body is a JSON object. With `{"ready": true}`, only the models that are ready
are listed. A request without a body needs no `Listing`: it is answered when its head has arrived.

A server handles a `Listing` like an `Inference`, but it needs no thread and no reserved memory.
"""

from __future__ import annotations

from typing import Final

from streamcodec.engine.errors import ErrorCode, MessageError, RemoteProtocolError
from streamcodec.engine.json.text import parse_json
from streamcodec.engine.limits import Limits
from streamcodec.http.bodies.collector import Collector
from streamcodec.http.heads.messages import HttpEvent
from streamcodec.service.models import documents
from streamcodec.service.models.registry import ModelRegistry
from streamcodec.service.replies import Reply, error_reply, json_reply

_MAX_BODY_BYTES: Final = 4 << 10
"""A useful body has 15 bytes; the rest is for unknown members."""

_WANTED: Final = 'the body must be a JSON object, as {"ready": true}'


class Listing:
    """One request for the index.

    Attributes:
        decoder: receives the body.
    """

    def __init__(self, models: ModelRegistry, limits: Limits) -> None:
        """Prepare for the body."""
        self._models = models
        self._limits = limits
        self.decoder: Collector = Collector(_MAX_BODY_BYTES, max_dropped_bytes=limits.max_drain_bytes)

    def receive(self, event: HttpEvent) -> None:
        """Take an event of the decoder; its only event is the end."""

    def run(self) -> Reply:
        """Make the reply, which is an error if the body cannot be understood."""
        try:
            return json_reply(documents.index(self._models, only_ready=self._only_ready()))
        except MessageError as error:
            return error_reply(error)

    def _only_ready(self) -> bool:
        """Read the body.

        Raises:
            RemoteProtocolError: the body is too long or not a JSON object, or `ready` is not a boolean.
        """
        if self.decoder.offset > _MAX_BODY_BYTES:
            msg = f"the body has {self.decoder.offset} bytes, {_MAX_BODY_BYTES} are allowed for the index"
            raise RemoteProtocolError(msg, code=ErrorCode.LIMIT_EXCEEDED, status_hint=413)
        if not self.decoder.data:
            return False
        try:
            document, constants = parse_json(self.decoder.data, self._limits)
        except MessageError as error:  # its text is about the header of an inference request
            raise RemoteProtocolError(_WANTED, code=error.code, offset=error.offset, path=error.path) from None
        if constants:
            raise RemoteProtocolError(_WANTED, code=ErrorCode.NON_FINITE_NUMBER)
        if not isinstance(document, dict):
            raise RemoteProtocolError(_WANTED, code=ErrorCode.INVALID_HEADER, path="$")
        ready = document.get("ready", False)
        if not isinstance(ready, bool):
            msg = "'ready' must be a boolean"
            raise RemoteProtocolError(msg, code=ErrorCode.INVALID_MEMBER, path="$.ready")
        return ready
