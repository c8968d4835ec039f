"""`streamcodec bench`: what it measures, with what it fails, and that it hides nothing."""

from __future__ import annotations

import json
import logging
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from streamcodec.cli import main
from streamcodec.cli.benching import plot, report
from streamcodec.cli.benching.answers import AnswerReader, InvalidAnswerError
from streamcodec.cli.benching.batches import batch_sizes
from streamcodec.cli.benching.latencies import Latencies
from streamcodec.cli.benching.load import Load
from streamcodec.cli.benching.plan import LoadPlan, Measured
from streamcodec.cli.benching.schedule import ClosedLoop, OpenLoop
from streamcodec.cli.inferring.request import whole_request
from streamcodec.client import Client
from streamcodec.service import Batch, InferenceRequest, Model, ModelRegistry, StatisticsObserver
from streamcodec.service.models.model import Outputs
from tests.cputime import least_cpu_seconds
from tests.server.models import models
from tests.server.programs import server_here, serving

COMMAND = (sys.executable, "-m", "streamcodec", "bench")
REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"http://{host}:{port}"


def _bench(url: str, *options: str) -> int:
    usual = ("--duration", "0.1", "--warmup", "0", "--concurrency", "2")
    return main(["bench", url, *usual, *options])


# Latencies


def test_percentiles_are_within_half_a_percent() -> None:
    times = np.random.default_rng(1).lognormal(-6, 2, 10_001)
    whole, other = Latencies(), Latencies()
    for latencies, part in ((whole, times[:7000]), (other, times[7000:])):
        latencies.pending.extend(part.tolist())
    whole.add(other)
    assert whole.count == len(times)
    assert (whole.least, whole.most) == (times.min(), times.max())
    assert whole.mean == pytest.approx(times.mean())
    for percent in (0, 1, 50, 90, 99, 99.9, 100):
        assert whole.percentile(percent) == pytest.approx(
            np.percentile(times, percent, method="inverted_cdf"), rel=0.005
        )


def test_no_latency_and_extreme_ones() -> None:
    latencies = Latencies()
    assert (latencies.count, latencies.mean, latencies.percentile(50)) == (0, 0, 0)
    latencies.pending += [0.0, 1e9]
    assert latencies.percentile(50) == pytest.approx(1e-6, rel=0.01)
    assert latencies.percentile(100) == 1e9


# Schedules


def test_closed_loop_is_due_until_the_end() -> None:
    schedule = ClosedLoop(10, 2)
    assert [schedule.due(now) for now in (10, 11.9, 12)] == [10, 11.9, None]
    assert schedule.left(12) == 0


def test_open_loop_is_due_at_regular_times_however_late_it_is_asked() -> None:
    schedule = OpenLoop(10, 2, 4)
    assert [schedule.due(now) for now in (10, 10.1, 10.25)] == [10, None, 10.25]
    assert schedule.next_time(10.3) == 10.5
    assert [schedule.due(11.1) for _ in range(4)] == [10.5, 10.75, 11.0, None]
    assert schedule.left(11.5) == 2
    assert schedule.due(12) is None
    assert schedule.left(12) == 3


# AnswerReader

_ANSWERS = {
    "length": (OK, False),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", False),
    "interim": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + OK, False),
    "chunks": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n10\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n",
        False,
    ),
    "to the end": (b"HTTP/1.0 200 OK\r\n\r\nabc", True),
    "empty": (b"HTTP/1.1 503 Busy\r\nCONNECTION: close\r\nContent-Length:0\r\n\r\n", True),
}


@pytest.mark.parametrize("name", _ANSWERS)
def test_the_end_of_an_answer_is_found_in_every_cut(name: str) -> None:
    data, closes = _ANSWERS[name]
    for size in (1, 2, 3, 7, len(data)):
        answers = AnswerReader()
        for _ in range(2):  # the second time, the head is known
            pieces = [data[start : start + size] for start in range(0, len(data), size)]
            found = [answers.receive(memoryview(piece)) for piece in pieces]
            if name == "to the end":
                assert not any(found)
                assert answers.receive_eof()
            else:
                assert found == [False] * (len(pieces) - 1) + [True], f"pieces of {size}"
                assert not answers.receive_eof()
            assert answers.head.closes is closes
        assert answers.head.status == int(re.findall(rb"HTTP/1.\d (\d+)", data)[-1])


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n\r\n",
        OK + b"x",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000,
    ],
    ids=["other protocol", "more", "no chunk", "more after chunks", "endless head"],
)
def test_invalid_answers(data: bytes) -> None:
    with pytest.raises(InvalidAnswerError):
        AnswerReader().receive(memoryview(data))


# The loop


