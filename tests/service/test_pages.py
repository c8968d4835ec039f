"""Pages: what a program adds to the routes of the protocol."""

from __future__ import annotations

import pytest

from streamcodec import LocalProtocolError
from streamcodec.service import Reply, Service, demo_models
from tests.service.requests import get


def _page() -> Reply:
    return Reply(status=200, headers=(("Content-Type", "text/plain"),), buffers=(b"hello",), body_length=5)


@pytest.fixture
def service() -> Service:
    service = Service(demo_models(), allowed_hosts=["here"])
    service.add_page("/metrics", _page)
    return service


HERE = [("Host", "here")]


@pytest.mark.parametrize("target", ["/metrics", "/metrics?name=x", "http://here/metrics"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_page(service: Service, target: str, method: str) -> None:
    answer = get(service, target, method, HERE)
    assert (answer.status, answer.fields, answer.body) == (200, {"Content-Type": "text/plain"}, b"hello")


@pytest.mark.parametrize("target", ["/metrics/", "/metric", "/Metrics", "//metrics", "ftp://here/metrics"])
def test_other_paths_have_no_page(service: Service, target: str) -> None:
    assert get(service, target, fields=HERE).status == 404


def test_a_target_that_is_no_url_is_refused_as_without_pages() -> None:
    service = Service(demo_models())
    service.add_page("/metrics", _page)
    assert get(service, "http://[").status == get(Service(demo_models()), "http://[").status == 400


def test_the_routes_of_the_protocol_stay(service: Service) -> None:
    assert get(service, "/v2/health/live", fields=HERE).document == {"live": True}
    assert get(Service(demo_models()), "/metrics").status == 404


def test_other_methods_are_refused(service: Service) -> None:
    answer = get(service, "/metrics", "POST", HERE)
    assert (answer.status, answer.fields["Allow"]) == (405, "GET, HEAD")


def test_other_hosts_are_refused(service: Service) -> None:
    assert get(service, "/metrics", fields=[("Host", "elsewhere")]).status == 421


def test_a_page_that_fails_is_told_to_the_log_and_not_to_the_client() -> None:
    def fail() -> Reply:
        raise ValueError("the password is swordfish")

    service = Service(demo_models())
    service.add_page("/metrics", fail)
    answer = get(service, "/metrics")
    assert (answer.status, answer.error) == (500, "the page could not be made: ValueError")
    assert isinstance(answer.cause, ValueError)
    assert answer.call == "page /metrics"


@pytest.mark.parametrize("path", ["", "metrics", "/v2", "/v2/", "/v2/metrics", "/metrics"])
def test_paths_that_cannot_have_a_page(service: Service, path: str) -> None:
    with pytest.raises(LocalProtocolError, match="begins with / but not with /v2"):
        service.add_page(path, _page)
    service.add_page("/v2x", _page)


def test_which_targets_are_those_of_pages(service: Service) -> None:
    assert not Service(service.models).has_page("/metrics")
    service.add_page("/page", lambda: Reply(status=200))
    assert service.has_page("/page")
    assert service.has_page("/page?x=/y")
    assert not service.has_page("/pages")
