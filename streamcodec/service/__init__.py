"""The V2 inference service, sans-IO: models, routes, metadata, output selection, error bodies."""

from streamcodec.service.budget import Budget, Reservation
from streamcodec.service.counting import StatisticsObserver
from streamcodec.service.demo import demo_models
from streamcodec.service.exchange import Exchange, ExchangeStep
from streamcodec.service.inference import Inference, ResolvedHead
from streamcodec.service.listing import Listing
from streamcodec.service.models import (
    ANY_SIZE,
    InferenceRequest,
    Model,
    Predict,
    TensorMetadata,
)
from streamcodec.service.observing import Ending, Observer, RequestRecord, ServerLoad
from streamcodec.service.portion import Portion, UploadService
from streamcodec.service.reception import ReceivedRequest, Reception
from streamcodec.service.registry import ModelRegistry
from streamcodec.service.replies import Reply, error_reply, failure_reply, json_reply, unavailable_reply
from streamcodec.service.service import Service
from streamcodec.service.statistics import ModelStatistics
from streamcodec.service.uploads import Upload, Uploads

__all__ = [
    "ANY_SIZE",
    "Budget",
    "Ending",
    "Exchange",
    "ExchangeStep",
    "Inference",
    "InferenceRequest",
    "Listing",
    "Model",
    "ModelRegistry",
    "ModelStatistics",
    "Observer",
    "Portion",
    "Predict",
    "ReceivedRequest",
    "Reception",
    "Reply",
    "RequestRecord",
    "Reservation",
    "ResolvedHead",
    "ServerLoad",
    "Service",
    "StatisticsObserver",
    "TensorMetadata",
    "Upload",
    "UploadService",
    "Uploads",
    "demo_models",
    "error_reply",
    "failure_reply",
    "json_reply",
    "unavailable_reply",
]
