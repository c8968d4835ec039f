"""Allowed hosts: a request by another name is answered 421 before anything else, and by none, too."""

from __future__ import annotations

import pytest

from streamcodec import ErrorCode, LocalProtocolError
from streamcodec.http import Fields, RequestHead
from streamcodec.service import Inference, Listing, Reply, Service, demo_models
from tests.service.requests import answer

HOSTS = ["localhost", "127.0.0.1", "[::1]", "API.example:8443"]
INFER = "/v2/models/identity/infer"


def _outcome(
    *hosts: str, target: str = "/v2", method: str = "GET", allowed: list[str] = HOSTS
) -> Reply | Inference | Listing:
    service = Service(demo_models(), allowed_hosts=allowed, cors_origins=["*"])
    fields = [(b"host", host.encode()) for host in hosts]
    fields += [(b"origin", b"http://evil.example"), (b"access-control-request-method", b"POST")]
    return service.begin(RequestHead(method=method, target=target, fields=Fields(tuple(fields)), content_length=0))


@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost:8000", "127.0.0.1:1", "127.0.0.1:", "[::1]", "[::1]:8000", "api.example:8443"],
)
def test_allowed(host: str) -> None:
    outcome = _outcome(host)
    assert isinstance(outcome, Reply)
    assert outcome.status == 200


REFUSED = [
    "evil.example",
    "evil.example:8000",
    "",
    ":8000",
    "localhost.evil.example",
    "evil-localhost",
    "127.0.0.1.evil.example",
    "localhost.",
    "::1",
    "api.example",
    "api.example:80",
]


@pytest.mark.parametrize("host", REFUSED)
@pytest.mark.parametrize(
    ("target", "method"), [("/v2", "GET"), (INFER, "POST"), (INFER, "OPTIONS"), ("/nothing", "PUT")]
)
def test_refused(host: str, target: str, method: str) -> None:
    outcome = _outcome(host, target=target, method=method)
    assert isinstance(outcome, Reply)
    assert outcome.status == 421
    assert outcome.refusal is not None
    assert outcome.refusal.code is ErrorCode.MISDIRECTED
    assert f"not {host!r};" in answer(outcome).error


def test_a_request_without_a_host_is_refused() -> None:
    outcome = _outcome()
    assert isinstance(outcome, Reply)
    assert outcome.status == 421


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://localhost:8000/v2", 200),
        ("http://evil.example/v2", 421),
        ("http://user@localhost/v2", 421),
        ("http://[::1/v2", 421),
        ("*", 421),
    ],
)
def test_a_target_in_absolute_form_names_a_host_too(target: str, status: int) -> None:
    outcome = _outcome("localhost", target=target)
    assert isinstance(outcome, Reply)
    assert outcome.status == status


@pytest.mark.parametrize("host", [*REFUSED, "localhost"])
def test_every_host_is_allowed_without_a_list(host: str) -> None:
    outcome = _outcome(host, allowed=[])
    assert isinstance(outcome, Reply)
    assert outcome.status == 200


@pytest.mark.parametrize("host", ["", ":80", "http://localhost", "a b", "localhost/", "::1", "[::1", "a:b", "größe"])
def test_what_is_no_host_cannot_be_allowed(host: str) -> None:
    with pytest.raises(LocalProtocolError, match="an allowed host must be a name or an address"):
        Service(demo_models(), allowed_hosts=[host])