@contextmanager
def _answering(answer: Callable[[int, socket.socket], None]) -> Iterator[LoadPlan]:
    """Run a server that calls a function with the number of each request; yield a plan for it."""
    numbers = iter(range(1 << 30))

    def serve(peer: socket.socket) -> None:
        with peer, suppress(OSError):
            while True:
                data = b""
                while len(data) < len(REQUEST):
                    piece = peer.recv(len(REQUEST) - len(data))
                    if not piece:
                        return
                    data += piece
                assert data == REQUEST
                answer(next(numbers), peer)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield LoadPlan(
            host="127.0.0.1",
            port=listener.getsockname()[1],
            context=None,
            request=REQUEST,
            concurrency=2,
            rate=None,
            warmup=0,
            duration=0.15,
            timeout=60,
        )
        listener.shutdown(socket.SHUT_RDWR)


def _run(plan: LoadPlan, **changes: Any) -> Measured:  # noqa: ANN401 - fields of a plan
    return Load(replace(plan, **changes), lambda: False).run()


def test_requests_are_counted_with_their_bytes() -> None:
    with _answering(lambda _, peer: peer.sendall(OK)) as plan:
        measured = _run(plan, warmup=0.05)
    count = measured.latencies.count
    assert count
    assert (measured.sent_bytes, measured.received_bytes) == (count * len(REQUEST), count * len(OK))
    assert not measured.errors
    assert measured.rate == pytest.approx(count / measured.seconds)
    assert measured.seconds >= 0.15


