"""Routing and fields: no spelling of a path gets an inference past its checks, and no field ends a body twice."""

from __future__ import annotations

import pytest

from streamcodec import RemoteProtocolError
from streamcodec.guard.fields import request_fields, response_fields
from streamcodec.guard.routing import is_inference, origin_form
from streamcodec.http.messages import Fields, RequestHead, ResponseHead


def _head(target: str, *fields: tuple[bytes, bytes], method: str = "POST", length: int | None = 3) -> RequestHead:
    return RequestHead(method=method, target=target, fields=Fields(fields), content_length=length)


@pytest.mark.parametrize(
    "target",
    [
        "/v2/models/m/infer",
        "/v2/models/m/versions/3/infer?x=y",
        "/v2/models/m/%69nfer",
        "http://x/v2/models/m/infer",
        "/v2/models/infer/infer",
    ],
)
def test_inferences(target: str) -> None:
    assert is_inference(_head(target))


@pytest.mark.parametrize(
    "target",
    [
        "/v2//models/m/infer",
        "/v2/models/m/infer/",
        "/v2/models/m/INFER",
        "/v2/models/m/infer;x=y",
        "/v2/models/m/x/../infer",
        "/v2/models/m/%2569nfer",
        "/v2%2Fmodels%2Fm%2Finfer",
        "/v2\\models\\m\\infer",
        "/v2/models/a%2Finfer",
        "/%2525252525252569",
    ],
)
def test_what_resembles_one_is_refused(target: str) -> None:
    for head in (_head(target), _head(target, method="GET"), _head(target, method="PUT", length=0)):
        with pytest.raises(RemoteProtocolError) as caught:
            is_inference(head)
        assert caught.value.status_hint == 404
    assert not is_inference(_head(target, method="GET", length=0))


def test_others() -> None:
    assert not is_inference(_head("/v2/models/m/generate"))
    assert not is_inference(_head("/v2/repository/index", length=0))
    assert not is_inference(_head("*", method="OPTIONS", length=0))
    for method, target, status in (("GET", "/v2/models/m/infer", 405), ("POST", "/v2/models/%ff/infer", 400)):
        with pytest.raises(RemoteProtocolError) as caught:
            is_inference(_head(target, method=method))
        assert caught.value.status_hint == status


def test_targets() -> None:
    assert origin_form("/v2?a=b", "") == "/v2?a=b"
    assert origin_form("http://x:1/v2?a=b", "/p") == "/p/v2?a=b"
    assert origin_form("http://x", "") == "/"
    assert origin_form("*", "/p") == "*"


def test_fields_of_requests() -> None:
    head = _head(
        "/",
        (b"host", b"outside"),
        (b"connection", b"x-hop, Upgrade"),
        (b"x-hop", b"1"),
        (b"upgrade", b"websocket"),
        (b"expect", b"100-continue"),
        (b"transfer-encoding", b"chunked"),
        (b"content-encoding", b"gzip"),
        (b"inference-header-content-length", b"007"),
        (b"x-forwarded-for", b"1.2.3.4"),
        (b"x-forwarded-host", b"liar"),
        (b"authorization", b"Bearer \xe9"),
    )
    assert request_fields(head, host="inside:1", client="5.6.7.8", length=9, is_decoded=True) == [
        (b"Host", b"inside:1"),
        (b"authorization", b"Bearer \xe9"),
        (b"X-Forwarded-Host", b"outside"),
        (b"X-Forwarded-For", b"1.2.3.4, 5.6.7.8"),
        (b"Inference-Header-Content-Length", b"7"),
        (b"Content-Length", b"9"),
    ]
    assert request_fields(_head("/"), host="i", client="", length=None) == [(b"Host", b"i")]


def test_fields_of_answers() -> None:
    fields = Fields(((b"connection", b"close"), (b"x", b"1"), (b"transfer-encoding", b"chunked")))
    answer = ResponseHead(status=200, fields=fields, content_length=None)
    assert response_fields(answer, is_last=False) == [(b"x", b"1")]
    assert response_fields(answer, is_last=True) == [(b"x", b"1"), (b"Connection", b"close")]
