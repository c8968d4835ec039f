"""Counting: what observers are told becomes the statistics of models."""

from __future__ import annotations

from streamcodec.http.heads.messages import Fields, RequestHead
from streamcodec.service import Model, ModelRegistry, RequestRecord, StatisticsObserver


def _record(model: str | None, status: int | None, method: str = "POST") -> RequestRecord:
    record = RequestRecord("127.0.0.1:1", 1000.0)
    record.head = RequestHead(method=method, target="/", fields=Fields(()), content_length=0)
    record.model, record.version, record.status = model, None if model is None else "1", status
    record.body_seconds, record.model_seconds, record.send_seconds, record.seconds = 0.25, 0.5, 0.125, 0.875
    return record


def test_requests_to_models_are_counted_by_their_status() -> None:
    models = ModelRegistry.of([Model(name="m", predict=lambda request: request.inputs)])
    observer = StatisticsObserver(models)
    for status in (200, 200, 200, 400, None):
        observer.request_ended(_record("m", status))
    statistics = models.statistics("m", "1")
    assert statistics is not None
    document = statistics.document("m", "1")
    assert document["inference_count"] == 3
    assert document["last_inference"] == 1_000_875
    assert document["inference_stats"]["success"] == {"count": 3, "ns": 2_625_000_000}
    assert document["inference_stats"]["fail"] == {"count": 2, "ns": 1_750_000_000}
    assert document["inference_stats"]["compute_infer"] == {"count": 3, "ns": 1_500_000_000}


def test_requests_about_a_model_to_no_model_and_to_one_that_has_gone_are_nobodys() -> None:
    models = ModelRegistry.of([Model(name="m", predict=lambda request: request.inputs)])
    observer = StatisticsObserver(models)
    observer.request_ended(_record(None, 200))
    observer.request_ended(_record("gone", 200))
    observer.request_ended(_record("m", 200, "GET"))  # as it asks about the model
    without_head, without_version = _record("m", 200), _record("m", 200)
    without_head.head = without_version.version = None
    observer.request_ended(without_head)
    observer.request_ended(without_version)
    statistics = models.statistics("m", "1")
    assert statistics is not None
    assert statistics.document("m", "1")["inference_count"] == 0


def test_of_an_upload_the_message_that_ends_it_is_counted() -> None:
    models = ModelRegistry.of([Model(name="m", predict=lambda request: request.inputs)])
    observer = StatisticsObserver(models)
    for method, status in (("POST", 201), ("PATCH", 204), ("PATCH", 200), ("PATCH", 400), ("HEAD", 200)):
        observer.request_ended(_record("m", status, method))
    statistics = models.statistics("m", "1")
    assert statistics is not None
    stats = statistics.document("m", "1")["inference_stats"]
    assert (stats["success"]["count"], stats["fail"]["count"]) == (1, 1)
