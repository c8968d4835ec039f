"""The V2 decoder and encoder in KServe's ModelServer and in its REST client. It needs KServe installed."""

from streamcodec.kserve.batching import batched
from streamcodec.kserve.client import InferenceRESTClient
from streamcodec.kserve.dataplane import install
from streamcodec.kserve.messages import decode_response, encode_infer_request, infer_request, infer_response
from streamcodec.kserve.tensors import arrays_of

__all__ = [
    "InferenceRESTClient",
    "arrays_of",
    "batched",
    "decode_response",
    "encode_infer_request",
    "infer_request",
    "infer_response",
    "install",
]
