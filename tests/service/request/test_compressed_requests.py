"""Compressed requests: taken, unless the operator has switched that off."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from streamcodec import Tensor, encode_request
from streamcodec.service import Inference
from tests.service.requests import Answer, get, head, post, service_of

TARGET = "/v2/models/m/infer"
BODY = b"".join(encode_request([Tensor(name="x", array=np.ones(2), is_binary=False)]).buffers)


def send(body: bytes, encoding: str, *, decompresses: bool) -> Answer:
    service = service_of(lambda request: request.inputs, decompresses=decompresses)
    return post(service, TARGET, body, [("Content-Encoding", encoding)])


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP", "br", "gzip, identity"])
def test_they_are_refused_by_their_heads_where_that_is_switched_off(encoding: str) -> None:
    answer = send(gzip.compress(BODY), encoding, decompresses=False)
    assert answer.status == 415
    assert answer.fields["Accept-Encoding"] == "identity"
    assert answer.error == "this server takes no compressed requests"


@pytest.mark.parametrize("decompresses", [True, False])
def test_identity_is_no_compression(decompresses: bool) -> None:
    assert send(BODY, "identity", decompresses=decompresses).status == 200
    service = service_of(lambda request: request.inputs, decompresses=decompresses)
    assert post(service, TARGET, BODY).status == 200
    assert get(service, "/v2/health/live", fields=[("Content-Encoding", "gzip")]).status == 200
    assert isinstance(service.begin(head(TARGET, "POST", [("Content-Encoding", "gzip")], 0)), Inference)


def test_they_are_taken_by_default() -> None:
    service = service_of(lambda request: request.inputs)
    assert isinstance(service.begin(head(TARGET, "POST", [("Content-Encoding", "gzip")], 10)), Inference)
    assert send(b"", "br", decompresses=True).status == 400
    assert "gzip" in send(BODY, "br", decompresses=True).fields["Accept-Encoding"]
