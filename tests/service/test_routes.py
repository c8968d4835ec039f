"""Routes: what each target and method is answered, before a byte of a body is read."""

from __future__ import annotations

import pytest

from streamcodec import ErrorCode, LocalProtocolError, RemoteProtocolError, __version__
from streamcodec.service import ANY_SIZE, Inference, Model, Reply, Service, TensorMetadata, demo_models
from streamcodec.service.routes import (
    URGENT_BYTES,
    Resource,
    Route,
    begins_health_check,
    find_route,
    is_health_check,
    without_origin,
)
from tests.service.requests import get, head

EXTENSIONS = ["binary_tensor_data", "model_configuration", "statistics"]
NAMES = ["plain", "with blank", "a/b", "größe", "100%", "?#", "versions", "\0", "日本語", ".."]


@pytest.fixture
def service() -> Service:
    models = demo_models()
    for name in NAMES:
        models.add(Model(name=name, predict=lambda request: request.inputs))
    models.add(
        Model(
            name="declared",
            predict=lambda request: request.inputs,
            inputs=(TensorMetadata("IMAGE", "FP32", (ANY_SIZE, 3)),),
            outputs=(TensorMetadata("MEAN", "FP64", ()),),
            versions=("1", "2"),
        )
    )
    return Service(models)


def test_server_metadata_names_the_extension(service: Service) -> None:
    answer = get(service, "/v2")
    assert answer.status == 200
    assert answer.document == {"name": "streamcodec", "version": __version__, "extensions": EXTENSIONS}


def test_model_metadata_says_all_that_was_declared(service: Service) -> None:
    for target in ("/v2/models/declared", "/v2/models/declared/versions/2"):
        assert get(service, target).document == {
            "name": "declared",
            "versions": ["1", "2"],
            "platform": "python",
            "inputs": [{"name": "IMAGE", "datatype": "FP32", "shape": [-1, 3]}],
            "outputs": [{"name": "MEAN", "datatype": "FP64", "shape": []}],
        }
    assert get(service, "/v2/models/identity").document["inputs"] == []


