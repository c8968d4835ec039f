"""Access log: a line for each request, whatever the client has chosen, without holding up anybody."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
import time
from typing import Literal

import pytest

from streamcodec.engine.errors import ErrorCode
from streamcodec.http.heads.messages import Fields, RequestHead
from streamcodec.server import AccessLog, to_descriptor, to_logger
from streamcodec.service import Ending, ModelRegistry, RequestRecord, demo_models
from tests.server.programs import serving
from tests.server.wire import GET_LIVE, Wire, infer_request, post
from tests.waiting import until

SECONDS = 60


def _record(target: str = "/v2", request_id: str | None = None) -> RequestRecord:
    record = RequestRecord("127.0.0.1:5", 1.25)
    record.head = RequestHead(method="POST", target=target, fields=Fields(()), content_length=0)
    record.request_id = request_id
    record.status, record.bytes_in, record.bytes_out, record.seconds = 200, 10, 20, 0.5
    return record


def _lines(*records: RequestRecord, form: Literal["text", "json"] = "text", max_waiting: int = 100) -> list[str]:
    lines: list[str] = []
    log = AccessLog(form=form, write=lines.extend, max_waiting=max_waiting)
    for record in records:
        log.request_ended(record)
    log.close()
    return lines


def test_a_line_has_its_columns() -> None:
    whole, refused, left = _record(request_id="7"), _record(), RequestRecord("", 1.0)
    whole.model, whole.version = "m", "1"
    refused.status, refused.code = 400, ErrorCode.INVALID_JSON
    left.ending = Ending.CLIENT_LEFT
    assert _lines(whole, refused, left) == [
        "1970-01-01T00:00:01.250Z 127.0.0.1:5 POST /v2 m 1 7 200 10 20 0.500000 -",
        "1970-01-01T00:00:01.250Z 127.0.0.1:5 POST /v2 - - - 400 10 20 0.500000 invalid-json",
        "1970-01-01T00:00:01.000Z - - - - - - - 0 0 0.000000 client-left",
    ]


def test_as_json() -> None:
    named, refused = _record(request_id='"\n'), _record()
    named.model, named.version = "m", "1"
    refused.status, refused.code = None, ErrorCode.INVALID_JSON
    expected = {
        "time": "1970-01-01T00:00:01.250Z",
        "client": "127.0.0.1:5",
        "method": "POST",
        "path": "/v2",
        "model": "m",
        "version": "1",
        "id": '"\n',
        "status": 200,
        "bytes_in": 10,
        "bytes_out": 20,
        "seconds": 0.5,
        "code": None,
        "ending": "complete",
    }
    unnamed = {"model": None, "version": None, "id": None, "status": None, "code": "invalid-json"}
    assert list(map(json.loads, _lines(named, refused, form="json"))) == [expected, expected | unnamed]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("-", '"-"'),
        ("", '""'),
        ("a b", '"a b"'),
        ('a"b', r'"a\"b"'),
        ("a\\", r'"a\\"'),
        ("a\nb", r'"a\nb"'),
        ("\x1b[2J", r'"\x1b[2J"'),
        ("\u202e", r'"\u202e"'),
        ("\ud800", r'"\ud800"'),
        ("ü", '"ü"'),
        ("x" * 1000, "x" * 256),
    ],
)
def test_what_a_client_has_chosen_stays_in_its_column(text: str, column: str) -> None:
    (line,) = _lines(_record(request_id=text))
    assert f" - - {column} 200 " in line
    (line,) = _lines(_record(target=text))
    assert f" POST {column} - " in line
    record = _record()
    record.client, record.version = text, text  # a proxy tells the address; an unknown version stands in the target
    (line,) = _lines(record)
    assert f"Z {column if text else '-'} POST /v2 - {column} - 200 " in line
    (line,) = _lines(_record(request_id=text), form="json")
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["id"] == text[:256]


@pytest.mark.parametrize("form", ["text", "json"])
def test_nobody_waits_for_a_log_that_nobody_takes(form: Literal["text", "json"]) -> None:
    may_go, is_held, lines = threading.Event(), threading.Event(), []

    def write(batch: list[str]) -> None:
        is_held.set()
        assert may_go.wait(SECONDS)
        lines.extend(batch)

    log = AccessLog(form=form, write=write, max_waiting=10)
    log.request_ended(_record())
    assert is_held.wait(SECONDS)
    for _ in range(25):
        log.request_ended(_record())
    may_go.set()
    log.close()
    assert len(lines) == 12
    assert re.search(r"dropped 15 lines$" if form == "text" else r'"dropped": 15}$', lines[-1])
    log.request_ended(_record())  # what comes after the end is not written
    log.close()
    assert len(lines) == 12


@pytest.mark.slow
@pytest.mark.parametrize("error", [OSError("no space left on device"), SystemExit(1)])
def test_lines_that_cannot_be_written_are_lost_and_no_others(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[str] = []
    fails = [True, True, False]

    def write(coming: list[str]) -> None:
        if fails.pop(0):
            raise error
        lines.extend(coming)

    log = AccessLog(write=write)
    for left in (2, 1, 0):
        log.request_ended(_record(request_id=f"a{left}"))
        until(lambda left=left: len(fails) == left)  # type: ignore[misc]
    log.close()
    assert [line.split()[6] for line in lines] == ["a0"]
    (complaint,) = caplog.records
    assert complaint.message == "lines of the access log are lost; later failures are not logged"
    assert complaint.exc_info is not None
    assert complaint.exc_info[1] is error


def test_closing_waits_for_a_second_only() -> None:
    may_go = threading.Event()
    log = AccessLog(write=lambda _: may_go.wait(SECONDS))  # type: ignore[arg-type]  # it returns nothing of use
    log.request_ended(_record())
    log.close()
    may_go.set()


def test_closing_while_lines_are_gathered_ends_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    log = AccessLog(write=lines.extend)
    gathers = threading.Event()
    usual = time.sleep

    def sleep(seconds: float) -> None:
        gathers.set()
        usual(seconds + 0.2)

    monkeypatch.setattr(time, "sleep", sleep)
    log.request_ended(_record())
    assert gathers.wait(SECONDS)
    log.close()
    assert len(lines) == 1
    assert log._thread is not None  # noqa: SLF001 - nothing else tells
    assert not log._thread.is_alive()  # noqa: SLF001 - as before


def test_a_log_that_nothing_was_written_to_is_closed_at_once() -> None:
    AccessLog().close()


def test_without_a_thread_lines_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    lines: list[str] = []
    log = AccessLog(write=lines.extend)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        log.request_ended(_record())
    log.request_ended(_record())
    log.close()
    assert len(lines) == 2


def test_to_a_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "streamcodec.access")
    to_logger(["100%", "b"])
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("streamcodec.access", "100%"),
        ("streamcodec.access", "b"),
    ]


def test_to_a_descriptor_and_to_one_that_is_closed() -> None:
    reading, writing = os.pipe()
    write = to_descriptor(writing)
    write(["a", "\ud800"])
    assert os.read(reading, 100) == b"a\n\\ud800\n"
    os.close(reading)
    write(["nobody reads this"])
    os.close(writing)


def _logged(*options: str) -> tuple[list[str], list[str]]:
    """Return the complaints of a server that has been asked four things, and those of them that are lines."""
    with serving("tests.server.models:MODELS", "--access-log", *options) as program:
        with Wire(program.address) as wire:
            for request in (GET_LIVE, infer_request(), post(b'{"id":"a b"}'), infer_request("break")):
                wire.send(request).response()
        program.kill(signal.SIGTERM)
        assert program.ends() == 0
        lines = program.complaints().splitlines()
    return lines, [line for line in lines if " 127.0.0.1:" in line or line.startswith("{")]


@pytest.mark.slow
def test_serve_writes_it_to_standard_error() -> None:
    lines, logged = _logged()
    assert [line.split()[-4 - 1] for line in logged] == ["200", "200", "400", "500"]
    assert ' identity 1 "a b" 400 ' in logged[2] or " identity 1 - 400 " in logged[2]
    (failure,) = (line for line in lines if "ERROR" in line)
    assert failure.endswith("streamcodec.runtime.models.failures ERROR: model 'break' version '1' failed")
    frames = [line for line in lines if line.startswith('  File "')]
    assert "tests/server/models.py" in frames[0]


@pytest.mark.slow
def test_serve_writes_it_as_json() -> None:
    _, logged = _logged("--access-log-format", "json")
    assert [json.loads(line)["status"] for line in logged] == [200, 200, 400, 500]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["warning", "critical"])
def test_serve_writes_what_is_important_enough(level: str) -> None:
    lines, logged = _logged("--log-level", level)
    assert not logged
    assert any("swordfish" in line for line in lines) is (level == "warning")


def models_with_a_handler() -> ModelRegistry:
    """For `serve`: a module that wants to have the access log."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("mine: %(message)s"))
    logger = logging.getLogger("streamcodec.access")
    logger.addHandler(handler)
    logger.propagate = False
    return demo_models()


@pytest.mark.slow
def test_a_module_may_have_it() -> None:
    with serving("tests.server.processes.test_accesslog:models_with_a_handler", "--access-log") as program:
        with Wire(program.address) as wire:
            wire.send(GET_LIVE).response()
        program.kill(signal.SIGTERM)
        assert program.ends() == 0
        assert program.complaints().startswith("mine: ")
