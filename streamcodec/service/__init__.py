"""The V2 inference service, sans-IO: models, routes, metadata, output selection, error bodies."""

from streamcodec.service.memory.budget import Budget, Reservation
from streamcodec.service.models.batching import Batch, BatchPlace, RowError
from streamcodec.service.models.counting import StatisticsObserver
from streamcodec.service.models.demo import demo_models
from streamcodec.service.models.listing import Listing
from streamcodec.service.models.model import (
    ANY_SIZE,
    InferenceRequest,
    Model,
    Predict,
    TensorMetadata,
)
from streamcodec.service.models.registry import ModelRegistry
from streamcodec.service.models.statistics import ModelStatistics
from streamcodec.service.observing import Ending, Observer, RequestRecord, ServerLoad
from streamcodec.service.replies import Reply, error_reply, failure_reply, json_reply, unavailable_reply
from streamcodec.service.request.exchange import Exchange, ExchangeStep
from streamcodec.service.request.inference import Inference, ResolvedHead
from streamcodec.service.request.reception import ReceivedRequest, Reception
from streamcodec.service.service import Service
from streamcodec.service.uploads.deciding import UploadService
from streamcodec.service.uploads.kept import Uploads
from streamcodec.service.uploads.upload import Upload, UploadPart

__all__ = [
    "ANY_SIZE",
    "Batch",
    "BatchPlace",
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
    "Predict",
    "ReceivedRequest",
    "Reception",
    "Reply",
    "RequestRecord",
    "Reservation",
    "ResolvedHead",
    "RowError",
    "ServerLoad",
    "Service",
    "StatisticsObserver",
    "TensorMetadata",
    "Upload",
    "UploadPart",
    "UploadService",
    "Uploads",
    "demo_models",
    "error_reply",
    "failure_reply",
    "json_reply",
    "unavailable_reply",
]
