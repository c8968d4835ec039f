"""Metrics of several workers: one page, whichever of them is asked."""

from __future__ import annotations

import os
import re
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

from tests.server.supervised import Running, pid_of, pids_of, running_workers
from tests.server.wire import Wire, head, infer_request
from tests.waiting import until

pytest.importorskip("prometheus_client")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="looks at processes in /proc"),  # noqa: PTH112
]

_PAGE = head("/metrics", method="GET")
_REQUEST = infer_request("pid")


def _value(running: Running, name: str, labels: str = "") -> float:
    """Return a value of the page of whichever worker is asked."""
    with Wire(running.address) as wire:
        answer = wire.send(_PAGE).response()
    assert answer.status == 200
    found = re.search(rf"^{name}{re.escape(labels)} (\S+)$", answer.body.decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def _inferences(running: Running) -> float:
    return _value(running, "streamcodec_inferences_total", '{model="pid",version="1"}')


def _ask(running: Running, times: int) -> None:
    for _ in range(times):
        with Wire(running.address) as wire:
            assert wire.send(_REQUEST).response().status == 200


def _agree(running: Running, count: int) -> bool:
    """Whether all workers show this number."""
    return {_inferences(running) for _ in range(16)} == {count}


def test_all_are_on_one_page_also_those_that_have_ended(tmp_path: Path) -> None:
    count = 0
    with running_workers(tmp_path, "--metrics", "--triton-metrics") as running:
        _ask(running, 50)
        count += 50
        until(partial(_agree, running, count))

        before = running.workers
        os.kill(min(before), signal.SIGKILL)
        until(lambda: len(running.workers) == 2 and running.workers != before)
        until(lambda: pids_of(running.address) == running.workers)
        until(lambda: _value(running, "streamcodec_worker_deaths_total") == 1)
        count = int(_inferences(running))
        _ask(running, 20)
        until(lambda: _inferences(running) >= count + 20)

        before = running.workers
        running.process.send_signal(signal.SIGHUP)
        until(partial(running.has_replaced, before))
        until(lambda: _value(running, "streamcodec_worker_restarts_total") == 3)
        assert _value(running, "streamcodec_worker_deaths_total") == 1
        count = int(_inferences(running))
        _ask(running, 20)
        until(partial(_agree, running, count + 20))
        ready = {pid for pid in running.workers if _value(running, "streamcodec_ready", f'{{worker="{pid}"}}')}
        assert ready == running.workers
        assert running.ends(signal.SIGTERM)[0] == 0
    assert not [*Path(tempfile.gettempdir()).glob(f"streamcodec-metrics-{running.process.pid}-*")]


def test_a_counter_never_goes_back(tmp_path: Path) -> None:
    """Each page shows at least what the page before has shown, whoever made it, while workers die and are renewed."""
    last = 0.0
    with running_workers(tmp_path, "--metrics", count=3) as running:
        for turn in range(8):
            _ask(running, 5)
            before = running.workers
            if turn % 2:
                os.kill(min(before), signal.SIGKILL)
            else:
                running.process.send_signal(signal.SIGHUP)
            for _ in range(5):
                time.sleep(0.4)  # a page is shown again for a moment, see `prometheus`
                try:
                    now = _inferences(running)
                except (OSError, AssertionError):  # it has met the one that was killed
                    continue
                assert now >= last
                last = now
            until(lambda: len(running.workers) == 3)


def test_a_worker_that_stands_still_holds_up_no_page(tmp_path: Path) -> None:
    with running_workers(tmp_path, "--metrics", "--worker-timeout", "0") as running, Wire(running.address) as kept:
        stopped = pid_of(kept)
        _ask(running, 10)
        until(partial(_agree, running, 11))  # the other one knows what this one has counted
        os.kill(stopped, signal.SIGSTOP)
        assert _inferences(running) == 11
        assert _value(running, "streamcodec_ready", f'{{worker="{stopped}"}}') == 1
        os.kill(stopped, signal.SIGCONT)
