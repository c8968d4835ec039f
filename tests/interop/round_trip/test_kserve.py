"""KServe and we read each other's messages to the same bits."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace

import pytest
from hypothesis import given

from streamcodec import DATATYPES, ErrorCode, NonFiniteOutput, RemoteProtocolError
from tests.interop.round_trip import ours
from tests.interop.round_trip.kserve_codec import HOW, INTERPRETER, KServeCodec, KServeError
from tests.interop.round_trip.ours import Arrival, arrivals
from tests.interop.round_trip.plain import Members, PlainMessage, PlainTensor, as_text, vector
from tests.interop.round_trip.strategies import (
    INTEGERS_OF_64_BITS,
    ROUND_TRIPS,
    Carried,
    output_parameters,
    outputs,
    requests,
    responses,
)

pytestmark = pytest.mark.skipif(INTERPRETER not in os.environ, reason=HOW)

WRITTEN = Carried(
    datatypes=tuple(name for name in DATATYPES if name != "BF16"), json_infinity=False, integers=INTEGERS_OF_64_BITS
)
"""KServe writes whatever is not finite as null, which we read as NaN in responses."""
READ = replace(WRITTEN, bytes_are_text=True, quiets_fp32=True)
"""KServe makes lists of what it reads, also of binary tensors: numbers as Python's, and BYTES as text."""
FINITE_WRITTEN, FINITE_READ = replace(WRITTEN, json_nan=False), replace(READ, json_nan=False)
"""In requests, a null is no number for us, and the NaN that we write is no JSON for KServe."""


def formless(message: PlainMessage) -> PlainMessage:
    """The message as KServe tells of it: not in which form a tensor travelled."""
    return replace(message, tensors=[replace(tensor, is_binary=None) for tensor in message.tensors])


@ROUND_TRIPS
@given(sent=requests(FINITE_READ, wanted=outputs(output_parameters(READ), min_size=0)))
def test_kserve_reads_what_we_ask(kserve: KServeCodec, sent: PlainMessage) -> None:
    got = kserve.read_request(ours.request_bytes(sent))
    assert as_text(got) == as_text(formless(sent))


@ROUND_TRIPS
@given(sent=requests(FINITE_WRITTEN, wanted=outputs(output_parameters(WRITTEN))), arrival=arrivals)
def test_we_read_what_kserve_asks(kserve: KServeCodec, sent: PlainMessage, arrival: Arrival) -> None:
    got = ours.read_request(kserve.request_bytes(sent), arrival)
    assert got.id, "the client makes one up"
    assert as_text(got) == as_text(replace(sent, id=sent.id or got.id))


@ROUND_TRIPS
@given(sent=responses(READ))
def test_kserve_reads_what_we_answer(kserve: KServeCodec, sent: PlainMessage) -> None:
    got = kserve.read_response(ours.response_bytes(sent, NonFiniteOutput.NULL))
    assert as_text(got) == as_text(replace(formless(sent), model_version=None))


@ROUND_TRIPS
@given(sent=responses(WRITTEN), arrival=arrivals)
def test_we_read_what_kserve_answers(kserve: KServeCodec, sent: PlainMessage, arrival: Arrival) -> None:
    got = ours.read_response(kserve.response_bytes(sent), arrival)
    assert as_text(got) == as_text(sent)


# Why the strategies leave out what they leave out.

NAN, INFINITY, NEGATIVE_INFINITY = "0000c07f", "0000807f", "000080ff"
SIGNALLING, SIGNALLING_MADE_QUIET = "2301a0ff", "2301e0ff"
"""Elements of FP32."""


def question(*tensors: PlainTensor, parameters: Members | None = None) -> PlainMessage:
    return PlainMessage(tensors=list(tensors or [vector("BOOL", "01")]), parameters=parameters or {})


def answer(*tensors: PlainTensor, parameters: Members | None = None) -> PlainMessage:
    return replace(question(*tensors, parameters=parameters), model_name="m", model_version="1")


def assert_not_read(kserve: KServeCodec, tensor: PlainTensor, reason: str) -> None:
    with pytest.raises(KServeError, match=reason):
        kserve.read_request(ours.request_bytes(question(tensor)))
    with pytest.raises(KServeError, match=reason):
        kserve.read_response(ours.response_bytes(answer(tensor)))


