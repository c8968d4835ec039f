"""Routing and fields: a target has one meaning, written in one way, and no field ends a body twice."""

from __future__ import annotations

import pytest

from streamcodec import RemoteProtocolError
from streamcodec.guard.rules.fields import request_fields, response_fields
from streamcodec.guard.rules.routing import target_of
from streamcodec.http.heads.messages import Fields, RequestHead, ResponseHead


def _head(target: str, *fields: tuple[bytes, bytes], method: str = "POST", length: int | None = 3) -> RequestHead:
    return RequestHead(method=method, target=target, fields=Fields(fields), content_length=length)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/", "/", ""),
        ("/v2/models/m/infer", "/v2/models/m/infer", ""),
        ("/v2/models/m/%69nfer?x=%2F&y", "/v2/models/m/infer", "?x=%2F&y"),
        ("/v2/models/%c3%a9%20b", "/v2/models/%C3%A9%20b", ""),
        ("/a+b:c%2B%3a%7e", "/a+b:c+:~", ""),
        ("/.../.x", "/.../.x", ""),
        ("/m%5b1%5D%7C?[|]", "/m%5B1%5D%7C", "?[|]"),
        ("http://h:1", "/", ""),
        ("HTTP://H:1?a=b", "/", "?a=b"),
        ("https://h:1/v2", "/v2", ""),
    ],
)
def test_a_target_is_written_in_one_way(target: str, path: str, query: str) -> None:
    found = target_of(_head(target, (b"host", b"h:1")))
    assert (found.path, found.query) == (path, query)
    assert target_of(_head(found.path + found.query)) == found


@pytest.mark.parametrize(
    "target",
    [
        "",
        "*",
        "0/v2/models/m/infer",
        "x:/v2/models/m/infer",
        "ftp://h/v2/models/m/infer",
        "ws://h/v2/models/m/infer",
        "http:/v2/models/m/infer",
        "http:///v2/models/m/infer",
        "http://g/v2",
        "http://user@h/v2",
        "http://h:1/v2",
        "/v2/models/m/infer%0A",
        "/v2/models/m/infer\n",
        "/v2/models/m/infer%00",
        "/v2/models/m/infer%7f",
        "/v2/models/m/%1Finfer",
        "/v2/models/m/infer%C2%85",
        "/v2/models/m/infer%E2%80%A8",
        "/v2/models/\xe9/infer",
        "/v2/models/%ff/infer",
        "/v2/models/m/infer#x",
        "/v2/models/m/infer?x#y",
        "/v2/models/m/infer?x=%0a",
        "/v2/models/m/infer?x=%",
        "/v2/models/m/%6",
        "/v2/models/m/%zz",
        "/v2%2Fmodels%2fm%2Finfer",
        "/v2\\models\\m\\infer",
        "/v2/models/a%5cb/infer",
        "/v2/models/m/infer;x=y",
        "/v2/models/m%3B/infer",
        "/v2/models/m[1]/infer",
        "/v2/models/{m}/infer",
        "/v2/models/m/infer%3Fx",
        "/v2/models/m/infer%23",
        "/v2/models/m/%2569nfer",
        "//v2/models/m/infer",
        "/v2//models/m/infer",
        "/v2/models/m/infer/",
        "/v2/models/m/x/../infer",
        "/../tenant2/v2",
        "/%2e%2E/tenant2/v2",
        "/v2/models/./m/infer",
        "/v2/models/m/infer/.",
    ],
)
def test_what_may_have_two_meanings_is_refused(target: str) -> None:
    for method in ("GET", "POST"):
        with pytest.raises(RemoteProtocolError) as caught:
            target_of(_head(target, (b"host", b"h"), method=method))
        assert (caught.value.code, caught.value.status_hint) == ("invalid-http", 400)


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
