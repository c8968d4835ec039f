"""Inference: one inference request on its way from head to reply.

Sans-IO: the owner lets the body go to `decoder`, hands the decoder's events to `receive`, and when the message has
ended calls `run`, which calls the model and therefore belongs into a worker thread, unless it `is_inline`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from streamcodec.core.datatypes import datatype_of
from streamcodec.core.decoder import Decoder, raw_request_decoder, request_decoder
from streamcodec.core.deflating import compress_message
from streamcodec.core.encoder import EncodedMessage, Tensor, encode_response
from streamcodec.core.errors import LocalProtocolError, NotRepresentableError, RemoteProtocolError
from streamcodec.core.events import HeaderReceived, TensorReceived
from streamcodec.core.jsondata import NonFiniteOutput
from streamcodec.core.limits import Limits
from streamcodec.core.model import RequestedOutput, RequestHeader
from streamcodec.http.messages import HttpEvent, RequestHead
from streamcodec.service.classification import check_request, classify_outputs
from streamcodec.service.models import InferenceRequest, Model, no_such_output
from streamcodec.service.negotiation import accepted_encoding
from streamcodec.service.raw import raw_tensor
from streamcodec.service.replies import Reply, error_reply, json_reply, message_reply

_MAX_INLINE_BYTES: Final = 64 << 10
"""Above this, the time that a thread costs no longer matters, and what is done with the tensors may."""

_MIN_COMPRESSED_BYTES: Final = 1 << 10
"""Below this, an answer fits into one packet anyway."""


class Inference:
    """One request to one model.

    Attributes:
        decoder: receives the body.
    """

    def __init__(
        self,
        model: Model,
        head: RequestHead,
        *,
        version: str | None,
        limits: Limits,
        nonfinite: NonFiniteOutput,
        allow_headerless: bool = False,
        compresses: bool = False,
        classifies: bool = False,
    ) -> None:
        """Prepare for the body; for the arguments see `Service`.

        Raises:
            RemoteProtocolError: the head alone is reason enough to refuse.
        """
        self._model = model
        self._version = model.versions[-1] if version is None else version
        self._limits = limits
        self._nonfinite = nonfinite
        self._encoding = accepted_encoding(head.fields.values(b"accept-encoding")) if compresses else None
        self._classifies = classifies
        self._header: RequestHeader | None = None
        self._inputs: dict[str, np.ndarray[Any, Any]] = {}
        check = partial(check_request, model) if classifies else model.check
        self.decoder = _decoder(model, head, check, limits=limits, allow_headerless=allow_headerless)

    @property
    def is_inline(self) -> bool:
        """Whether `run` is quick enough for an event loop; compressing never is, nor is what takes its time by size."""
        return self._model.is_inline and self._encoding is None and self.decoder.offset <= _MAX_INLINE_BYTES

    def receive(self, event: HttpEvent) -> None:
        """Take an event of the decoder."""
        match event:
            case HeaderReceived(header=RequestHeader() as header):
                self._header = header
            case TensorReceived(spec=spec, array=array):
                self._inputs[spec.name] = array
            case _:
                pass

    def run(self) -> Reply:
        """Call the model and make the reply; may take as long as the model does, and compressing after it.

        Raises:
            LocalProtocolError: the message has not been received to its end.
        """
        if self._header is None or not self.decoder.is_complete:
            msg = "run() comes after the last event of the decoder"
            raise LocalProtocolError(msg)
        request = InferenceRequest(
            inputs=self._inputs, header=self._header, model_name=self._model.name, model_version=self._version
        )
        try:
            outputs = self._model.predict(request)
            arrays = {name: np.asarray(value) for name, value in outputs.items()}
            self._check_outputs(arrays)
            return message_reply(self._encode(arrays, self._header))
        except RemoteProtocolError as error:
            return error_reply(error)
        except NotRepresentableError as error:
            return json_reply({"error": str(error)}, status=400)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model may raise anything, and shall not end the server
            return _failure_reply(self._model, error)

    def _check_outputs(self, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
        """Hold the model to what it has declared."""
        for metadata in self._model.outputs or ():
            array = arrays.get(metadata.name)
            if array is None:
                msg = f"the model has not returned its output {metadata.name!r}"
                raise LocalProtocolError(msg)
            datatype = datatype_of(array.dtype).name
            if datatype != metadata.datatype or not metadata.accepts(array.shape):
                found = f"{datatype} {list(array.shape)}"
                msg = f"output {metadata.name!r} is {found}, declared {metadata.datatype} {list(metadata.shape)}"
                raise LocalProtocolError(msg)

    def _encode(self, arrays: Mapping[str, np.ndarray[Any, Any]], header: RequestHeader) -> EncodedMessage:
        tensors = _select(arrays, header)
        if self._classifies:
            tensors = classify_outputs(tensors, self._model, header, self._limits)
        message = encode_response(
            tensors,
            model_name=self._model.name,
            model_version=self._version,
            request_id=header.id,
            nonfinite=self._nonfinite,
        )
        if self._encoding is None or message.body_length < _MIN_COMPRESSED_BYTES:
            return message
        return compress_message(message, self._encoding)


def _decoder(
    model: Model,
    head: RequestHead,
    check: Callable[[RequestHeader], None],
    *,
    limits: Limits,
    allow_headerless: bool,
) -> Decoder[RequestHeader]:
    length = head.fields.header_length
    if length == 0:
        # Without the field there is no body, which is no tensor of 0 bytes.
        nbytes = head.body_length if head.fields.values(b"content-length") else None
        spec = raw_tensor(model, nbytes)
        return raw_request_decoder(spec, limits=limits, check=check)
    return request_decoder(
        header_length=length,
        body_length=head.body_length,
        allow_headerless=allow_headerless,
        limits=limits,
        check=check,
    )


def _select(arrays: Mapping[str, np.ndarray[Any, Any]], header: RequestHeader) -> list[Tensor]:
    """Choose the outputs that were asked for, each in its form; an empty list asks for all, as with Triton.

    Specification: an explicit `binary_data` wins, else `binary_data_output`, else JSON.
    """
    wanted: list[tuple[str, RequestedOutput | None]]
    if header.outputs:
        wanted = [(output.name, output) for output in header.outputs]
    else:
        wanted = [(name, None) for name in arrays]
    for index, (name, _) in enumerate(wanted):
        if name not in arrays:
            raise no_such_output(name, f"$.outputs[{index}].name")
    return [Tensor(name=name, array=arrays[name], is_binary=header.wants_binary(output)) for name, output in wanted]


def _failure_reply(model: Model, error: BaseException) -> Reply:
    """Answer that the model failed, and no more than that: what it said is for the server's log."""
    text = f"model {model.name!r} failed with {type(error).__name__}"
    return json_reply({"error": text}, status=500, cause=error)
