"""The request writer: requests of one client, whose headers are often the same.

The header of a request follows from the names, datatypes and shapes of its inputs, from its id and from the outputs
that it asks for. So the text that the encoder has written for these is kept, and only the inputs are new. What is
unusual is left to the encoder, and so is every refusal: this module never refuses anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from streamcodec.engine.cache import Repeated
from streamcodec.engine.datatypes import datatype_of, to_wire
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.memory.placement import byte_view
from streamcodec.engine.message import Encodable, Part
from streamcodec.engine.record import constructor
from streamcodec.formats.v2.encoder import EncodedMessage, Tensor, encode_request
from streamcodec.formats.v2.model import RequestedOutput

_MAX_HEADERS: Final = 256
_MAX_HEADER_BYTES: Final = 2 << 10

_encoded_message: Final = constructor(EncodedMessage)


class RequestWriter:
    """Writes requests, and keeps their headers. Several threads may use it."""

    def __init__(self) -> None:
        """Begin without headers."""
        self._headers: Repeated[tuple[Any, ...], bytes] = Repeated(_MAX_HEADERS)

    def __len__(self) -> int:
        """Return how many headers are kept."""
        return len(self._headers)

    def encode(
        self,
        inputs: Mapping[str, Encodable],
        *,
        outputs: Sequence[RequestedOutput] | None,
        request_id: str,
        parameters: Mapping[str, Any],
        is_binary: bool,
    ) -> EncodedMessage:
        """Encode a request.

        Args:
            inputs: by name.
            outputs: the requested outputs; None for all.
            request_id: to be echoed in the response.
            parameters: of the request, besides `binary_data_output`.
            is_binary: whether tensors are written in binary, and asked for in binary.

        Raises:
            LocalProtocolError: as from `encode_request`.
        """
        key = None if parameters or is_binary is not True else _key(inputs, outputs, request_id)
        header = None if key is None else self._headers.get(key)
        if header is not None:
            parts: list[Part] = [header]
            nbytes = length = len(header)
            for array in inputs.values():
                if view := byte_view(to_wire(cast("np.ndarray[Any, Any]", array))):
                    parts.append(view)
                    nbytes += len(view)
            return _encoded_message(parts=tuple(parts), header_length=length, body_length=nbytes)
        message = encode_request(
            [Tensor(name=name, array=array, is_binary=is_binary) for name, array in inputs.items()],
            outputs=outputs,
            request_id=request_id,
            parameters={**parameters, "binary_data_output": is_binary},
        )
        if key is not None and (message.header_length or 0) <= _MAX_HEADER_BYTES and self._headers.comes_again(key):
            self._headers.put(key, cast("bytes", message.parts[0]))
        return message


def _key(
    inputs: Mapping[str, Encodable], outputs: Sequence[RequestedOutput] | None, request_id: str
) -> tuple[Any, ...] | None:
    """Return what the header of a request follows from; None if something about it is unusual, or wrong.

    Equal keys have to mean equal texts. So all members are of exact types: a flag that is 1 would equal True.
    """
    if type(request_id) is not str or not inputs:
        return None
    key: list[object] = [request_id, outputs is None]
    for output in outputs or ():
        if type(output.name) is not str or type(output.binary_data) is not bool or output.parameters:
            return None
        key.append((output.name, output.binary_data))
    for name, array in inputs.items():
        if type(array) is not np.ndarray or type(name) is not str:
            return None
        try:
            datatype = datatype_of(array.dtype)
        except LocalProtocolError:
            return None
        if datatype.is_bytes:
            return None
        key.append((name, datatype.name, array.shape))
    return tuple(key)
