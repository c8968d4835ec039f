"""Counting: which requests are counted together, and that clients cannot make more series."""

from __future__ import annotations

import tracemalloc

import pytest

from streamcodec import ErrorCode
from streamcodec.http.heads.messages import Fields, RequestHead
from streamcodec.metrics.counting import BOUNDS, Labels, RequestCounts, is_inference
from streamcodec.service import Ending, Model, ModelRegistry, RequestRecord


def _models() -> ModelRegistry:
    return ModelRegistry.of([Model(name="m", predict=lambda request: request.inputs, versions=("1", "2"))])


def _record(
    model: str | None = "m",
    version: str | None = "1",
    *,
    method: str | None = "POST",
    status: int | None = 200,
    code: ErrorCode | None = None,
    ending: Ending = Ending.COMPLETE,
    seconds: float = 0.0,
) -> RequestRecord:
    record = RequestRecord("client", 0.0)
    if method is not None:
        record.head = RequestHead(method=method, target="/", fields=Fields(()), content_length=0)
    record.model, record.version, record.status, record.code = model, version, status, code
    record.ending, record.seconds, record.bytes_in, record.bytes_out = ending, seconds, 3, 5
    return record


@pytest.mark.parametrize(
    ("record", "labels"),
    [
        (_record(), Labels("m", "1", "200", "")),
        (_record(version="2", status=503), Labels("m", "2", "503", "")),
        (_record(status=400, code=ErrorCode.TRUNCATED), Labels("m", "1", "400", "truncated")),
        (_record(ending=Ending.CUT), Labels("m", "1", "200", "cut")),
        (_record(status=None, ending=Ending.CLIENT_LEFT), Labels("m", "1", "", "client-left")),
        (_record(status=None, code=ErrorCode.TOO_SLOW, ending=Ending.ABANDONED), Labels("m", "1", "", "too-slow")),
        (_record(None, None, status=404, code=ErrorCode.NOT_FOUND), Labels("", "", "404", "not-found")),
        (_record(method="GET"), Labels("", "", "200", "")),
        (_record(version=None), Labels("", "", "200", "")),
        (_record("unknown"), Labels("", "", "200", "")),
        (_record(version="unknown"), Labels("", "", "200", "")),
        (_record(None, None, method=None, status=400), Labels("", "", "400", "")),
    ],
)
def test_the_labels_of_a_request(record: RequestRecord, labels: Labels) -> None:
    models = _models()
    counts = RequestCounts(models)
    for _ in range(3):
        counts.add(record)
    ((found, series),) = counts.current()
    assert found == labels
    assert (series.count, series.bytes_in, series.bytes_out) == (3, 9, 15)
    assert is_inference(record, models) is bool(labels.model)


def test_durations_are_counted_by_their_bounds() -> None:
    counts = RequestCounts(_models())
    for bound in BOUNDS:
        counts.add(_record(seconds=bound))  # a bound belongs to what is below it
        counts.add(_record(seconds=bound * 1.001))
    ((_, series),) = counts.current()
    assert series.durations == [1, *[2] * (len(BOUNDS) - 1), 1]
    assert series.seconds == pytest.approx(2.001 * sum(BOUNDS))


def test_names_of_strangers_take_no_memory() -> None:
    counts = RequestCounts(_models())
    counts.add(_record())
    tracemalloc.start()
    try:
        for number in range(2_000):
            counts.add(_record(f"model-{number}"))
            counts.add(_record(version=f"version-{number}"))
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 10_000
    assert sorted((labels, series.count) for labels, series in counts.current()) == [
        (Labels("", "", "200", ""), 4_000),
        (Labels("m", "1", "200", ""), 1),
    ]


def test_a_model_that_was_removed_is_forgotten_and_begins_again() -> None:
    models = _models()
    counts = RequestCounts(models)
    counts.add(_record())
    models.remove("m")
    assert list(counts.current()) == []
    counts.add(_record())  # it was in progress
    assert [labels.model for labels, _ in counts.current()] == [""]
    models.add(Model(name="m", predict=lambda request: request.inputs))
    counts.add(_record())
    assert [(labels.model, series.count) for labels, series in counts.current()] == [("", 1), ("m", 1)]
