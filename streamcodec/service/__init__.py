"""The V2 inference service, sans-IO: models, routes, metadata, output selection, error bodies."""

from streamcodec.service.demo import demo_models
from streamcodec.service.inference import Inference, Opening
from streamcodec.service.models import (
    ANY_SIZE,
    InferenceRequest,
    Model,
    ModelRegistry,
    Predict,
    TensorMetadata,
)
from streamcodec.service.observing import Ending, Observer, RequestRecord
from streamcodec.service.replies import Reply, error_reply, failure_reply, json_reply, unavailable_reply
from streamcodec.service.service import Service

__all__ = [
    "ANY_SIZE",
    "Ending",
    "Inference",
    "InferenceRequest",
    "Model",
    "ModelRegistry",
    "Observer",
    "Opening",
    "Predict",
    "Reply",
    "RequestRecord",
    "Service",
    "TensorMetadata",
    "demo_models",
    "error_reply",
    "failure_reply",
    "json_reply",
    "unavailable_reply",
]
