"""Counting: an observer that keeps the statistics of models, which clients read through Triton's extension."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from streamcodec.service.models.registry import ModelRegistry
from streamcodec.service.observing import Observer, RequestRecord

_OK: Final = int(HTTPStatus.OK)


class StatisticsObserver(Observer):
    """Counts the requests for the models of a registry. Without it, all of their statistics are zero.

    A program without it sets `Service.has_statistics` to False.
    """

    def __init__(self, models: ModelRegistry) -> None:
        """Count for these models, and for models that are added later."""
        self._models = models

    def request_ended(self, request: RequestRecord) -> None:
        """Count an inference request, unless its model has been removed meanwhile."""
        if not request.is_inference or request.model is None or request.version is None:
            return
        statistics = self._models.statistics(request.model, request.version)
        place = request.batch
        if statistics is not None:
            statistics.count(
                is_success=request.status == _OK,
                waiting=request.waiting_seconds,
                body=request.body_seconds,
                model=request.model_seconds,
                send=request.send_seconds,
                ended=request.started + request.seconds,
                batch_size=1 if place is None else place.own_rows,
                batch=None if place is None else place.rows * (place.index == 0),
            )
