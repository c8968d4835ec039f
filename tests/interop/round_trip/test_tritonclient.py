"""tritonclient and we read each other's messages to the same bits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import InferenceServerException

from streamcodec import ErrorCode, NonFiniteOutput, RemoteProtocolError
from tests.interop.round_trip import ours
from tests.interop.round_trip import tritonclient_codec as tritonclient
from tests.interop.round_trip.ours import Arrival, arrivals
from tests.interop.round_trip.plain import PlainMessage, as_text, vector
from tests.interop.round_trip.strategies import ROUND_TRIPS, Carried, outputs, requests, responses

pytestmark = pytest.mark.slow

SENT = Carried(tensor_parameters=False, ids=st.none() | st.text(min_size=1))
"""Requests: the client has no place for parameters of tensors, and an empty id means none."""
READ = Carried()
READ_WITH_NULL = Carried(json_infinity=False)
"""Responses in which JSON tensors have null for NaN: the infinities would be null too, by our own doing."""

WISHES = st.fixed_dictionaries({"binary_data": st.booleans()}, optional={"classification": st.integers(1, 9)})
"""A requested output always says which form it is to have."""


@ROUND_TRIPS
@given(requests(SENT, wanted=outputs(WISHES), asks_for_form=False), arrivals)
def test_we_read_what_tritonclient_asks(sent: PlainMessage, arrival: Arrival) -> None:
    got = ours.read_request(tritonclient.request_bytes(sent), arrival)
    if sent.outputs is None:  # then the client asks for all there are, in binary
        sent = replace(sent, parameters=sent.parameters | {"binary_data_output": True})
    assert as_text(got) == as_text(sent)


@ROUND_TRIPS
@given(responses(READ))
def test_tritonclient_reads_what_we_answer(sent: PlainMessage) -> None:
    assert as_text(tritonclient.read_response(ours.response_bytes(sent))) == as_text(sent)


@ROUND_TRIPS
@given(responses(READ_WITH_NULL))
def test_tritonclient_reads_what_we_answer_with_null_for_nan(sent: PlainMessage) -> None:
    wire = ours.response_bytes(sent, NonFiniteOutput.NULL)
    assert as_text(tritonclient.read_response(wire)) == as_text(sent)


# Why the strategies leave out what they leave out.

NAN, INFINITY, NAN_WITH_PAYLOAD = "0000c07f", "0000807f", "2301c0ff"
"""Elements of FP32."""


def answer(*elements: str) -> PlainMessage:
    return PlainMessage(tensors=[vector("FP32", *elements)], model_name="m")


def test_json_has_one_nan_either_way() -> None:
    question = PlainMessage(tensors=[vector("FP32", NAN_WITH_PAYLOAD, INFINITY)])
    (asked,) = ours.read_request(tritonclient.request_bytes(question)).tensors
    (answered,) = tritonclient.read_response(ours.response_bytes(answer(NAN_WITH_PAYLOAD, INFINITY))).tensors
    assert asked.elements == answered.elements == [NAN, INFINITY]


def test_null_is_nan_so_an_infinity_that_we_write_as_null_is_lost() -> None:
    wire = ours.response_bytes(answer(NAN, INFINITY), NonFiniteOutput.NULL)
    (read,) = tritonclient.read_response(wire).tensors
    assert read.elements == [NAN, NAN]


def test_tritonclient_writes_fp16_as_json_which_we_refuse() -> None:
    wire = tritonclient.request_bytes(PlainMessage(tensors=[vector("FP16", "003c")]))
    assert wire.header_length is None
    with pytest.raises(RemoteProtocolError) as refused:
        ours.read_request(wire)
    assert refused.value.code is ErrorCode.JSON_NOT_SUPPORTED


@pytest.mark.parametrize(
    ("datatype", "element", "reason"), [("BF16", "803f", "BF16 .* as binary"), ("BYTES", "ff", "using UTF-8")]
)
def test_tritonclient_does_not_write_as_json(datatype: str, element: str, reason: str) -> None:
    with pytest.raises(InferenceServerException, match=reason):
        tritonclient.request_bytes(PlainMessage(tensors=[vector(datatype, element)]))


def test_tritonclient_does_not_write_an_empty_id() -> None:
    question = PlainMessage(tensors=[vector("BOOL", "01")], id="")
    assert ours.read_request(tritonclient.request_bytes(question)).id is None


@pytest.mark.parametrize("name", ["binary_data_output", "priority", "triton_x"])
def test_tritonclient_keeps_some_names_of_parameters_for_itself(name: str) -> None:
    with pytest.raises(InferenceServerException, match="reserved parameter"):
        tritonclient.request_bytes(PlainMessage(tensors=[vector("BOOL", "01")], parameters={name: True}))
