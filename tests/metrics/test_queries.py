"""Queries: the dashboard, the alerts and the page of the documentation ask for what `/metrics` really has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="it needs the extra prometheus")

from streamcodec.metrics.prometheus import PrometheusMetrics
from streamcodec.service import Batch, Model, Service, demo_models
from tests.metrics.reading import Samples, scrape
from tests.server.programs import server_here
from tests.server.wire import Wire, infer_request

DOCS = Path(__file__).parents[2] / "docs"
_OF_PROMETHEUS = {"up", "job", "instance"}
_SUFFIX = re.compile(r"_(?:bucket|count|sum)$")


def dashboard_queries() -> list[str]:
    """Return the queries of the dashboard, for all jobs and a minute."""
    document = json.loads((DOCS / "examples" / "dashboard.json").read_text())
    found = [target["expr"] for panel in document["panels"] for target in panel["targets"]]
    return [query.replace("$__rate_interval", "1m").replace("$job", ".*") for query in found]


def alert_queries() -> list[str]:
    """Return the queries of the alerts."""
    return re.findall(r"^ +expr: (.+)$", (DOCS / "examples" / "alerts.yml").read_text(), re.MULTILINE)


def _names(query: str) -> set[str]:
    """Return the names of metrics in a query."""
    outside = re.sub(r"\{[^}]*\}|\[[^]]*\]|\b(?:by|on|ignoring) \([^)]*\)", " ", query)
    functions = {"sum", "rate", "increase", "histogram_quantile", "min_over_time", "group_left"}
    return set(re.findall(r"[a-z_]{2,}", outside)) - functions


def _labels(query: str) -> set[str]:
    """Return the names of labels in a query."""
    grouped = re.findall(r"\b(?:by|on|ignoring) \(([^)]*)\)", query)
    selected = re.findall(r"(\w+)[!=]=?~?\"", query)
    return {name.strip() for names in grouped for name in names.split(",")} | set(selected)


@pytest.fixture(scope="module")
def samples() -> Iterator[Samples]:
    models = demo_models()
    models.add(Model(name="net", predict=lambda request: request.inputs, batch=Batch(max_delay=0.0)))
    service = Service(models)
    observer = PrometheusMetrics(service, triton_names=True)
    with server_here(service, observer=observer) as (_, address), Wire(address) as wire:
        wire.send(infer_request()).response()
        wire.send(infer_request("net")).response()
        yield scrape(wire)


@pytest.mark.parametrize("query", [*dashboard_queries(), *alert_queries()])
def test_queries_ask_for_what_there_is(query: str, samples: Samples) -> None:
    labels = {label for sample in samples.samples for label in sample.labels}
    assert _names(query), "it asks for nothing"
    assert _names(query) <= samples.names | _OF_PROMETHEUS
    assert _labels(query) <= labels | _OF_PROMETHEUS


def test_there_are_queries() -> None:
    assert len(dashboard_queries()) > 20
    assert len(alert_queries()) == 8


def test_the_page_explains_every_metric(samples: Samples) -> None:
    text = (DOCS / "metrics.md").read_text()
    table = text.partition("## What each metric means")[2].partition("\n## ")[0]
    ours = {_SUFFIX.sub("", name) for name in samples.names if name.startswith("streamcodec_")}
    assert set(re.findall(r"^\| `(streamcodec_\w+)`", table, re.MULTILINE)) == ours
    triton = text.partition("## Triton's names")[2].partition("\n## ")[0]
    named = {name for name in re.findall(r"`(nv_\w+)`", triton) if not name.endswith("_")}
    assert named == {name for name in samples.names if name.startswith("nv_")}


def test_the_page_says_which_labels_a_metric_has(samples: Samples) -> None:
    rows = re.findall(r"^\| `(streamcodec_\w+)` \|([\w, ]*)\|", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    said = {name: {label.strip() for label in labels.split(",")} - {""} for name, labels in rows}
    found: dict[str, set[str]] = {}
    for sample in samples.samples:
        found.setdefault(_SUFFIX.sub("", sample.name), set()).update(sample.labels)
    assert said == {name: labels for name, labels in found.items() if name.startswith("streamcodec_")}