def test_errors_are_counted_by_what_happened_and_connections_made_again() -> None:
    def answer(number: int, peer: socket.socket) -> None:
        match number % 4:
            case 0:
                peer.sendall(OK)
            case 1:
                peer.sendall(b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                raise ConnectionResetError
            case 2:
                peer.sendall(b"HTTP/1.1 429 Slowly\r\nContent-Length: 0\r\n\r\n")
            case _:
                peer.sendall(OK[:20])
                raise ConnectionResetError

    with _answering(answer) as plan:
        measured = _run(plan, duration=1.5)
    assert set(measured.errors) == {"http 503", "http 429", "connection closed"}
    assert measured.latencies.count >= 2
    assert abs(measured.errors["http 503"] - measured.errors["http 429"]) <= 2


@pytest.mark.slow
def test_requests_without_answers_time_out() -> None:
    with _answering(lambda number, peer: None if number < 2 else peer.sendall(OK)) as plan:
        measured = _run(plan, duration=3.0, timeout=1.0)
    assert measured.errors == {"timeout": 2}
    assert measured.latencies.count > 10


def test_a_connection_that_the_server_closes_between_requests_is_no_error() -> None:
    def answer(_: int, peer: socket.socket) -> None:
        peer.sendall(OK)
        raise ConnectionResetError

    with _answering(answer) as plan:
        measured = _run(plan, rate=4.0, duration=1.5)  # the server has a quarter of a second to close
    assert not measured.errors
    assert measured.latencies.count + measured.unsent == 6


@pytest.mark.quiet
def test_a_pause_of_the_server_is_in_the_latencies_of_all_requests_that_were_due_meanwhile() -> None:
    """No coordinated omission: of 300 requests that are due, about 100 are due during the pause."""
    pause = 0.5

    def answer(number: int, peer: socket.socket) -> None:
        if number == 50:
            time.sleep(pause)
        peer.sendall(OK)

    with _answering(answer) as plan:
        measured = _run(plan, concurrency=1, rate=200.0, duration=1.5)
    times = measured.latencies
    assert (times.count, measured.unsent) == (300, 0)
    assert times.percentile(50) < 0.1
    # A tenth of them, 30, were due within the first 0.15 s of the pause, and waited for the rest of it.
    assert times.percentile(90) == pytest.approx(pause - 30 / 200, abs=0.06)
    with _answering(answer) as plan:
        measured = _run(plan, concurrency=1, duration=1)
    assert measured.latencies.percentile(90) < 0.1  # as a closed loop sees it
    assert measured.latencies.most >= pause


def test_requests_that_were_due_and_never_sent_are_reported() -> None:
    def answer(_: int, peer: socket.socket) -> None:
        time.sleep(0.05)
        peer.sendall(OK)

    with _answering(answer) as plan:
        measured = _run(plan, concurrency=1, rate=200.0, duration=0.2)
    assert measured.latencies.count <= 5
    assert measured.unsent == 40 - measured.latencies.count
    assert "more requests were due" in "".join(report.remarks(report.Row(concurrency=1, rate=200.0, measured=measured)))


def test_an_open_loop_does_not_use_the_processor_while_it_waits() -> None:
    with _answering(lambda _, peer: peer.sendall(OK)) as plan:
        assert least_cpu_seconds(lambda: _run(plan, rate=50.0, duration=0.2), enough=0.1) < 0.1
        measured = _run(plan, rate=50.0, duration=0.2)
    assert measured.latencies.count + measured.unsent == 10


def test_large_requests_are_sent_in_pieces(url: str) -> None:
    assert _bench(url, "--model", "identity", "--shape", "x:FP32:1000000", "--tensors", "binary") == 0


def test_plans_are_shared_among_processes() -> None:
    plan = LoadPlan(
        host="x",
        port=1,
        context=None,
        request=b"",
        concurrency=5,
        rate=100.0,
        warmup=0,
        duration=1,
        timeout=1,
    )
    assert [(each.concurrency, each.rate) for each in plan.shared(2)] == [(3, 60), (2, 40)]
    assert len(plan.shared(9)) == 5


def test_a_busy_client_is_reported() -> None:
    for part, expected in ((0.5, ""), (0.97, "the client used 97% of a processor")):
        row = report.Row(concurrency=1, rate=None, measured=Measured(processors=[0.2, part]))
        assert expected in "".join(report.remarks(row))
        assert row.measured.is_client_saturated is bool(expected)


# The command


def test_the_table(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench(url, "--model", "declared", "--shape", "x:3,4", "--concurrency", "1,2") == 0
    first, _, heading, *rows = capsys.readouterr().out.splitlines()
    assert first == "declared: x FP32 [3, 4]; binary, 0.1 s for each run"
    assert heading.split() == [
        *("connections", "due/s", "requests/s", "MiB/s", "out", "MiB/s", "in"),
        *("p50", "p90", "p99", "p99.9", "max", "errors"),
    ]
    assert [row.split()[0] for row in rows[:2]] == ["1", "2"]
    for row in rows[:2]:
        assert len(row) == len(heading)
        assert re.search(r"\d+(\.\d+)? (us|ms|s) +0$", row)


def test_failed_requests_are_a_failure_with_their_number(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """The first request is answered, as a check; the table and the document are written all the same."""
    calls = iter(range(1 << 30))

    def predict(request: InferenceRequest) -> Outputs:
        if next(calls):
            raise RuntimeError
        return request.inputs

    caplog.set_level(logging.CRITICAL, logger="streamcodec.runtime.models.failures")
    with server_here(ModelRegistry.of([Model(name="m", predict=predict)])) as (_, (host, port)):
        options = ("--model", "m", "--shape", "x:FP32:1", "--json", str(tmp_path / "found.json"))
        assert _bench(f"http://{host}:{port}", *options) == 1
    (run,) = json.loads((tmp_path / "found.json").read_text())["runs"]
    (count,) = run["errors"].values()
    out, err = capsys.readouterr()
    assert f"{count} x http 500" in out
    assert err == f"streamcodec: {count} of {count} requests failed\n"


def test_the_document(url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert _bench(url, "--model", "declared", "--rate", "100", "--json", "-", "--tensors", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]
    (run,) = document["runs"]
    assert (run["concurrency"], run["rate"], run["errors"], run["is_stopped"]) == (2, 100, {}, False)
    assert run["requests"] + run["unsent"] == 10
    times = list(run["latency"].values())
    assert list(run["latency"]) == ["min", "mean", "p50", "p90", "p99", "p99.9", "max"]
    assert sorted(times[2:]) == times[2:]
    assert _bench(url, "--model", "declared", "--json", str(tmp_path / "found.json")) == 0
    assert json.loads((tmp_path / "found.json").read_text())["model"] == "declared"


def test_files_in_place_of_random_inputs(url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    assert _bench(url, "--model", "declared", "--input", f"x={tmp_path}/x.npy") == 0
    assert "declared: x FP32 [2, 4]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model", "nobody"), "there is no model 'nobody'"),
        (("--model", "break", "--shape", "x:FP32:1"), "500: model 'break' failed"),
        (("--model", "identity"), "declares no inputs; give them with --shape"),
    ],
)
def test_failures_are_one_line(
    options: tuple[str, ...], words: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _bench(url, *options) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert printed.err.count("\n") == 1


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench("http://127.0.0.1:1", "--model", "m") == 1
    assert "refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--model", "m", "--concurrency", "0"),
        ("--model", "m", "--concurrency", "5000"),
        ("--model", "m", "--concurrency", "1,"),
        ("--model", "m", "--rate", "0"),
        ("--model", "m", "--duration", "0"),
        ("--model", "m", "--tensors", "xml"),
        ("--model", "m", "--shape", "x"),
    ],
    ids=" ".join,
)
def test_wrong_arguments(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["bench", "http://127.0.0.1:1", *options])
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_without_matplotlib_a_plot_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(plot, "find_spec", lambda _: None)
    with pytest.raises(Exception, match=r"needs matplotlib: pip install 'streamcodec\[plot\]'"):
        plot.check_plot(Path("x.svg"))


