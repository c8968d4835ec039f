"""Extensions: refuses parameters of Triton's extensions that this server does not offer.

A parameter that nobody knows is left to the model. These parameters are known: they change the answer, or where it
goes. A client that asks for classes, or for an answer in shared memory, cannot use a tensor in the body. So its request
is refused instead of ignoring the parameter.
"""

from __future__ import annotations

from typing import Final

from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.formats.v2.model import RequestHeader

CLASSIFICATION: Final = "classification"
"""Name of the extension in the server's metadata, and of its parameter."""

_SHARED_MEMORY: Final = "shared_memory_region"
_NO_SHARED_MEMORY: Final = "this server shares no memory with its clients; tensors go through the body"
_NO_CLASSES: Final = "this server offers no classification; its operator can switch it on"


def check_extensions(header: RequestHeader, *, classifies: bool) -> None:
    """Refuse a request for an extension that is not offered.

    Raises:
        RemoteProtocolError: `not-offered`, with the path of the parameter.
    """
    for index, tensor in enumerate(header.tensors):
        if tensor.parameters.get(_SHARED_MEMORY) is not None:
            raise _not_offered(_SHARED_MEMORY, f"$.inputs[{index}]", _NO_SHARED_MEMORY)
    for index, output in enumerate(header.outputs or ()):
        if output.parameters.get(_SHARED_MEMORY) is not None:
            raise _not_offered(_SHARED_MEMORY, f"$.outputs[{index}]", _NO_SHARED_MEMORY)
        if not classifies and output.parameters.get(CLASSIFICATION) is not None:
            raise _not_offered(CLASSIFICATION, f"$.outputs[{index}]", _NO_CLASSES)


def _not_offered(name: str, path: str, message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=ErrorCode.NOT_OFFERED, path=f"{path}.parameters.{name}")
