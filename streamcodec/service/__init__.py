"""The V2 inference service, sans-IO: models, routes, metadata, output selection, error bodies."""

from streamcodec.service.counting import StatisticsObserver
from streamcodec.service.demo import demo_models
from streamcodec.service.inference import Inference, ResolvedHead
from streamcodec.service.listing import Listing
from streamcodec.service.models import (
    ANY_SIZE,
    InferenceRequest,
    Model,
    Predict,
    TensorMetadata,
)
from streamcodec.service.observing import Ending, Observer, RequestRecord
from streamcodec.service.registry import ModelRegistry
from streamcodec.service.replies import Reply, error_reply, failure_reply, json_reply, unavailable_reply
from streamcodec.service.service import Service
from streamcodec.service.statistics import ModelStatistics

__all__ = [
    "ANY_SIZE",
    "Ending",
    "Inference",
    "InferenceRequest",
    "Listing",
    "Model",
    "ModelRegistry",
    "ModelStatistics",
    "Observer",
    "Predict",
    "Reply",
    "RequestRecord",
    "ResolvedHead",
    "Service",
    "StatisticsObserver",
    "TensorMetadata",
    "demo_models",
    "error_reply",
    "failure_reply",
    "json_reply",
    "unavailable_reply",
]
