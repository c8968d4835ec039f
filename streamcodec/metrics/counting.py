"""Counting: requests by model, version, status and code, with their bytes and times. It needs no other package.

A request is counted by one look into a dictionary and a few additions. The names of metrics, the sums over statuses and
the text are made when somebody asks for them.

Requests are counted by one thread at a time: that of the event loop. If several threads do it, as under WSGI, an
addition may get lost. Any thread may read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streamcodec.service import BatchPlace, Ending, ModelRegistry, RequestRecord

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the durations that are counted together, in seconds: from a small request to a large upload."""

_COMPLETE: Final = Ending.COMPLETE


class Labels(NamedTuple):
    """What requests that are counted together have in common; empty where there is nothing to say."""

    model: str
    """Of an inference request; empty for all other requests, and for models that the registry does not have."""
    version: str
    """Of the same model."""
    status: str
    """Of the answer; empty if there was none."""
    code: str
    """Why the request was refused, or else how it ended if its answer was not sent: as in the access log."""


@dataclass(slots=True)
class Series:
    """Requests with the same labels."""

    count: int = 0
    """How many have ended."""
    bytes_in: int = 0
    """Bytes of the requests."""
    bytes_out: int = 0
    """Bytes of the answers."""
    seconds: float = 0.0
    """The sum of their durations."""
    durations: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """How many took at most as long as each of `BOUNDS` and longer than the bound before it; the last took longer."""


@dataclass(slots=True)
class BatchSeries:
    """The batches of one model."""

    reasons: dict[str, int] = field(default_factory=dict)
    """How many were closed, by why: `full`, `preferred` or `delay`."""
    seconds: float = 0.0
    """The sum of the times that requests have waited for them."""
    waits: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """How many requests have waited; as `Series.durations`."""


_Key = tuple[str | None, str | None, int | None, str | None]


class RequestCounts:
    """Counts requests. The number of series is bounded: by models, versions, statuses and codes."""

    def __init__(self, models: ModelRegistry) -> None:
        """Begin with nothing; models may come and go later."""
        self._models = models
        self._series: dict[_Key, Series] = {}
        self._batches: dict[tuple[str, str], BatchSeries] = {}

    def add(self, request: RequestRecord) -> None:
        """Count a request that has ended."""
        code: str | None = request.code
        if code is None and request.ending is not _COMPLETE:
            code = request.ending.value
        key = (
            (request.model, request.version, request.status, code)
            if request.is_inference
            else (None, None, request.status, code)  # it asks no model for an inference
        )
        series = self._series.get(key) or self._begin(key)
        series.count += 1
        series.bytes_in += request.bytes_in
        series.bytes_out += request.bytes_out
        seconds = request.seconds
        series.seconds += seconds
        series.durations[bisect_left(BOUNDS, seconds)] += 1
        if request.batch is not None:
            self._add_batch(request, request.batch)

    def current(self) -> Iterator[tuple[Labels, Series]]:
        """Yield all series, and forget those of models that have been removed."""
        for key, series in list(self._series.items()):
            model, version, status, code = key
            if model is None or self._has(model, version):
                yield Labels(model or "", version or "", str(status or ""), code or ""), series
            else:
                self._series.pop(key, None)

    def batches(self) -> Iterator[tuple[tuple[str, str], BatchSeries]]:
        """Yield the batches of each model, and forget those of models that have been removed."""
        for model, batches in list(self._batches.items()):
            if self._has(*model):
                yield model, batches
            else:
                self._batches.pop(model, None)

    def _add_batch(self, request: RequestRecord, place: BatchPlace) -> None:
        """Count a request of a batch, and the batch with its first request."""
        if not self._has(request.model, request.version):
            return
        batches = self._batches.setdefault((str(request.model), str(request.version)), BatchSeries())
        batches.seconds += place.waited
        batches.waits[bisect_left(BOUNDS, place.waited)] += 1
        if place.index == 0:
            batches.reasons[place.reason] = batches.reasons.get(place.reason, 0) + 1

    def _begin(self, key: _Key) -> Series:
        model, version, status, code = key
        if not self._has(model, version):
            key = (None, None, status, code)
        return self._series.setdefault(key, Series())

    def _has(self, model: str | None, version: str | None) -> bool:
        return model is not None and version is not None and self._models.statistics(model, version) is not None


def is_inference(request: RequestRecord, models: ModelRegistry) -> bool:
    """Whether a request asks a model of the registry for an inference."""
    if not request.is_inference or request.model is None or request.version is None:
        return False
    return models.statistics(request.model, request.version) is not None
