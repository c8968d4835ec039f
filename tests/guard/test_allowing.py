"""Allowing: what passes by default, what each name opens, and that it opens nothing else."""

from __future__ import annotations

import pytest

from streamcodec import LocalProtocolError, RemoteProtocolError
from streamcodec.guard import ALLOWANCES
from streamcodec.guard.rules.allowing import BodyCheck
from streamcodec.guard.rules.gate import Gate
from streamcodec.http.heads.messages import Fields, RequestHead

OPEN = [
    ("POST", "/v2/models/m/infer"),
    ("POST", "/v2/models/m/versions/1/infer"),
    *(
        (method, path)
        for method in ("GET", "HEAD")
        for path in (
            *("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models", "/v2/models/stats"),
            *(
                f"/v2/models/m{rest}"
                for rest in ("", "/ready", "/config", "/stats", "/versions/1", "/versions/1/ready")
            ),
        )
    ),
]
BEHIND_A_NAME = [
    ("generate", "POST", "/v2/models/m/generate"),
    ("generate", "POST", "/v2/models/m/versions/1/generate_stream"),
    ("repository", "POST", "/v2/repository/index"),
    ("repository", "POST", "/v2/repository/r/index"),
    ("repository", "POST", "/v2/repository/models/m/load"),
    ("repository", "POST", "/v2/repository/r/models/m/unload"),
    ("trace", "GET", "/v2/trace/setting"),
    ("trace", "POST", "/v2/models/m/trace/setting"),
    ("logging", "POST", "/v2/logging"),
    ("shared-memory", "GET", "/v2/systemsharedmemory/status"),
    ("shared-memory", "POST", "/v2/systemsharedmemory/region/r/register"),
    ("shared-memory", "POST", "/v2/cudasharedmemory/unregister"),
    ("v1", "GET", "/"),
    ("v1", "GET", "/v1/models/m"),
    ("v1", "POST", "/v1/models/m:predict"),
    ("openai", "POST", "/openai/v1/chat/completions"),
    ("sagemaker", "GET", "/ping"),
    ("sagemaker", "POST", "/invocations"),
    ("sagemaker", "DELETE", "/models/m"),
    ("docs", "GET", "/docs"),
    ("docs", "GET", "/openapi.json"),
    ("metrics", "GET", "/metrics"),
]


def _head(method: str, target: str) -> RequestHead:
    return RequestHead(method=method, target=target, fields=Fields(()), content_length=9 if method == "POST" else 0)


def _refusal(gate: Gate, method: str, target: str) -> tuple[int, str]:
    with pytest.raises(RemoteProtocolError) as caught:
        gate.judge(_head(method, target))
    return caught.value.status_hint, str(caught.value)


def test_the_protocol_passes() -> None:
    for method, path in OPEN:
        permit = Gate("/p").judge(_head(method, f"{path}?x"))
        assert permit.target == f"/p{path}?x"
        assert permit.check is (BodyCheck.MESSAGE if method == "POST" else BodyCheck.NOTHING)


@pytest.mark.parametrize(("name", "method", "path"), BEHIND_A_NAME)
def test_each_name_opens_what_it_says_and_nothing_else(name: str, method: str, path: str) -> None:
    others = ALLOWANCES.keys() - {name, "all"}
    for gate in (Gate(), Gate(allowed=others)):
        status, text = _refusal(gate, method, path)
        assert status == 403
        assert text.endswith(f"--allow {name}")
    for allowed in (name, "all"):
        assert Gate(allowed=[allowed]).judge(_head(method, path)).target == path
    assert _refusal(Gate(allowed=[name]), "PATCH", path)[0] == 405


def test_names() -> None:
    assert {name for name, _, _ in BEHIND_A_NAME} == ALLOWANCES.keys() - {"cors", "all"}
    with pytest.raises(LocalProtocolError, match="'generates' cannot be allowed; what can is generate, repository"):
        Gate(allowed=["all", "generates"])


def test_other_methods_of_known_routes() -> None:
    for method, path in (("GET", "/v2/models/m/infer"), ("DELETE", "/v2"), ("POST", "/v2/health/live")):
        for gate in (Gate(), Gate(allowed=ALLOWANCES)):
            assert _refusal(gate, method, path)[0] == 405


@pytest.mark.parametrize("path", ["/favicon.ico", "/v3/models/m/infer", "/v2/models/m/Infer", "/v2/models/m/infer/x"])
def test_what_is_not_known_passes_only_with_all(path: str) -> None:
    status, text = _refusal(Gate(allowed=ALLOWANCES.keys() - {"all"}), "GET", path)
    assert (status, text[-11:]) == (404, "--allow all")
    assert Gate(allowed=["all"]).judge(_head("GET", path)).check is BodyCheck.NOTHING


@pytest.mark.parametrize("last", ["Infer", "INFER", "infer.", "infer%20", "in-fer", "%EF%BD%89nfer", "infer/x"])
def test_what_resembles_an_inference_never_passes_with_a_body(last: str) -> None:
    gate = Gate(allowed=["all"])
    for method in ("POST", "PUT"):
        status, text = _refusal(gate, method, f"/v2/models/m/{last}")
        assert (status, "write it as /v2/models/NAME/infer" in text) == (404, True)


@pytest.mark.parametrize("name", ["%41", "%C3", "%5b"])
def test_a_path_that_takes_long_to_decode(name: str) -> None:
    for gate in (Gate(), Gate(allowed=["all"])):
        for path in (f"/v2/models/{name * 2_049}/infer", f"/{name * 2_049}"):
            assert _refusal(gate, "POST", path)[0] == 414


def test_what_browsers_ask_first() -> None:
    assert _refusal(Gate(), "OPTIONS", "/v2/models/m/infer")[0] == 405
    gate = Gate(allowed=["cors"])
    assert gate.judge(_head("OPTIONS", "/v2/models/m/infer")).check is BodyCheck.NOTHING
    assert _refusal(gate, "OPTIONS", "/v2/logging")[0] == 403
    head = RequestHead(method="OPTIONS", target="/v2", fields=Fields(()), content_length=1)
    with pytest.raises(RemoteProtocolError, match="takes GET, HEAD through"):
        gate.judge(head)
