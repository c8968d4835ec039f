"""Servers with one flaw each: every kind of finding is found, and named for what it is."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from streamcodec import DATATYPES
from streamcodec.blackbox.examination import ProbeState, Result
from streamcodec.blackbox.learning import CannotExamineError
from streamcodec.blackbox.verdicts import Fault
from tests.blackbox.peers import (
    SHORT,
    TIMEOUT,
    FlawedServer,
    Received,
    echo,
    examine,
    examiner,
    flawed,
    inputs,
    named,
    response,
)

Flaw = Callable[[FlawedServer, Received], bytes]
Floats = NDArray[np.float32]


def _right(server: FlawedServer, received: Received) -> bytes:  # noqa: ARG001 - the signature of a flaw
    return received.answer


def _instead_of_refusals(answer: Callable[[FlawedServer, Received], bytes]) -> Flaw:
    """Answer right requests rightly, and others in another way."""
    return lambda server, received: received.answer if received.status == 200 else answer(server, received)


def _ignores_trailing_bytes(server: FlawedServer, received: Received) -> bytes:  # noqa: ARG001
    text, end = json.JSONDecoder().raw_decode(received.body.decode("latin-1")) if received.body else ({}, 0)
    sizes = [entry["parameters"]["binary_data_size"] for entry in text.get("inputs", ()) if "parameters" in entry]
    if received.status == 200 or not sizes:
        return received.answer
    return echo(received.body[: end + sum(sizes)], end)


def _says_nothing(server: FlawedServer, received: Received) -> bytes:  # noqa: ARG001
    server.stop.wait(TIMEOUT)
    return b""


def _dies(server: FlawedServer, received: Received) -> bytes:  # noqa: ARG001
    server.die()
    return b""


def _dies_after_answering(server: FlawedServer, received: Received) -> bytes:
    server.die()
    return received.answer


FLAWS: dict[str, tuple[Fault, str, str, Flaw]] = {
    "accepts trailing bytes": (Fault.ACCEPTED, "sizes/trailing-byte", "200", _ignores_trailing_bytes),
    "blames itself": (
        Fault.SERVER_ERROR,
        "sizes/past-end",
        "500: KeyError: 'x'",
        _instead_of_refusals(lambda *_: response(500, b"""{"error": "KeyError:\\n 'x'"}""")),
    ),
    "hangs": (Fault.HUNG, "json/cut", "no answer within 3 s", _instead_of_refusals(_says_nothing)),
    "dies": (Fault.CRASHED, "shapes/negative", "Connection refused", _instead_of_refusals(_dies)),
    "dies behind its answer": (
        Fault.CRASHED,
        "shapes/negative",
        "400: a dimension is not an integer >= 0",
        _instead_of_refusals(_dies_after_answering),
    ),
    "closes": (Fault.CLOSED, "datatypes/unknown", "closed without an answer", _instead_of_refusals(lambda *_: b"")),
    "breaks off": (
        Fault.GARBLED,
        "datatypes/unknown",
        "closed",
        _instead_of_refusals(lambda _, received: received.answer[:-9]),
    ),
    "does not speak HTTP": (
        Fault.GARBLED,
        "members/no-inputs",
        "illegal status line",
        _instead_of_refusals(lambda *_: b"what do you mean?\r\n\r\n"),
    ),
    "sends elsewhere": (
        Fault.GARBLED,
        "members/no-inputs",
        "302",
        _instead_of_refusals(lambda *_: response(302, b"", "Location: /")),
    ),
    "gives no reason": (
        Fault.UNEXPLAINED,
        "elements/last-overruns",
        "400",
        _instead_of_refusals(lambda *_: response(400, b"")),
    ),
    "refuses what is right": (
        Fault.REFUSED,
        "boundaries/padded",
        "400: no blanks, please",
        lambda _, received: response(400, b"no blanks, please") if b"}  " in received.body else received.answer,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("flaw", FLAWS)
def test_flaw_is_found(flaw: str) -> None:
    kind, name, detail, behave = FLAWS[flaw]
    timeout = SHORT if kind is Fault.HUNG else TIMEOUT
    with flawed(behave) as server:
        (result,) = examine(server, name, timeout=timeout)
    assert result.state is ProbeState.FOUND
    assert result.finding is not None
    assert (result.finding.kind, detail in result.finding.detail) == (kind, True), result.finding
    assert result.request is not None


@pytest.mark.parametrize("name", sorted({name for _, name, _, _ in FLAWS.values()}))
def test_nothing_is_found_without_a_flaw(name: str) -> None:
    with flawed(_right) as server:
        (result,) = examine(server, name)
    assert (result.state, result.finding) == (ProbeState.PASSED, None)


def test_answer_to_another_request_is_found() -> None:
    """A cache that takes a request for another one."""
    last: list[bytes] = []

    def remembers(_: FlawedServer, received: Received) -> bytes:
        if received.body and b"\x80\x7f" not in received.body:
            last[:] = [received.answer]
        return last[0] if received.body else received.answer

    with flawed(remembers) as server:
        changed, same = examine(server, "boundaries/infinity", "boundaries/padded")
    assert changed.finding is not None
    assert (changed.finding.kind, changed.finding.detail) == (
        Fault.CHANGED,
        "200: the outputs do not match this request",
    )
    assert same.finding is None


def test_field_that_came_from_the_request_is_found() -> None:
    def echoes_id(_: FlawedServer, received: Received) -> bytes:
        """Write the id into the head, as it is."""
        if b'"id"' not in received.body:
            return received.answer
        document, _end = json.JSONDecoder().raw_decode(received.body.decode("latin-1"))
        return received.answer.replace(b"\r\n", f"\r\nx-id: {document['id']}".encode() + b"\r\n", 1)

    with flawed(echoes_id) as server:
        (result,) = examine(server, "http/field-in-id")
    assert result.finding is not None
    assert result.finding.kind is Fault.GARBLED
    assert "came from the request" in result.finding.detail


def test_server_that_answers_others_wrongly_afterwards_is_found() -> None:
    spoiled = threading.Event()

    def breaks(_: FlawedServer, received: Received) -> bytes:
        if received.status == 400:
            spoiled.set()
        is_broken = spoiled.is_set() and received.status == 200 and received.body
        return response(500, b"I am confused") if is_broken else received.answer

    with flawed(breaks) as server:
        (result,) = examine(server, "json/cut")
    assert result.finding is not None
    assert result.finding.kind is Fault.BROKEN
    assert result.finding.detail.startswith("400: ")
    assert result.finding.detail.endswith("then a good request: server error: 500: I am confused")


def test_server_that_is_not_well_afterwards_is_found() -> None:
    spoiled = threading.Event()

    def falls_ill(_: FlawedServer, received: Received) -> bytes:
        if received.status == 400:
            spoiled.set()
        return response(503, b"not well") if spoiled.is_set() and not received.body else received.answer

    with flawed(falls_ill) as server:
        (result,) = examine(server, "json/cut")
    assert result.finding is not None
    assert result.finding.kind is Fault.BROKEN
    assert result.finding.detail.endswith("then health: 503: not well")


@pytest.mark.slow
def test_server_that_answers_nobody_meanwhile_is_found() -> None:
    spoiled = threading.Event()

    def blocks(server: FlawedServer, received: Received) -> bytes:
        if received.status == 400:
            spoiled.set()
        return _says_nothing(server, received) if spoiled.is_set() else received.answer

    with flawed(blocks) as server:
        blocked, behind = examine(server, "json/cut", "json/array", timeout=SHORT)
    assert blocked.finding is not None
    assert blocked.finding.kind is Fault.BLOCKED
    assert blocked.finding.detail == "no answer within 3 s; then health: no answer within 3 s"
    assert behind.state is ProbeState.NOT_RUN


def test_probes_behind_a_crash_are_not_run() -> None:
    with flawed(_instead_of_refusals(_dies)) as server:
        results = examine(server, "boundaries/binary", "json/cut", "json/array", "json/null")
    states = [ProbeState.PASSED, ProbeState.FOUND, ProbeState.NOT_RUN, ProbeState.NOT_RUN]
    assert [result.state for result in results] == states
    assert results[-1].note == "the server has not recovered from json/cut"


def test_other_probes_are_not_blamed_for_a_server_that_is_broken() -> None:
    spoiled = threading.Event()

    def breaks(_: FlawedServer, received: Received) -> bytes:
        if received.status == 400:
            spoiled.set()
        return response(500, b"") if spoiled.is_set() and received.body else received.answer

    with flawed(breaks) as server:
        results = examine(server, "json/cut", "json/array", "json/null")
    assert [result.state for result in results] == [ProbeState.FOUND, ProbeState.NOT_RUN, ProbeState.NOT_RUN]


@pytest.mark.slow
def test_probes_go_on_when_the_server_comes_back() -> None:
    """Its health is bad for three requests, as of one that is started anew."""
    left = [3]

    def stumbles(_: FlawedServer, received: Received) -> bytes:
        if received.status == 400 and left[0] == 3:
            left[0] -= 1
            return b""
        if received.line.startswith(b"GET") and 0 < left[0] < 3:
            left[0] -= 1
            return response(503, b"starting")
        return received.answer

    with flawed(stumbles) as server:
        broken, after = examine(server, "json/cut", "json/array", recovery=60)
    assert broken.finding is not None
    assert broken.finding.kind is Fault.BROKEN
    assert (after.state, after.finding) == (ProbeState.PASSED, None)


def test_requests_are_bounded() -> None:
    """Seven to learn, and three for each probe; for the third one there is only one left."""
    with flawed(_right) as server:
        limited = examiner(server.address, max_requests=7 + 3 + 3 + 1)
        results = list(limited.examine(named("json/cut", "json/array", "json/null", "json/string")))
        assert len(server.requests) == 14
    states = [ProbeState.PASSED, ProbeState.PASSED, ProbeState.NOT_RUN, ProbeState.NOT_RUN]
    assert [result.state for result in results] == states
    assert "used up" in results[-1].note


def test_requests_are_bounded_while_the_server_is_down() -> None:
    with flawed(_instead_of_refusals(_dies)) as server:
        limited = examiner(server.address, max_requests=7 + 2, recovery=60)
        _, behind = limited.examine(named("json/cut", "json/array"))
    assert (behind.state, "used up" in behind.note) == (ProbeState.NOT_RUN, True)


def test_finding_is_kept_when_no_requests_are_left_for_what_follows() -> None:
    with flawed(_instead_of_refusals(lambda *_: response(500, b"a bug"))) as server:
        limited = examiner(server.address, max_requests=7 + 1)
        found, behind = limited.examine(named("json/cut", "json/array"))
    assert found.finding is not None
    assert found.finding.kind is Fault.SERVER_ERROR
    assert behind.state is ProbeState.NOT_RUN


def test_answers_of_a_model_that_echoes_nothing_are_known_for_its_inputs_alone() -> None:
    """It counts bytes: an answer for the same tensors must be the same; others it may answer as it likes, or refuse."""

    def counts(_: FlawedServer, received: Received) -> bytes:
        if received.status != 200 or not received.body:
            return received.answer
        if b"\x80\x7f" in received.body:
            return response(400, b"that is infinite")
        data = b"7" if b"    " in received.body else b"1"
        output = b'{"name":"y","datatype":"INT8","shape":[1],"data":[%b]}' % data
        return response(200, b'{"outputs":[%b]}' % output)

    with flawed(counts) as server:
        results = examine(server, "boundaries/spread", "boundaries/infinity", "boundaries/padded-64-KiB")
    kinds = [result.finding and result.finding.kind for result in results]
    assert kinds[1:] == [None, Fault.CHANGED]


def test_answer_without_outputs_is_found() -> None:
    def forgets(_: FlawedServer, received: Received) -> bytes:
        return response(200, b"OK") if b"    " in received.body else received.answer

    with flawed(forgets) as server:
        (result,) = examine(server, "boundaries/padded-64-KiB")
    assert result.finding is not None
    assert (result.finding.kind, result.finding.detail) == (Fault.CHANGED, "200: no well formed outputs")


def test_second_answer_that_does_not_come_is_found() -> None:
    with flawed(_right) as server:
        (result,) = examine(server, "boundaries/pipelined")
    assert result.finding is not None
    assert result.finding.kind is Fault.CLOSED
    assert result.finding.detail.startswith("200, then the connection was closed ")


def test_connection_that_goes_on_after_two_lengths_is_found() -> None:
    """Both requests are answered, so a proxy in front may be made to disagree."""

    def goes_on(_: FlawedServer, received: Received) -> bytes:
        is_smuggled = b"transfer-encoding" in received.fields
        return response(200, b"{}") * 2 if is_smuggled else received.answer

    def closes(_: FlawedServer, received: Received) -> bytes:
        is_smuggled = b"transfer-encoding" in received.fields
        return response(200, b"{}") if is_smuggled else received.answer

    kinds = []
    for flaw in (goes_on, closes):
        with flawed(flaw) as server:
            (result,) = examine(server, "http/length-and-chunks")
        kinds.append(result.finding and result.finding.kind)
    assert kinds == [Fault.ACCEPTED, None]


def test_request_behind_a_refused_one_that_is_answered_is_found() -> None:
    def goes_on(_: FlawedServer, received: Received) -> bytes:
        is_smuggled = b"transfer-encoding" in received.fields
        return response(400, b"no") + response(200, b"{}") if is_smuggled else received.answer

    with flawed(goes_on) as server:
        (result,) = examine(server, "http/length-and-chunks")
    assert result.finding is not None
    assert (result.finding.kind, result.finding.detail) == (
        Fault.ACCEPTED,
        "400, and then the bytes after the request are answered",
    )


def test_wrong_answer_to_the_second_of_two_requests_is_found() -> None:
    """Whatever the outputs are: the model's answers differ from call to call."""
    calls: list[int] = []

    def differs(_: FlawedServer, received: Received) -> bytes:
        calls.append(1)
        good = response(200, b'{"outputs":[{"name":"y","datatype":"INT8","shape":[1],"data":[%d]}]}' % len(calls))
        if not received.body:
            return received.answer
        return good + response(500, b"one at a time") if len(calls) > 5 else good

    with flawed(differs) as server:
        (result,) = examine(server, "boundaries/pipelined")
    assert result.finding is not None
    assert (result.finding.kind, result.finding.detail) == (Fault.SERVER_ERROR, "500: one at a time")