@pytest.mark.slow
def test_the_plot(url: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="an extra")
    path = tmp_path / "found.svg"
    assert _bench(url, "--model", "declared", "--concurrency", "1,2", "--plot", str(path)) == 0
    text = path.read_text()
    assert all(f">{word}<" in text for word in ("2 connections", "requests per second", "latency, milliseconds"))


@pytest.mark.slow
def test_several_processes() -> None:
    with serving() as program:
        options = (
            "--model",
            "identity",
            "--shape",
            "x:FP32:16",
            "--processes",
            "2",
            "--duration",
            "0.5",
            "--json",
            "-",
        )
        result = subprocess.run([*COMMAND, program.url, *options], capture_output=True, text=True, check=True)
    runs = json.loads(result.stdout)["runs"]
    assert [(run["concurrency"], len(run["client_processors"])) for run in runs] == [(1, 1), (4, 2), (16, 2)]
    assert all(run["requests"] > 100 and not run["errors"] for run in runs)


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_ctrl_c_shows_what_was_measured(processes: str, url: str) -> None:
    options = ("--model", "declared", "--duration", "60", "--concurrency", "2,4", "--processes", processes)
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored in the background
    try:
        process = subprocess.Popen([*COMMAND, url, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, usual)
    with process:
        assert process.stdout is not None
        assert "declared" in process.stdout.readline()
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, complaints = process.communicate(timeout=30)
    assert (process.returncode, complaints) == (130, "")
    rows = [line for line in out.splitlines() if re.match(r" +[24] +-", line)]
    assert len(rows) == 1
    assert float(rows[0].split()[2].replace(",", "")) > 100


@pytest.mark.quiet
@pytest.mark.parametrize("connections", [1, 4, 16])
def test_figures_are_those_of_wrk(connections: int, tmp_path: Path) -> None:
    """Within 10% of its requests per second, when the server is the limit; taken in turns."""
    wrk = shutil.which("wrk")
    if wrk is None:
        pytest.skip("wrk is not installed")
    script = Path(__file__).parents[1] / "benchmarks" / "wrk" / "constant.lua"
    with serving() as program:
        request = tmp_path / "request.http"
        sent = whole_request(program.url, "identity", {"x": np.ones(16, np.float32)})
        request.write_bytes(b"".join([sent.head, *sent.body]))
        ours, theirs = [], []
        for _ in range(3):
            options = ("--model", "identity", "--shape", "x:FP32:16", "--duration", "2", "--json", "-")
            result = subprocess.run(
                [*COMMAND, program.url, *options, "--concurrency", str(connections)],
                capture_output=True,
                text=True,
                check=True,
            )
            ours.append(json.loads(result.stdout)["runs"][0]["requests_per_second"])
            wrk_options = ["--threads=1", f"--connections={connections}", "--duration=2s", "--script", str(script)]
            result = subprocess.run(
                [wrk, *wrk_options, program.url, "--", str(request)], capture_output=True, text=True, check=True
            )
            figures = json.loads(result.stdout.splitlines()[-1])
            theirs.append(figures["requests"] / figures["seconds"])
    ratio = np.median(ours) / np.median(theirs)
    assert ratio >= 0.9, f"{ours} and {theirs}"


# Batches


@pytest.mark.parametrize("version", [(), ("--model-version", "1")])
def test_the_rows_of_batches_are_shown(
    version: Sequence[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = Model(name="net", predict=lambda request: request.inputs, batch=Batch(max_delay=0.0))
    models, file = ModelRegistry.of([model]), tmp_path / "results.json"
    with server_here(models, observer=StatisticsObserver(models)) as (_, (host, port)):
        options = ("--model", "net", "--shape", "x:FP32:3,4", "--concurrency", "1", "--json", str(file), *version)
        assert _bench(f"http://{host}:{port}", *options) == 0
    assert "1 connection: batches of 3.0 rows on average; 100% of 3" in capsys.readouterr().out
    [run] = json.loads(file.read_text())["runs"]
    assert list(run["batches"]) == ["3"]
    assert run["batches"]["3"] >= run["requests"]


@pytest.mark.parametrize("answer", [b"[]", b"{", b"[" * 100_000, b'{"model_stats": [{"batch_stats": [{}]}]}'])
def test_a_server_without_statistics_is_measured_all_the_same(answer: bytes) -> None:
    class Other:
        def request(self, _: str, path: str, receive: Callable[..., Any]) -> None:
            assert path == "/v2/models/a%2Fb/stats"
            body = receive(None, False)
            body.get_buffer()[: len(answer)] = answer[: len(body.get_buffer())]
            body.buffer_updated(min(len(answer), len(body.get_buffer())))

    assert not batch_sizes(cast("Client", Other()), "a/b", None)
