"""What `streamcodec.kserve` makes of messages is what KServe's own codec makes of them, but for its faults."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interop.round_trip import ours
from tests.interop.round_trip.kserve_codec import HOW, INTERPRETER, KServeCodec, KServeError, members_of, wire_of
from tests.interop.round_trip.plain import Members, PlainMessage, as_text, vector
from tests.interop.round_trip.strategies import ROUND_TRIPS, output_parameters, outputs, requests, responses
from tests.interop.round_trip.test_kserve import FINITE_READ, READ, SIGNALLING, SIGNALLING_MADE_QUIET, WRITTEN

pytestmark = pytest.mark.skipif(INTERPRETER not in os.environ, reason=HOW)

HOLDS = ["array", "list", "bytes"]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KServeCodec]:
    with KServeCodec(tmp_path_factory.mktemp("both") / "stderr.txt", "kserve_ours_script") as codec:
        yield codec


def asked(*, parameters: Members | None = None, wanted: list[Members] | None = None) -> PlainMessage:
    tensors = [vector("INT8", "01", is_binary=True)]
    return PlainMessage(tensors=tensors, parameters=parameters or {}, outputs=wanted)


def answering(message: PlainMessage, request: PlainMessage, *, holds: str = "array", passes_on: bool = True) -> Members:
    wire = members_of(ours.request_bytes(request))
    return {"message": asdict(message), "request": wire, "holds": holds, "passes_on": passes_on}


def answers(both: KServeCodec, question: Members) -> tuple[str, str]:
    """Return what KServe and we answer, as text, or the kind of error."""
    texts = []
    for act in ("their_answer", "our_answer"):
        try:
            texts.append(as_text(ours.read_response(wire_of(both.ask(act, question)))))
        except KServeError as error:
            texts.append(str(error).partition(":")[0])
    return texts[0], texts[1]


@ROUND_TRIPS
@given(sent=requests(FINITE_READ, wanted=outputs(output_parameters(READ), min_size=0)))
def test_a_model_sees_the_same_request(both: KServeCodec, sent: PlainMessage) -> None:
    question = members_of(ours.request_bytes(sent))
    assert both.ask("our_request", question) == both.ask("their_request", question)


@st.composite
def exchanges(draw: st.DrawFn) -> Members:
    """Answers that KServe can write, and requests that it does not misunderstand."""
    message = draw(responses(WRITTEN).filter(lambda message: message.model_name))
    forms = [{"binary_data": True}, {"binary_data": False}]
    names = [tensor.name for tensor in message.tensors]
    wanted = None
    if draw(st.booleans()):
        wanted = [{"name": name, "parameters": draw(st.sampled_from(forms))} for name in draw(st.permutations(names))]
        wanted = wanted[: draw(st.integers(1, len(wanted)))]
    parameters = {"binary_data_output": draw(st.booleans())}
    return answering(message, asked(parameters=parameters, wanted=wanted), holds=draw(st.sampled_from(HOLDS)))


def _is_written_by_theirs(question: Members) -> bool:
    """Leave out what the tests below show of empty tensors."""
    empty = [tensor["datatype"] for tensor in question["message"]["tensors"] if not tensor["elements"]]
    return "FP16" not in empty and (question["holds"] == "array" or not empty)


@ROUND_TRIPS
@given(question=exchanges().filter(_is_written_by_theirs))
def test_a_client_gets_the_same_answer(both: KServeCodec, question: Members) -> None:
    theirs, mine = answers(both, question)
    assert mine == theirs


@ROUND_TRIPS
@given(sent=requests(WRITTEN, wanted=outputs(output_parameters(WRITTEN))))
def test_our_requests_for_their_client_say_the_same(both: KServeCodec, sent: PlainMessage) -> None:
    got = ours.read_request(wire_of(both.ask("our_question", asdict(sent))))
    binary = [replace(tensor, is_binary=True) for tensor in sent.tensors]
    assert as_text(got) == as_text(replace(sent, id=sent.id or None, tensors=binary))


@ROUND_TRIPS
@given(sent=responses(WRITTEN))
def test_our_reading_for_their_client_says_the_same(both: KServeCodec, sent: PlainMessage) -> None:
    got = both.ask("our_reading", members_of(ours.response_bytes(sent)))
    assert (got["id"], got["model_name"], got["parameters"]) == (sent.id, sent.model_name, sent.parameters)
    assert got["tensors"] == [[t.name, t.datatype, t.shape, t.elements] for t in sent.tensors]


def test_no_array_is_copied(both: KServeCodec) -> None:
    assert both.ask("aliases", {}) == {"array": True, "bytes": True, "encoded": True}


def test_both_refuse_the_same_answers(both: KServeCodec) -> None:
    half, no_text = vector("FP16", "003c"), replace(vector("BYTES", "ff"), name="y")
    one = PlainMessage(tensors=[half], model_name="m", id="1")
    cases: list[tuple[Members, str]] = [
        (answering(one, asked()), "InvalidInput"),  # no form in JSON
        (answering(one, asked(wanted=[{"name": "other", "parameters": {}}])), "InvalidInput"),
        (answering(replace(one, tensors=[no_text]), asked()), "InferenceError"),
        (answering(replace(one, tensors=[half, no_text]), asked()), "InvalidInput"),  # the first one counts
        (answering(replace(one, tensors=[no_text, half]), asked()), "InferenceError"),
        (answering(replace(one, parameters={"n": math.nan}), asked()), "InvalidInput"),
    ]
    for question, kind in cases:
        assert answers(both, question) == (kind, kind)


# What differs, and why.

X = vector("FP32", "0000803f", is_binary=True)
ANSWER = PlainMessage(tensors=[X], model_name="m", id="1")


def forms(both: KServeCodec, question: Members) -> list[Any]:
    """Return whether KServe's answer is binary, and ours; or the error."""
    found: list[Any] = []
    for act in ("their_answer", "our_answer"):
        try:
            found.append(ours.read_response(wire_of(both.ask(act, question))).tensors[0].is_binary)
        except KServeError as error:
            found.append(str(error))
    return found


