"""Null in requests: NaN where it was asked for, as KServe's client writes it, and no value everywhere else."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest

from streamcodec import (
    DEFAULT_LIMITS,
    ErrorCode,
    HeaderCache,
    LocalProtocolError,
    RemoteProtocolError,
    parse_request_header,
)
from streamcodec.formats.v2.decoder import request_decoder
from streamcodec.testing import run_push
from tests.formats.v2.messages import Members, jsonic

pytestmark = pytest.mark.usefixtures("json_parser")

SIZES = pytest.mark.parametrize("count", [3, 300, 60_000])


def _arrays(*tensors: Members, null_is_nan: bool = True) -> list[np.ndarray[Any, Any]]:
    """Decode tensors from one piece and from many; the result is the same."""
    body = json.dumps({"inputs": tensors}).encode()
    make = partial(request_decoder, header_length=None, body_length=len(body), null_is_nan=null_is_nan)
    whole, cut = (
        run_push(make, pieces)
        for pieces in ([body], [body[:9], *(body[at : at + 997] for at in range(9, len(body), 997))])
    )
    for outcome in (whole, cut):
        if outcome.error is not None:
            raise outcome.error
    assert all(map(partial(np.array_equal, equal_nan=True), whole.arrays, cut.arrays))
    return [*whole.arrays]


@SIZES
@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_null_is_nan(count: int, datatype: str) -> None:
    values = [None, 0.5, *[1.5] * (count - 3), None]
    (array,) = _arrays(jsonic(datatype, [count], values))
    wanted = np.array([np.nan if value is None else value for value in values])
    assert np.array_equal(array, wanted, equal_nan=True)


@SIZES
@pytest.mark.parametrize("datatype", ["INT64", "UINT8", "BOOL", "BYTES"])
def test_null_is_no_value_of_any_other_datatype(count: int, datatype: str) -> None:
    good = {"BOOL": True, "BYTES": "x"}.get(datatype, 1)
    with pytest.raises(RemoteProtocolError) as caught:
        _arrays(jsonic(datatype, [count], [good] * (count - 1) + [None]))
    assert (caught.value.code, caught.value.path) == (ErrorCode.INVALID_DATA, f"$.inputs[0].data[{count - 1}]")


@SIZES
def test_it_has_to_be_asked_for(count: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        _arrays(jsonic("FP32", [count], [None] * count), null_is_nan=False)
    assert caught.value.path == "$.inputs[0].data[0]"


def test_other_leniencies_of_answers_are_not_meant() -> None:
    """A tensor without elements still has data or a size."""
    with pytest.raises(RemoteProtocolError) as caught:
        _arrays({"name": "x", "datatype": "FP32", "shape": [0]})
    assert caught.value.code is ErrorCode.MISSING_MEMBER


def test_headers_that_were_read_in_the_other_way_are_not_used() -> None:
    with pytest.raises(LocalProtocolError, match="not together with headers"):
        request_decoder(header_length=None, body_length=2, headers=HeaderCache(parse_request_header), null_is_nan=True)


def test_a_long_header_that_is_parsed_whole_has_nan_for_null_too() -> None:
    text = json.dumps({"inputs": [jsonic("FP64", [60_000], [None] * 60_000)]}).encode()
    (tensor,) = parse_request_header(text, DEFAULT_LIMITS, null_is_nan=True).tensors
    assert tensor.data is not None
    assert np.isnan(tensor.data).all()
    with pytest.raises(RemoteProtocolError):
        parse_request_header(text, DEFAULT_LIMITS)