@pytest.mark.parametrize(
    "target",
    [
        "/v2",
        "/v2/health/live",
        "/v2/health/ready",
        "/v2/models/identity/ready",
        "/v2/models",
        "/v2/models/stats",
        "/v2/models/identity/config",
        "/v2/models/identity/stats",
        "/v2/models/identity/versions/1/stats",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_get_and_head_work(service: Service, target: str, method: str) -> None:
    assert get(service, target, method).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get", "M" * 20_000])
@pytest.mark.parametrize("target", ["/v2", "/v2/health/live", "/v2/models/identity", "/v2/models/identity/ready"])
def test_other_methods_are_told_what_is_allowed(service: Service, target: str, method: str) -> None:
    answer = get(service, target, method)
    assert (answer.status, answer.fields["Allow"]) == (405, "GET, HEAD")
    assert len(answer.error) < 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
@pytest.mark.parametrize("target", ["/v2/models/identity/infer", "/v2/repository/index"])
def test_inference_and_the_index_are_post_only(service: Service, target: str, method: str) -> None:
    answer = get(service, target, method)
    assert (answer.status, answer.fields["Allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "*",
        "/v1",
        "/v2/",
        "//v2",
        "/V2",
        "/v2/health",
        "/v2/health/live/",
        "/v2/health/dead",
        "/v2/models/",
        "/v2/models//infer",
        "/v2/models/identity/",
        "/v2/models/identity/infer/",
        "/v2/models/identity/explain",
        "/v2/models/identity/versions",
        "/v2/models/identity/versions/",
        "/v2/models/identity/versions//infer",
        "/v2/models/identity/versions/1/",
        "/v2/models/../models/identity",
        "http://host",
        "host:80",
        "x/v2/health/live",
        "ftp://host/v2/health/live",
        "/" + "a" * 30_000,
    ],
)
def test_unknown_routes_are_404(service: Service, target: str) -> None:
    answer = get(service, target)
    assert answer.status == 404
    assert len(answer.error) < 200


@pytest.mark.parametrize(
    "target", ["/v2/models/nobody", "/v2/models/identity/versions/9", "/v2/models/%00%0d%0a/ready"]
)
def test_unknown_models_and_versions_are_404_and_shown_escaped(service: Service, target: str) -> None:
    answer = get(service, target)
    assert answer.status == 404
    assert answer.error.isprintable()


def test_a_long_name_is_not_echoed_in_full(service: Service) -> None:
    assert len(get(service, f"/v2/models/{'n' * 30_000}").error) < 200


@pytest.mark.parametrize("target", ["/v2/models/%ff", "/v2/models/%ed%a0%80", "/v2/models/%c0%af", "http://[::1/v2"])
def test_what_cannot_be_decoded_is_400(service: Service, target: str) -> None:
    assert get(service, target).status == 400


@pytest.mark.parametrize("name", NAMES)
def test_names_are_percent_decoded_once(service: Service, name: str) -> None:
    every_byte = "".join(f"%{byte:02x}" for byte in name.encode())
    assert get(service, f"/v2/models/{every_byte}/ready").document["name"] == name
    assert get(service, f"/v2/models/{every_byte}/versions/1").document["name"] == name


def test_encoded_twice_is_another_name(service: Service) -> None:
    assert get(service, "/v2/models/a%252Fb").status == 404


@pytest.mark.parametrize("target", ["/v2?x=/y", "http://host:8000/v2", "https://host/v2?x", "HTTP://host/v2"])
def test_query_and_absolute_form(service: Service, target: str) -> None:
    assert get(service, target).document["name"] == "streamcodec"


def test_readiness_while_stopping(service: Service) -> None:
    service.is_ready = False
    answer = get(service, "/v2/health/ready")
    assert (answer.status, answer.fields["Retry-After"]) == (503, "1")
    assert "shutting down" in answer.error
    assert get(service, "/v2/health/live").status == 200


def test_an_inference_route_asks_for_the_body(service: Service) -> None:
    assert isinstance(service.begin(head("/v2/models/identity/infer", "POST", length=9)), Inference)


def test_models_are_listed_in_their_order_and_added_later() -> None:
    models = demo_models()
    service = Service(models)
    assert get(service, "/v2/models/late").status == 404
    models.add(Model(name="late", predict=lambda request: request.inputs))
    assert get(service, "/v2/models/late").status == 200
    assert [model.name for model in models] == ["identity", "sink", "late"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/v2/repository/models/identity/load", "models are loaded and unloaded by the program"),
        ("/v2/repository/models/identity/unload", "models are loaded and unloaded by the program"),
        ("/v2/systemsharedmemory/status", "shares no memory"),
        ("/v2/cudasharedmemory/region/r/register", "shares no memory"),
        ("/v2/cudasharedmemory/region/of/a/path/that/never/ends", "shares no memory"),
        ("/v2/trace/setting", "no tracing"),
        ("/v2/logging", "no logging"),
    ],
)
def test_extensions_that_are_not_offered_say_why(service: Service, target: str, reason: str) -> None:
    answer = get(service, target, "POST")
    assert answer.status == 404
    assert reason in answer.error


def test_metadata_that_no_tensor_could_meet() -> None:
    with pytest.raises(LocalProtocolError, match="not a datatype"):
        TensorMetadata("x", "fp32", ())
    with pytest.raises(LocalProtocolError, match="-1 for any"):
        TensorMetadata("x", "FP32", (-2,))


@pytest.mark.parametrize(
    ("target", "document"),
    [
        ("/v2/health/live", {"live": True}),
        ("/v2/health/ready", {"ready": True}),
        ("/v2/models/identity/ready", {"name": "identity", "ready": True}),
    ],
)
def test_what_a_health_check_is_told(target: str, document: object) -> None:
    assert get(Service(demo_models()), target).document == document


def test_what_a_health_check_is_told_while_stopping() -> None:
    service = Service(demo_models())
    service.is_ready = False
    assert get(service, "/v2/health/ready").error == "the server is shutting down"


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/v2/health/live", True),
        ("HEAD", "/v2/health/ready?probe=1", True),
        ("GET", "http://host/v2/health/ready", True),
        ("POST", "/v2/health/live", False),
        ("GET", "/v2/models/identity/ready", False),
        ("GET", "/v2/health", False),
        ("GET", "/v2/health/%ff", False),
    ],
)
def test_which_requests_are_health_checks(method: str, target: str, expected: bool) -> None:
    assert is_health_check(method, target) == expected


