"""Description: describes the served models for the operator, one line for each model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from streamcodec.service import Model, ModelRegistry, TensorMetadata

_MAX_MODELS: Final = 20
_MAX_TENSORS: Final = 4


def describe(models: ModelRegistry) -> Iterator[str]:
    """Describe the models; only the first ones if there are very many."""
    for model in islice(models, _MAX_MODELS):
        versions = f"version{'s' if len(model.versions) > 1 else ''} {', '.join(model.versions)}"
        yield f"  {model.name}, {versions}: {_tensors(model.inputs)} -> {_tensors(model.outputs)}; {_manner(model)}"
    if others := sum(1 for _ in islice(models, _MAX_MODELS, None)):
        yield f"  and {others} more"


def _manner(model: Model) -> str:
    """Say how the model is called."""
    manner = "async, on the event loop" if model.is_async else "in worker threads"
    if model.windows is not None:
        return f"{manner}, window by window"
    if model.is_async or model.is_inline is False:
        return manner
    return "inline, if the request is small" if model.is_inline else f"{manner} until it proves quick"


def _tensors(tensors: Sequence[TensorMetadata] | None) -> str:
    if not tensors:
        return "any" if tensors is None else "none"
    shown = ", ".join(f"{each.name} {each.datatype} {list(each.shape)}" for each in tensors[:_MAX_TENSORS])
    others = len(tensors) - _MAX_TENSORS
    return f"{shown} and {others} more" if others > 0 else shown
