"""Batched models of KServe: one call of `predict` for the rows of several clients, and each client gets its own."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import RequestedOutput, Tensor, encode_request
from tests.interop.servers.exchanges import Answer, post
from tests.kserve.conftest import INTERPRETER, Start
from tests.kserve.test_workers import workers_of
from tests.ports import free_port

_ROOT = Path(__file__).parents[2]
_KINDS = pytest.mark.parametrize("kind", ["rows", "late-rows"], ids=["function", "async"])


def _rows(*values: float, width: int = 4) -> np.ndarray[Any, Any]:
    return np.repeat(np.array(values, np.float32)[:, None], width, axis=1)


def _ask(url: str, kind: str, x: np.ndarray[Any, Any], *, is_binary: bool = True, **more: Any) -> Answer:  # noqa: ANN401
    message = encode_request(
        [Tensor(name="x", array=x, is_binary=is_binary)],
        outputs=more.get("outputs"),
        request_id=f"of {x.flat[0]}",
        parameters={"binary_data_output": True},
    )
    return post(url, f"{kind}/infer", message, fields=[("X-Question", f"{x.flat[0]}")])


def _all(url: str, kind: str, arrays: Sequence[np.ndarray[Any, Any]], *, is_binary: bool = True) -> list[Answer]:
    with ThreadPoolExecutor(len(arrays)) as pool:
        return list(pool.map(lambda x: _ask(url, kind, x, is_binary=is_binary), arrays))


def _check(x: np.ndarray[Any, Any], answer: Answer, *, rows: int) -> None:
    assert answer.status == 200, answer.text
    assert answer.outputs["y"].tolist() == (x * 2).tolist()
    assert answer.outputs["rows"].tolist() == [rows] * len(x)
    assert answer.outputs["text"].tolist() == [[b"\xff"]] * len(x)
    assert answer.header is not None
    assert answer.header.id == f"of {x.flat[0]}"


@_KINDS
@pytest.mark.parametrize("width", [4, 100_000])
def test_rows_of_several_clients_are_one_call_and_each_gets_its_own(ours: str, kind: str, width: int) -> None:
    arrays = [_rows(1, width=width), _rows(2, 3, width=width), _rows(4, width=width)]
    for x, answer in zip(arrays, _all(ours, kind, arrays), strict=True):
        _check(x, answer, rows=4)
        assert answer.header is not None
        assert answer.header.parameters == ({"asked": f"{x.flat[0]}"} if kind == "late-rows" else {})


@_KINDS
def test_the_error_of_a_row_is_that_of_one_client(ours: str, kind: str) -> None:
    arrays = [_rows(value) for value in (1, np.nan, 3, 4)]
    answers = _all(ours, kind, arrays)
    assert [answer.status for answer in answers] == [200, 400, 200, 200]
    assert "is NaN" in answers[1].text
    for at in (0, 2, 3):
        _check(arrays[at], answers[at], rows=4)


def test_what_breaks_a_batch_is_tried_alone(ours: str) -> None:
    arrays = [_rows(value) for value in (1, -np.inf, 3, 4)]
    answers = _all(ours, "rows", arrays)
    assert [answer.status for answer in answers] == [200, 500, 200, 200]
    assert "1 rows break the model" in answers[1].text
    for at in (0, 2, 3):
        _check(arrays[at], answers[at], rows=1)


def test_a_client_gets_what_it_has_asked_for(ours: str) -> None:
    """Which outputs, and in which form, is a matter of one client; so is the form of what it sends."""
    wanted = [None, [RequestedOutput(name="y", binary_data=False)]]
    with ThreadPoolExecutor(2) as pool:
        binary, plain = pool.map(
            lambda outputs: _ask(ours, "rows", _rows(1, 2), is_binary=outputs is None, outputs=outputs), wanted
        )
    _check(_rows(1, 2), binary, rows=4)
    assert plain.forms() == {"y": "json"}
    assert plain.outputs["y"].tolist() == (_rows(1, 2) * 2).tolist()


def test_no_client_decides_for_others_what_is_text(ours: str) -> None:
    names = [np.array([[name]], object) for name in (b"anna", b"\xff", b"bob", b"\xfe")]
    said = [answer.outputs["y"].tolist() for answer in _all(ours, "greeting", names)]
    assert said == [[[b"hello anna"]], [[b"hello b'\\xff'"]], [[b"hello bob"]], [[b"hello b'\\xfe'"]]]


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (_rows(1, 2, 3, 4, 5), "5 rows, and the model takes 4"),
        (np.array(1, np.float32), "no dimension for rows"),
    ],
)
def test_what_cannot_be_a_part_of_a_batch_is_refused(ours: str, x: np.ndarray[Any, Any], text: str) -> None:
    answer = _ask(ours, "rows", x)
    assert (answer.status, text in answer.text) == (400, True), answer.text


def test_the_v1_protocol_is_refused(ours: str) -> None:
    body = json.dumps({"instances": [[1.0]]}).encode()
    request = urllib.request.Request(f"{ours}/v1/models/rows:predict", body, {"Content-Type": "application/json"})  # noqa: S310 - ours
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)  # noqa: S310 - as before
    with caught.value as error:
        assert error.code == 400
        assert "takes batches of V2 requests" in error.read().decode()


def test_more_rows_than_may_wait_are_told_to_come_back(ours: str) -> None:
    """Two rows are in the model, two wait, and two are refused."""
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(_ask, ours, "held", _rows(1, 2)) for _ in range(3)]
        refused = next(as_completed(asked))
        assert _ask(ours, "release", _rows(1)).status == 200
        for waiting in asked:
            if waiting is not refused:
                _check(_rows(1, 2), waiting.result(60), rows=2)
    answer = refused.result()
    assert (answer.status, answer.value(b"retry-after")) == (503, "1")
    assert "2 rows wait for model 'held'" in answer.text


def test_the_configuration_says_so(ours: str) -> None:
    with urllib.request.urlopen(f"{ours}/v2/models/rows/config", timeout=60) as answer:  # noqa: S310 - ours
        document = json.load(answer)
    assert document["max_batch_size"] == 4
    assert document["dynamic_batching"]["preferred_batch_size"] == [4]
    assert document["dynamic_batching"]["max_queue_delay_microseconds"] == 60_000_000
    assert document["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1], "optional": False}]


@pytest.mark.parametrize("model", ["identity", "nothing"])
def test_other_models_have_no_configuration(ours: str, model: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{ours}/v2/models/{model}/config", timeout=60)  # noqa: S310 - ours
    with caught.value as error:
        assert error.code == 404


def test_each_worker_process_has_its_batches(start: Start) -> None:
    with start(workers=2) as peer:
        workers_of(peer.url, 2)
        for _ in range(8):
            _check(_rows(1, 2, 3, 4), _ask(peer.url, "rows", _rows(1, 2, 3, 4)), rows=4)
            _check(_rows(1), _ask(peer.url, "alone", _rows(1)), rows=1)


@pytest.mark.parametrize("installs", [True, False], ids=["ours", "theirs"])
def test_clients_of_grpc_and_what_cannot_be_batched(start: Start, installs: bool) -> None:
    port = free_port()
    with start(installs=installs, grpc_port=port):
        done = subprocess.run(
            [os.environ[INTERPRETER], "-m", "tests.kserve.batching_script", str(port)],
            cwd=_ROOT,
            env=os.environ | {"NO_PROXY": "*"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["grpc"] == {"y": [[2.0 * value] for value in range(1, 5)], "rows": [4, 4, 4, 4]}
    wanted = {
        "no model": "a int is no kserve.Model",
        "transformer": "has no predict of its own",
        "twice": "has been replaced already",
        "generator": "yields its answer in pieces",
        "fields": "sets fields of an answer's head",
        "scalar": "has shape (), and no first dimension for a batch",
        "no batch": "is a Batch, as Batch(max_rows=64)",
    }
    assert {case: text for case, text in wanted.items() if text not in result["refused"][case]} == {}
    assert set(result["refused"]) == set(wanted)