def test_what_is_told_of_a_wrong_method() -> None:
    assert get(Service(demo_models()), "/v2", "PUT").error == "this route answers GET and HEAD, not 'PUT'"


@pytest.mark.parametrize(
    ("target", "template"),
    [
        ("/v2", "/v2"),
        ("/v2/health/live", "/v2/health/live"),
        ("/v2/repository/index", "/v2/repository/index"),
        ("/v2/models/stats", "/v2/models/stats"),
        ("/v2/models/m", "/v2/models/{model}"),
        ("/v2/models/m/infer?x", "/v2/models/{model}/infer"),
        ("http://x/v2/models/m/versions/3/stats", "/v2/models/{model}/versions/{version}/stats"),
    ],
)
def test_routes_without_names(target: str, template: str) -> None:
    assert find_route(target).template == template


def test_every_resource_has_a_template() -> None:
    assert all(Route(resource=resource).template.startswith("/v2") for resource in Resource)


def test_a_path_of_many_escapes_is_refused() -> None:
    assert find_route(f"/v2/models/{'%61' * 1024}/infer").model == "a" * 1024
    for path in (f"/v2/models/{'%61' * 1025}/infer", "/" + "%2561" * 1025):
        with pytest.raises(RemoteProtocolError, match="1024 percent escapes") as caught:
            find_route(path)
        assert (caught.value.code, caught.value.status_hint) == (ErrorCode.INVALID_HTTP, 414)


def test_a_path_of_many_segments_is_none() -> None:
    for path in ("/v2/models/m/versions/1/infer/", "/v2/models/m/versions/1/infer/x/y", "/" * 1000):
        with pytest.raises(RemoteProtocolError, match="no such route"):
            find_route(path)
    with pytest.raises(RemoteProtocolError, match="decoded"):
        find_route("/1/2/3/4/5/6/7/8/%ff")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n", True),
        (b"GET /v2/health/ready", True),
        (b"GET /v2/heal", True),
        (b"GET /v2/model", False),
        (b"POST /v2/health/live HTTP/1.1\r\n", False),
        (b"GET /v2/health/live HTTP/1.1\r\nX: ".ljust(URGENT_BYTES, b"a"), False),
        (b"", False),
    ],
)
def test_the_first_bytes_of_a_short_health_check(data: bytes, expected: bool) -> None:
    assert begins_health_check(data) == expected


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v2", "/v2"),
        ("http://x:1/in/v2", "/in/v2"),
        ("http://x/a://b", "/a://b"),
        ("/a://b", "/a://b"),
        ("http://x", ""),
        ("*", "*"),
    ],
)
def test_a_path_is_taken_from_an_absolute_target(target: str, path: str) -> None:
    assert without_origin(target) == path


@pytest.mark.parametrize(
    ("target", "lasts"),
    [
        ("/v2/models/declared", True),
        ("/v2/models/declared/config", True),
        ("/v2/models/no", True),
        ("/v2/models/declared/stats", False),
        ("/v2/models/declared/ready", False),
        ("/v2/health/ready", False),
    ],
)
def test_what_only_a_change_of_the_models_changes_lasts(service: Service, target: str, *, lasts: bool) -> None:
    reply = service.open(head(target))
    assert isinstance(reply, Reply)
    assert reply.lasts is lasts
