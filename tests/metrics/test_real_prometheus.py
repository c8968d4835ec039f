"""A real Prometheus scrapes a server under load, and answers every query of the dashboard and the alerts."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="it needs the extra prometheus")

from streamcodec.client import Client
from tests.metrics.test_queries import DOCS, alert_queries, dashboard_queries
from tests.ports import free_port
from tests.server.programs import serving

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PROMETHEUS is None or PROMTOOL is None, reason="Prometheus is not here: apt-get install prometheus"
    ),
]
_SECONDS = 30.0

_CONFIGURATION = """
global: {{scrape_interval: 500ms, scrape_timeout: 400ms, evaluation_interval: 500ms}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: streamcodec
    static_configs: [{{targets: ["{target}"]}}]
"""


@contextmanager
def _prometheus(folder: Path, target: str) -> Iterator[Callable[[str], list[Any]]]:
    """Run Prometheus; yield a function that queries it."""
    assert PROMETHEUS is not None
    rules = DOCS / "examples" / "alerts.yml"
    (folder / "prometheus.yml").write_text(_CONFIGURATION.format(rules=rules, target=target))
    address = f"127.0.0.1:{free_port()}"
    command = [
        PROMETHEUS,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]

    def query(text: str) -> list[Any]:
        url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': text})}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            document = json.load(answer)
        assert document["status"] == "success"
        found: list[Any] = document["data"]["result"]
        return found

    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield query
        finally:
            process.kill()


def _until(is_there: Callable[[], bool], folder: Path) -> None:
    end = time.monotonic() + _SECONDS
    while True:
        try:
            if is_there():
                return
        except OSError:  # it has not begun to listen
            pass
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.1)


def test_the_rules_are_valid() -> None:
    assert PROMTOOL is not None
    result = subprocess.run(
        [PROMTOOL, "check", "rules", str(DOCS / "examples" / "alerts.yml")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "8 rules found" in result.stdout + result.stderr


def test_a_real_prometheus_scrapes_under_load(tmp_path: Path) -> None:
    array = np.zeros(1 << 16, np.float32)
    sent = 0
    with (
        serving("--triton-metrics") as program,
        Client(program.url) as client,
        _prometheus(tmp_path, "{}:{}".format(*program.address)) as query,
    ):
        _until(lambda: [each["value"][1] for each in query("up")] == ["1"], tmp_path)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            client.infer("identity", {"x": array})
            sent += 1

        def total(name: str) -> float:
            return sum(float(each["value"][1]) for each in query(f'{name}{{model="identity"}}'))

        _until(lambda: total("streamcodec_requests_total") == sent, tmp_path)
        assert total("streamcodec_inferences_total") == total("nv_inference_count") == sent
        assert total("streamcodec_received_bytes_total") > sent * array.nbytes
        assert query("min_over_time(up[1m])")[0]["value"][1] == "1", "no scrape has failed or taken too long"
        dashboard = {text: query(text) for text in dashboard_queries()}
        assert [text for text, found in dashboard.items() if not found and "code!=" not in text] == []
        for text in alert_queries():
            assert query(text) == [], "nothing is wrong"
        assert float(query("scrape_duration_seconds")[0]["value"][1]) < 0.4
    print(f"\n{sent} requests, and a scrape every 0.5 s")  # noqa: T201 - a figure