def assert_not_written(kserve: KServeCodec, tensor: PlainTensor, reason: str) -> None:
    with pytest.raises(KServeError, match=reason):
        kserve.request_bytes(question(tensor))
    with pytest.raises(KServeError, match=reason):
        kserve.response_bytes(answer(tensor))


def test_kserve_knows_no_bf16(kserve: KServeCodec) -> None:
    tensor = vector("BF16", "803f", is_binary=True)
    assert_not_read(kserve, tensor, "InvalidInput: invalid datatype")
    assert_not_written(kserve, tensor, "InferenceError: got unexpected datatype .*, expected BF16")


def test_kserve_writes_no_fp16_as_json(kserve: KServeCodec) -> None:
    assert_not_written(kserve, vector("FP16", "003c"), "InvalidInput: Sending FP16 data via JSON is not supported")


def test_kserve_reads_no_bytes_that_are_not_text(kserve: KServeCodec) -> None:
    assert_not_read(kserve, vector("BYTES", "ff", is_binary=True), "InferenceError: .* using UTF-8")
    assert_not_written(kserve, vector("BYTES", "ff"), "InferenceError: .* using UTF-8")


def test_kserve_makes_signalling_nans_of_fp32_quiet_when_it_reads_them(kserve: KServeCodec) -> None:
    tensor = vector("FP32", SIGNALLING, is_binary=True)
    (asked,) = kserve.read_request(ours.request_bytes(question(tensor))).tensors
    (answered,) = kserve.read_response(ours.response_bytes(answer(tensor))).tensors
    assert asked.elements == answered.elements == [SIGNALLING_MADE_QUIET]


@pytest.mark.parametrize("element", [NAN, INFINITY, NEGATIVE_INFINITY])
def test_kserve_reads_no_literal_for_what_is_not_finite(kserve: KServeCodec, element: str) -> None:
    assert_not_read(kserve, vector("FP32", element), "InvalidInput: Unrecognized request format")


@pytest.mark.parametrize("element", [NAN, INFINITY, NEGATIVE_INFINITY])
def test_kserve_asks_with_null_for_what_is_not_finite_and_we_refuse(kserve: KServeCodec, element: str) -> None:
    wire = kserve.request_bytes(question(vector("FP32", element)))
    with pytest.raises(RemoteProtocolError) as refused:
        ours.read_request(wire)
    assert (refused.value.code, refused.value.path) == (ErrorCode.INVALID_DATA, "$.inputs[0].data[0]")


def test_null_in_a_response_is_nan_either_way_so_infinities_are_lost(kserve: KServeCodec) -> None:
    sent = answer(vector("FP32", NAN, INFINITY, NEGATIVE_INFINITY))
    (got,) = ours.read_response(kserve.response_bytes(sent)).tensors
    (read,) = kserve.read_response(ours.response_bytes(sent, NonFiniteOutput.NULL)).tensors
    assert got.elements == read.elements == [NAN, NAN, NAN]


@pytest.mark.parametrize("integer", [2**64, -(2**63) - 1])
def test_kserve_knows_no_integers_of_more_than_64_bits(kserve: KServeCodec, integer: int) -> None:
    given = {"p": integer}
    asked = kserve.read_request(ours.request_bytes(question(parameters=given)))
    answered = kserve.read_response(ours.response_bytes(answer(parameters=given)))
    for message in (asked, answered):
        assert isinstance(message.parameters["p"], float)
    with pytest.raises(KServeError, match="TypeError: Integer exceeds 64-bit range"):
        kserve.request_bytes(question(parameters=given))


@pytest.mark.parametrize("given", [None, ""])
def test_kserve_makes_up_an_id_where_there_is_none(kserve: KServeCodec, given: str | None) -> None:
    got = ours.read_request(kserve.request_bytes(replace(question(), id=given)))
    assert uuid.UUID(got.id).version == 4


def test_kserve_does_not_write_an_empty_list_of_outputs(kserve: KServeCodec) -> None:
    got = ours.read_request(kserve.request_bytes(replace(question(), outputs=[])))
    assert got.outputs is None


def test_kserve_does_not_read_the_version_of_the_model(kserve: KServeCodec) -> None:
    assert kserve.read_response(ours.response_bytes(answer())).model_version is None