@pytest.mark.parametrize("function", [np.square, np.abs, np.trunc, lambda x: np.maximum(x, 0)])
def test_function_that_leaves_0_and_1_as_they_are_is_no_echo(function: Callable[[Floats], Floats]) -> None:
    def calculates(_: FlawedServer, received: Received) -> bytes:
        values = np.frombuffer(received.answer[-8:], "<f4") if received.body else np.zeros(0, "<f4")
        return received.answer[: -values.nbytes or None] + function(values).tobytes()

    with flawed(calculates) as server:
        baseline = examiner(server.address, inputs(("x", "FP32", (-1,)))).baseline
    assert (baseline.outputs is not None, baseline.is_echo) == (True, False)
    with flawed(_right) as server:
        assert examiner(server.address, inputs(("x", "FP32", (-1,)))).baseline.is_echo


@pytest.mark.parametrize("name", DATATYPES)
def test_echo_is_known_by_any_datatype(name: str) -> None:
    with flawed(_right) as server:
        assert examiner(server.address, inputs(("x", name, (-1,)))).baseline.is_echo


def test_model_that_takes_binary_tensors_only() -> None:
    with flawed(_right) as server:
        half = examiner(server.address, inputs(("x", "FP16", (-1,))))
        results = list(half.examine(named("values/null", "sizes/negative", "elements/none")))
    assert [result.state for result in results] == [
        ProbeState.NOT_APPLICABLE,
        ProbeState.PASSED,
        ProbeState.NOT_APPLICABLE,
    ]
    assert results[0].note == "the model cannot be given JSON data"
    assert results[2].note == "the model has no input of BYTES"


