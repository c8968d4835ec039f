"""CORS: what a browser is told, and that nobody else is told anything."""

from __future__ import annotations

import pytest

from streamcodec import ErrorCode, LocalProtocolError, RemoteProtocolError
from streamcodec.service import Service, demo_models, error_reply
from tests.service.requests import Answer, answer, get, head, post

APP = "https://app.example"
OTHER = "http://localhost:3000"
INFER = "/v2/models/identity/infer"
CORS_FIELDS = {
    "Access-Control-Allow-Origin",
    "Access-Control-Expose-Headers",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Headers",
    "Access-Control-Max-Age",
    "Access-Control-Allow-Credentials",
}


def _service(*origins: str) -> Service:
    return Service(demo_models(), cors_origins=origins)


def _preflight(service: Service, origin: str = APP, target: str = INFER, method: str = "POST") -> Answer:
    fields = [("Origin", origin), ("Access-Control-Request-Method", method)]
    return get(service, target, "OPTIONS", [*fields, ("Access-Control-Request-Headers", "content-type,x-other")])


@pytest.mark.parametrize(
    ("target", "methods"),
    [(INFER, "POST"), ("/v2/models/identity/versions/1/infer", "POST"), ("/v2", "GET, HEAD")],
)
def test_preflight(target: str, methods: str) -> None:
    result = _preflight(_service(APP), target=target)
    assert (result.status, result.body) == (204, b"")
    assert result.fields == {
        "Access-Control-Allow-Methods": methods,
        "Access-Control-Allow-Headers": "Content-Type, Content-Encoding, Inference-Header-Content-Length",
        "Access-Control-Max-Age": "7200",
        "Access-Control-Allow-Origin": APP,
        "Access-Control-Expose-Headers": "Inference-Header-Content-Length, Retry-After",
        "Vary": "Origin",
    }


def test_preflight_for_a_model_that_is_not_there_lets_the_page_read_the_404() -> None:
    service = _service(APP)
    target = "/v2/models/nobody/infer"
    assert _preflight(service, target=target).status == 204
    result = post(service, target, b"{}", [("Origin", APP)])
    assert (result.status, result.fields["Access-Control-Allow-Origin"]) == (404, APP)


def test_preflight_for_a_method_that_the_route_has_not_is_told_the_methods_it_has() -> None:
    result = _preflight(_service(APP), method="DELETE")
    assert (result.status, result.fields["Access-Control-Allow-Methods"]) == (204, "POST")


def test_preflight_for_no_route_is_404_and_can_be_read() -> None:
    result = _preflight(_service(APP), target="/v1")
    assert (result.status, result.fields["Access-Control-Allow-Origin"]) == (404, APP)


@pytest.mark.parametrize(
    "origin",
    [
        "https://other.example",
        "http://app.example",
        "https://app.example:8443",
        "https://app.example.evil.example",
        "https://evil-app.example",
        "https://app.example/",
        "null",
        "\xe4",
    ],
)
def test_other_origins_are_refused_and_told_why(origin: str) -> None:
    result = _preflight(_service(APP, OTHER), origin)
    assert result.status == 403
    assert "may not call this server" in result.error
    assert not result.fields.keys() & CORS_FIELDS
    assert result.fields["Vary"] == "Origin"
    assert not get(_service(APP), "/v2", fields=[("Origin", origin)]).fields.keys() & CORS_FIELDS


def test_each_of_several_origins_is_told_its_own_name() -> None:
    service = _service(APP, OTHER)
    for origin in (APP, OTHER):
        result = get(service, "/v2", fields=[("Origin", origin)])
        assert result.fields["Access-Control-Allow-Origin"] == origin
        assert result.fields["Vary"] == "Origin"


def test_every_origin_is_allowed_by_a_star_and_then_answers_do_not_vary() -> None:
    service = _service("*")
    for origin in (APP, "null", "\xe4"):
        assert _preflight(service, origin).status == 204
        result = get(service, "/v2", fields=[("Origin", origin)])
        assert result.fields["Access-Control-Allow-Origin"] == "*"
        assert "Vary" not in result.fields
    assert get(service, "/v2").fields["Access-Control-Allow-Origin"] == "*"


