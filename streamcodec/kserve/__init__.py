"""The V2 decoder and encoder inside KServe's ModelServer, and arrays for its clients. It needs KServe installed."""

from streamcodec.kserve.installing import install
from streamcodec.kserve.messages import decode_response, encode_infer_request, infer_request, infer_response
from streamcodec.kserve.tensors import arrays_of

__all__ = ["arrays_of", "decode_response", "encode_infer_request", "infer_request", "infer_response", "install"]