def _knows_json_only(_: FlawedServer, received: Received) -> bytes:
    if b"binary_data_size" in received.body:
        return response(422, b"no data")
    return received.answer


def test_server_that_takes_json_only() -> None:
    with flawed(_knows_json_only) as server:
        plain = examiner(server.address, inputs(("x", "FP32", (-1,))))
        results = list(plain.examine(named("sizes/negative", "values/null", "json/cut")))
    assert not plain.target.has_binary
    assert [result.state for result in results] == [ProbeState.NOT_APPLICABLE, ProbeState.PASSED, ProbeState.PASSED]


def test_model_whose_answers_differ_is_asked_only_whether_it_answers() -> None:
    calls: list[int] = []

    def differs(_: FlawedServer, received: Received) -> bytes:
        calls.append(1)
        answer = received.answer
        return answer[:-1] + bytes([len(calls) % 256]) if received.status == 200 and received.body else answer

    with flawed(differs) as server:
        varying = examiner(server.address, inputs(("x", "UINT8", (-1,))))
        results: list[Result] = list(varying.examine(named("boundaries/padded", "json/cut")))
    assert varying.baseline.outputs is None
    assert [result.state for result in results] == [ProbeState.PASSED, ProbeState.PASSED]


def test_server_without_health_cannot_be_examined() -> None:
    """Behind every probe it is asked for its health, and each would seem to have broken it."""
    said = r"is not well, or does not say so: GET /v2/health/live is answered 404: not found"
    with (
        flawed(lambda _, received: received.answer if received.body else response(404, b"not found")) as server,
        pytest.raises(CannotExamineError, match=said),
    ):
        examiner(server.address)


def test_no_good_request_is_an_error_with_the_servers_words() -> None:
    with (
        flawed(lambda _, it: response(400, b'{"error": "wrong model"}') if it.body else it.answer) as server,
        pytest.raises(CannotExamineError, match=r"in binary: refused: 400: wrong model; as JSON: refused: 400"),
    ):
        examiner(server.address)
