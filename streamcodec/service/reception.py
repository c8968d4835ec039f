"""Reception: receives one inference request as arrays, for endpoints outside the service. Sans-IO.

The owner has the head from its framework. It passes the events of `body` to `receive` until that returns the request.
Then it computes whatever it likes, and makes the answer in the form that the request asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from streamcodec.engine.elements.elements import Elements
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.events import EndOfMessage, HeaderReceived, TensorReceived
from streamcodec.engine.limits import DEFAULT_LIMITS, Limits
from streamcodec.engine.message import Values
from streamcodec.engine.placement import Place
from streamcodec.engine.record import record
from streamcodec.formats.v2.decoder import request_decoder
from streamcodec.formats.v2.encoder import encode_response
from streamcodec.formats.v2.model import RequestHeader
from streamcodec.http.fed import FedBody
from streamcodec.http.messages import HttpEvent, RequestHead
from streamcodec.service.inference import as_values, select_outputs
from streamcodec.service.models import Inputs
from streamcodec.service.replies import Reply, message_reply

Check = Callable[[RequestHeader], None]
"""Called when the JSON header has arrived, before memory is taken. If it raises, the request is refused."""


@record()
class ReceivedRequest:
    """A complete inference request."""

    header: RequestHeader
    """The content of the JSON header: id, parameters, inputs, and requested outputs."""
    inputs: Mapping[str, np.ndarray[Any, Any]]
    """By name; writable, in C order. BYTES are arrays of `bytes`, which are made when they are first asked for."""
    media_type: str | None
    """The media type of the request, if it gives the header's length; the answer then has the same."""

    def reply(self, outputs: Mapping[str, Values], *, model_name: str, model_version: str | None = None) -> Reply:
        """Make the answer: the requested outputs, each as binary data or JSON as the request asks.

        Args:
            outputs: by name; outputs that are not requested are ignored.
            model_name: as the answer names it.
            model_version: left out if None.

        Raises:
            RemoteProtocolError: `model-mismatch`: a requested output is missing in `outputs`.
            LocalProtocolError: an output cannot be sent in this protocol.
        """
        values = {name: as_values(value) for name, value in outputs.items()}
        message = encode_response(
            select_outputs(values, self.header),
            model_name=model_name,
            model_version=model_version,
            request_id=self.header.id,
        )
        return message_reply(message, self.media_type)


class Reception:
    """Receives one request.

    Attributes:
        body: takes the bytes, and returns the events.
    """

    _header: RequestHeader

    def __init__(
        self,
        head: RequestHead,
        *,
        place: Place,
        limits: Limits = DEFAULT_LIMITS,
        check: Check | None = None,
        is_decoded: bool = False,
        paced: bool = False,
    ) -> None:
        """Begin with the first byte of the body; for the arguments see `request_decoder` and `FedBody`.

        Raises:
            RemoteProtocolError: the request can be refused by its head alone.
        """
        header_length, self._media_type = head.fields.header_form
        decoder = request_decoder(
            header_length=header_length,
            body_length=head.body_length,
            allow_headerless=True,
            limits=limits,
            check=check,
            place=place,
            paced=paced,
        )
        self.body: FedBody = FedBody(head, decoder, limits, is_decoded=is_decoded, paced=paced)
        self._inputs: dict[str, np.ndarray[Any, Any] | Elements] = {}

    def receive(self, event: HttpEvent) -> ReceivedRequest | None:
        """Take an event of the body; return the request after its last event.

        Raises:
            LocalProtocolError: a tensor was placed in windows, which are events of the body and not arrays.
        """
        if isinstance(event, EndOfMessage):
            return ReceivedRequest(header=self._header, inputs=Inputs(self._inputs), media_type=self._media_type)
        if isinstance(event, HeaderReceived):
            self._header = cast("RequestHeader", event.header)
        elif isinstance(event, TensorReceived):
            self._inputs[event.spec.name] = event.values
        else:
            msg = "a request is received as whole tensors; use request_decoder() for windows"
            raise LocalProtocolError(msg)
        return None