def test_theirs_ignores_binary_data_output_where_outputs_are_listed(both: KServeCodec) -> None:
    request = asked(parameters={"binary_data_output": True}, wanted=[{"name": "x", "parameters": {}}])
    assert forms(both, answering(ANSWER, request)) == [False, True]


@pytest.mark.parametrize("is_listed", [False, True])
def test_theirs_answers_json_if_the_model_does_not_pass_on_what_was_asked(both: KServeCodec, is_listed: bool) -> None:
    wanted = [{"name": "x", "parameters": {"binary_data": True}}] if is_listed else None
    request = asked(parameters={"binary_data_output": not is_listed}, wanted=wanted)
    assert forms(both, answering(ANSWER, request, passes_on=False)) == [False, True]


def test_theirs_fails_on_an_empty_list_as_binary(both: KServeCodec) -> None:
    message = replace(ANSWER, tensors=[vector("FP32", is_binary=True)])
    request = asked(parameters={"binary_data_output": True})
    theirs, mine = forms(both, answering(message, request, holds="list"))
    assert (theirs.partition(":")[0], mine) == ("TypeError", True)


def test_theirs_writes_an_empty_fp16_as_json_which_has_no_such_form(both: KServeCodec) -> None:
    question = answering(replace(ANSWER, tensors=[vector("FP16")]), asked())
    assert b'"data":[]' in wire_of(both.ask("their_answer", question)).body
    with pytest.raises(KServeError, match="InvalidInput: Sending FP16"):
        both.ask("our_answer", question)


def test_theirs_writes_no_data_of_empty_bytes_as_json(both: KServeCodec) -> None:
    question = answering(replace(ANSWER, tensors=[vector("FP32", is_binary=True)]), asked(), holds="bytes")
    theirs, mine = (wire_of(both.ask(act, question)).body for act in ("their_answer", "our_answer"))
    assert b'"data":null' in theirs
    assert b'"data":[]' in mine