def test_a_star_among_others_is_a_star() -> None:
    assert get(_service(APP, "*"), "/v2", fields=[("Origin", APP)]).fields["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("origins", [[], [APP, APP], [APP, OTHER]], ids=["none", "twice the same", "two"])
def test_without_one_clear_origin_nothing_is_allowed(origins: list[str]) -> None:
    service = _service(APP, OTHER)
    fields = [("Origin", origin) for origin in origins]
    assert not get(service, "/v2", fields=fields).fields.keys() & CORS_FIELDS
    question = [*fields, ("Access-Control-Request-Method", "POST")]
    assert get(service, INFER, "OPTIONS", question).status == 405


def test_options_that_is_no_preflight_stays_405() -> None:
    for fields in ([("Origin", APP)], [("Access-Control-Request-Method", "POST")], []):
        result = get(_service(APP), INFER, "OPTIONS", fields)
        assert (result.status, result.fields["Allow"]) == (405, "POST")


def test_a_preflight_is_asked_by_options_alone() -> None:
    result = get(_service(APP), "/v2", fields=[("Origin", APP), ("Access-Control-Request-Method", "POST")])
    assert (result.status, "Access-Control-Allow-Methods" in result.fields) == (200, False)


def test_switched_off_there_is_no_such_field() -> None:
    service = _service()
    result = _preflight(service)
    assert (result.status, result.fields["Allow"]) == (405, "POST")
    for other in (result, get(service, "/v2", fields=[("Origin", APP)]), post(service, INFER, b"x")):
        assert not other.fields.keys() & {*CORS_FIELDS, "Vary"}


@pytest.mark.parametrize(
    ("body", "status"), [(b'{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":[1]}]}', 200), (b"{", 400)]
)
def test_answers_and_errors_can_be_read(body: bytes, status: int) -> None:
    result = post(_service(APP), INFER, body, [("Origin", APP)])
    assert (result.status, result.fields["Access-Control-Allow-Origin"]) == (status, APP)
    assert "Inference-Header-Content-Length" in result.fields["Access-Control-Expose-Headers"]


def test_errors_that_a_server_makes_itself() -> None:
    error = error_reply(RemoteProtocolError("too slow", code=ErrorCode.TOO_SLOW, status_hint=408))
    request = head("/v2", fields=[("Origin", APP)])
    assert answer(_service(APP).finish(error, request)).fields["Access-Control-Allow-Origin"] == APP
    without_head = answer(_service(APP).finish(error, None))
    assert (without_head.status, without_head.fields["Vary"]) == (408, "Origin")
    assert "Access-Control-Allow-Origin" not in without_head.fields
    assert answer(_service("*").finish(error, None)).fields["Access-Control-Allow-Origin"] == "*"


def test_with_compression_there_is_one_vary_for_both() -> None:
    service = Service(demo_models(), cors_origins=[APP], compresses=True)
    assert get(service, "/v2").fields["Vary"] == "Accept-Encoding, Origin"


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("HTTPS://App.Example", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("http://app.example:443", "http://app.example:443"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
        ("chrome-extension://abcdefghij", "chrome-extension://abcdefghij"),
    ],
)
def test_origins_are_compared_as_browsers_write_them(written: str, sent: str) -> None:
    result = get(_service(written), "/v2", fields=[("Origin", sent)])
    assert result.fields["Access-Control-Allow-Origin"] == sent


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "app.example",
        "localhost:3000",
        "//app.example",
        "https://",
        "https://app.example/",
        "https://app.example/path",
        "https://app.example?",
        "https://app.example#",
        "https://user@app.example",
        "https://*.app.example",
        "https://app.example:",
        "https://app.example:http",
        "https://app.example:123456",
        "https://app.example, https://other.example",
        "https://app.example\r\nX: y",
        "https://app.example\n",
        " https://app.example",
        "https://b\xfccher.example",
        "null",
        "**",
    ],
)
def test_what_is_no_origin_is_refused_at_once(origin: str) -> None:
    with pytest.raises(LocalProtocolError, match="an origin must be"):
        _service(origin)


def test_one_text_instead_of_a_list_is_refused_at_once() -> None:
    with pytest.raises(LocalProtocolError, match="an origin must be"):
        Service(demo_models(), cors_origins=APP)
