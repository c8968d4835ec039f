"""Documents: what the service says about its models, as JSON.

Metadata belongs to the protocol; the list of models is KServe's. Configuration, statistics and the index of the
repository are extensions of Triton's. They contain only what is known of a Python callable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from streamcodec.service.models.model import Model, TensorMetadata
from streamcodec.service.models.registry import Offer

Document = dict[str, Any]

_READY: Final = "READY"
_MICROSECONDS: Final = 1_000_000

_TRITON_NAMES: Final = {"BYTES": "STRING"}
"""Datatypes that have another name in a configuration."""


def metadata(model: Model) -> Document:
    """Return a model's metadata."""
    return {
        "name": model.name,
        "versions": model.versions,
        "platform": model.platform,
        "inputs": [_tensor_metadata(tensor) for tensor in model.inputs or ()],
        "outputs": [_tensor_metadata(tensor) for tensor in model.outputs or ()],
    }


def configuration(model: Model) -> Document:
    """Return a model's configuration (Triton's `ModelConfig`).

    `max_batch_size` is 0 for a model without a `Batch`, which says that the `dims` are the whole shape. With one, the
    `dims` leave out the batch.
    """
    batch = model.batch
    first = 0 if batch is None else 1
    document: Document = {
        "name": model.name,
        "platform": model.platform,
        "backend": "python",
        "max_batch_size": 0 if batch is None else batch.max_rows,
        "input": [
            {**_tensor_configuration(tensor, first), "optional": tensor.optional} for tensor in model.inputs or ()
        ],
        "output": [_tensor_configuration(tensor, first) for tensor in model.outputs or ()],
    }
    if batch is not None:
        document["dynamic_batching"] = {
            "preferred_batch_size": [*batch.preferred_rows],
            "max_queue_delay_microseconds": round(batch.max_delay * _MICROSECONDS),
            "preserve_ordering": False,
            "default_queue_policy": {"max_queue_size": batch.max_queue_rows},
        }
    return document


def names(models: Iterable[Model]) -> Document:
    """Return the list of models, as KServe does."""
    return {"models": [model.name for model in models]}


def index(models: Iterable[Model], *, only_ready: bool = False) -> list[Document]:
    """Return the index of the repository: each version of each model, and whether it is ready.

    Args:
        models: all models.
        only_ready: whether to leave out models that are not ready.
    """
    entries = [_entry(model, version) for model in models for version in model.versions]
    return [entry for entry in entries if entry["state"] == _READY] if only_ready else entries


def statistics(offers: Iterable[Offer], version: str | None = None) -> Document:
    """Return the statistics of models, for one version or for all."""
    return {
        "model_stats": [
            counted.document(offer.model.name, name)
            for offer in offers
            for name, counted in offer.statistics.items()
            if version in {None, name}
        ]
    }


def _entry(model: Model, version: str) -> Document:
    if model.is_ready:
        return {"name": model.name, "version": version, "state": _READY, "reason": ""}
    return {"name": model.name, "version": version, "state": "UNAVAILABLE", "reason": "the model says it is not ready"}


def _tensor_metadata(tensor: TensorMetadata) -> Document:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}


def _tensor_configuration(tensor: TensorMetadata, first: int) -> Document:
    datatype = _TRITON_NAMES.get(tensor.datatype, tensor.datatype)
    return {"name": tensor.name, "data_type": f"TYPE_{datatype}", "dims": tensor.shape[first:]}
