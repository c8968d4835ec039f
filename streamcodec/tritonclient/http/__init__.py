"""Http: the HTTP client; `http.aio` has the asynchronous one, and `http.auth` a plugin for Basic authentication."""

from streamcodec.tritonclient.http.client import InferAsyncRequest, InferenceServerClient
from streamcodec.tritonclient.http.plugin import InferenceServerClientPlugin, Request
from streamcodec.tritonclient.http.result import InferResult
from streamcodec.tritonclient.http.tensors import InferInput, InferRequestedOutput
from streamcodec.tritonclient.utils import (
    InferenceServerException,
    deserialize_bytes_tensor,
    np_to_triton_dtype,
    raise_error,
    serialize_byte_tensor,
    serialized_byte_size,
    triton_to_np_dtype,
)

__all__ = [
    "InferAsyncRequest",
    "InferInput",
    "InferRequestedOutput",
    "InferResult",
    "InferenceServerClient",
    "InferenceServerClientPlugin",
    "InferenceServerException",
    "Request",
    "deserialize_bytes_tensor",
    "np_to_triton_dtype",
    "raise_error",
    "serialize_byte_tensor",
    "serialized_byte_size",
    "triton_to_np_dtype",
]