def test_theirs_knows_no_bf16(both: KServeCodec) -> None:
    tensor = vector("BF16", "803f", is_binary=True)
    question = members_of(ours.request_bytes(PlainMessage(tensors=[tensor])))
    with pytest.raises(KServeError, match="invalid datatype"):
        both.ask("their_request", question)
    assert both.ask("our_request", question)["inputs"][0]["array"] == ["803f"]
    answer = answering(replace(ANSWER, tensors=[tensor]), asked(parameters={"binary_data_output": True}))
    theirs, mine = forms(both, answer)
    assert (theirs.partition(":")[0], mine) == ("InferenceError", True)


def test_theirs_fails_on_bytes_that_are_not_text(both: KServeCodec) -> None:
    question = members_of(ours.request_bytes(PlainMessage(tensors=[vector("BYTES", "ff", "61", is_binary=True)])))
    with pytest.raises(KServeError, match="using UTF-8"):
        both.ask("their_request", question)
    (seen,) = both.ask("our_request", question)["inputs"]
    assert (seen["array"], seen["kinds"]) == (["ff", "61"], ["bytes"])


def test_theirs_makes_signalling_nans_quiet(both: KServeCodec) -> None:
    question = members_of(ours.request_bytes(PlainMessage(tensors=[vector("FP32", SIGNALLING, is_binary=True)])))
    seen = [both.ask(act, question)["inputs"][0]["array"] for act in ("their_request", "our_request")]
    assert seen == [[SIGNALLING_MADE_QUIET], [SIGNALLING]]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda body: body + b"x", "trailing-bytes|body"),  # theirs ignores bytes after the end
        (lambda body: body.replace(b'"binary_data_size":4', b'"binary_data_size":8'), "binary"),  # and clips a size
        (lambda body: body.replace(b'"x"', b'"x","name":"y"'), "name"),
    ],
    ids=["bytes after the end", "size past the end", "duplicate key"],
)
def test_theirs_accepts_what_is_no_request(both: KServeCodec, damage: Any, reason: str) -> None:  # noqa: ANN401 - a lambda
    wire = ours.request_bytes(PlainMessage(tensors=[replace(X, shape=[1])]))
    assert wire.header_length is not None
    header, data = wire.body[: wire.header_length], wire.body[wire.header_length :]
    body = damage(header.rstrip() + data)
    length = len(body) - len(data) - body.endswith(b"x")
    question = {"body": body.hex(), "header_length": length}
    both.ask("their_request", question)
    with pytest.raises(KServeError, match=f"RemoteProtocolError: .*{reason}"):
        both.ask("our_request", question)


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("name", ["objects", "points in time", "numpy's bytes"])
def test_what_is_no_bytes_becomes_text_as_with_theirs(both: KServeCodec, name: str, is_binary: bool) -> None:
    question = {"name": name, "is_binary": is_binary}
    theirs, mine = (ours.read_response(wire_of(both.ask(act, question))) for act in ("their_odd", "our_odd"))
    assert as_text(mine) == as_text(theirs)


@pytest.mark.parametrize("name", ["numbers of numpy", "what is not finite"])
def test_an_answer_in_json_says_what_theirs_says(both: KServeCodec, name: str) -> None:
    theirs, mine = (wire_of(both.ask(act, {"name": name})).body for act in ("their_members", "our_members"))
    assert json.loads(mine) == json.loads(theirs)


@pytest.mark.parametrize("name", ["a version that is a number", "an id that is a number", "no model"])
def test_no_answer_has_names_that_are_no_text(both: KServeCodec, name: str) -> None:
    with pytest.raises(KServeError, match="ValidationError"):
        both.ask("their_members", {"name": name})
    with pytest.raises(KServeError, match=r"InferenceError: .* of the response is a str, not"):
        both.ask("our_members", {"name": name})
