"""Documents: what clients of Triton and KServe ask for first, and what models say of their readiness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from streamcodec import LocalProtocolError
from streamcodec.service import (
    ANY_SIZE,
    Batch,
    InferenceRequest,
    Listing,
    Model,
    ModelRegistry,
    ModelStatistics,
    Service,
    TensorMetadata,
    demo_models,
)
from streamcodec.service.models.model import Outputs
from tests.service.requests import answer, ask, get, head, post, run, service_of


def _inputs(request: InferenceRequest) -> Outputs:
    return request.inputs


def _raising(kind: type[BaseException]) -> Callable[[], bool]:
    def ready() -> bool:
        raise kind

    return ready


def _service(*models: Model) -> Service:
    return Service(ModelRegistry.of(models))


DECLARED = Model(
    name="m",
    predict=_inputs,
    inputs=(TensorMetadata("x", "FP32", (ANY_SIZE, 3)), TensorMetadata("words", "BYTES", (1,), optional=True)),
    outputs=(TensorMetadata("y", "BF16", ()),),
    versions=("1", "3"),
    is_batching=True,
)


@pytest.mark.parametrize("target", ["/v2/models/m/config", "/v2/models/m/versions/3/config"])
def test_the_configuration_says_what_is_known(target: str) -> None:
    assert get(_service(DECLARED), target).document == {
        "name": "m",
        "platform": "python",
        "backend": "python",
        "max_batch_size": 0,
        "input": [
            {"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 3], "optional": False},
            {"name": "words", "data_type": "TYPE_STRING", "dims": [1], "optional": True},
        ],
        "output": [{"name": "y", "data_type": "TYPE_BF16", "dims": []}],
    }


def test_a_model_that_declares_nothing_has_an_empty_configuration() -> None:
    document = get(Service(demo_models()), "/v2/models/identity/config").document
    assert (document["input"], document["output"]) == ([], [])


def test_the_models_are_listed() -> None:
    assert get(Service(demo_models()), "/v2/models").document == {"models": ["identity", "sink"]}
    assert get(_service(), "/v2/models").document == {"models": []}


INDEX = "/v2/repository/index"
WANTED = 'the body must be a JSON object, as {"ready": true}'
WAITING = Model(name="waiting", predict=_inputs, ready=lambda: False)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready":false}', b'{"more": [1]}'])
def test_the_index_says_which_versions_can_be_asked(body: bytes) -> None:
    answered = post(_service(DECLARED, WAITING), INDEX, body)
    assert answered.document == [
        {"name": "m", "version": "1", "state": "READY", "reason": ""},
        {"name": "m", "version": "3", "state": "READY", "reason": ""},
        {"name": "waiting", "version": "1", "state": "UNAVAILABLE", "reason": "the model says it is not ready"},
    ]


@pytest.mark.parametrize("body", [b'{"ready":true}', b' {"more": {}, "ready": true}\n'])
def test_the_index_may_be_of_what_is_ready(body: bytes) -> None:
    answered = post(_service(DECLARED, WAITING), INDEX, body)
    assert [(entry["name"], entry["version"]) for entry in answered.document] == [("m", "1"), ("m", "3")]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'{"ready": 1}', 400, "'ready' must be a boolean ($.ready)"),
        (b'{"ready": null}', 400, "'ready' must be a boolean ($.ready)"),
        (b"[true]", 400, f"{WANTED} ($)"),
        (b"ready", 400, f"{WANTED} (byte 0)"),
        (b"{", 400, WANTED),
        (b'{"ready": true, "ready": false}', 400, WANTED),
        (b'{"ready": NaN}', 400, WANTED),
        (b"\xff", 400, WANTED),
        (b"[" * 200, 400, WANTED),
        (b'{"ready": true}'.ljust(4097), 413, "the body has 4097 bytes, 4096 are allowed for the index"),
        (b" " * (4096 + (128 << 10) + 1), 413, "the body goes on 131072 bytes after the 4096 that are kept"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_index_that_is_asked_for_in_other_words(body: bytes, status: int, words: str) -> None:
    answered = post(_service(DECLARED), INDEX, body)
    assert answered.status == status
    assert words in answered.error


def test_chunks_of_nothing_ask_for_nothing_less() -> None:
    listing = _service(WAITING).begin(head(INDEX, "POST", length=None))
    assert isinstance(listing, Listing)
    (entry,) = answer(run(listing, b"")).document
    assert entry["state"] == "UNAVAILABLE"


def test_the_body_of_an_index_has_room() -> None:
    assert post(_service(WAITING), INDEX, b'{"ready": true}'.ljust(4096)).document == []


def test_a_service_that_decompresses_nothing_does_not_do_so_for_the_index() -> None:
    service = Service(ModelRegistry.of([DECLARED]), decompresses=False)
    assert post(service, INDEX, b"{}", [("Content-Encoding", "gzip")]).status == 415
    assert post(service, INDEX, b"{}").status == 200


# Statistics

_NOTHING = {"count": 0, "ns": 0}
_UNCOUNTED = {
    "success": _NOTHING,
    "fail": _NOTHING,
    "queue": _NOTHING,
    "compute_input": _NOTHING,
    "compute_infer": _NOTHING,
    "compute_output": _NOTHING,
    "cache_hit": _NOTHING,
    "cache_miss": _NOTHING,
}


def test_statistics_of_a_model_that_nobody_has_asked() -> None:
    assert get(_service(DECLARED), "/v2/models/m/versions/3/stats").document == {
        "model_stats": [
            {
                "name": "m",
                "version": "3",
                "last_inference": 0,
                "inference_count": 0,
                "execution_count": 0,
                "inference_stats": _UNCOUNTED,
                "batch_stats": [],
            }
        ]
    }


def test_what_is_counted_is_in_the_statistics() -> None:
    service = _service(DECLARED)
    statistics = service.models.statistics("m", "3")
    assert statistics is not None
    statistics.count(is_success=True, waiting=0.5, body=1, model=2, send=0.25, ended=1_700_000_000.5, batch_size=8)
    statistics.count(is_success=True, waiting=0, body=0, model=1e-9, send=0, ended=1_700_000_001)
    statistics.count(is_success=False, waiting=1, body=2, model=0, send=1, ended=1_700_000_002)
    (entry,) = get(service, "/v2/models/m/versions/3/stats").document["model_stats"]
    assert (entry["inference_count"], entry["execution_count"]) == (9, 2)
    assert entry["last_inference"] == 1_700_000_001_000
    assert entry["inference_stats"] == {
        "success": {"count": 2, "ns": 3_750_000_001},
        "fail": {"count": 1, "ns": 4_000_000_000},
        "queue": {"count": 2, "ns": 500_000_000},
        "compute_input": {"count": 2, "ns": 1_000_000_000},
        "compute_infer": {"count": 2, "ns": 2_000_000_001},
        "compute_output": {"count": 2, "ns": 250_000_000},
        "cache_hit": _NOTHING,
        "cache_miss": _NOTHING,
    }


def _listed(service: Service, target: str) -> list[tuple[str, str]]:
    return [(entry["name"], entry["version"]) for entry in get(service, target).document["model_stats"]]


def test_a_batch_is_one_execution_and_counted_by_its_rows() -> None:
    statistics = ModelStatistics()
    for own, batch in ((1, 4), (3, 0), (4, 4), (2, None)):
        statistics.count(
            is_success=True, waiting=1.0, body=2.0, model=3.0, send=4.0, ended=0.0, batch_size=own, batch=batch
        )
    document = statistics.document("m", "1")
    assert (document["inference_count"], document["execution_count"]) == (10, 3)
    assert document["batch_stats"] == [
        {
            "batch_size": 4,
            "compute_input": {"count": 2, "ns": 4_000_000_000},
            "compute_infer": {"count": 2, "ns": 6_000_000_000},
            "compute_output": {"count": 2, "ns": 8_000_000_000},
        }
    ]


def test_statistics_are_of_one_version_of_all_versions_or_of_all_models() -> None:
    service = _service(DECLARED, Model(name="other", predict=_inputs))
    assert _listed(service, "/v2/models/m/versions/1/stats") == [("m", "1")]
    assert _listed(service, "/v2/models/m/stats") == [("m", "1"), ("m", "3")]
    assert _listed(service, "/v2/models/stats") == [("m", "1"), ("m", "3"), ("other", "1")]
    assert get(service, "/v2/models/m/versions/2/stats").status == 404


def test_statistics_that_nobody_counts_are_not_offered() -> None:
    service = _service(DECLARED)
    assert "statistics" in get(service, "/v2").document["extensions"]
    service.has_statistics = False
    assert "statistics" not in get(service, "/v2").document["extensions"]
    for target in ("/v2/models/m/stats", "/v2/models/m/versions/1/stats", "/v2/models/stats"):
        reply = get(service, target)
        assert reply.status == 404
        assert "counts no statistics" in reply.document["error"]
    assert "no model" in get(service, "/v2/models/other/stats").document["error"]


def test_a_model_that_is_replaced_is_counted_anew() -> None:
    models = ModelRegistry.of([DECLARED])
    before = models.statistics("m", "1")
    models.replace(DECLARED)
    assert models.statistics("m", "1") is not before
    assert models.statistics("m", "2") is None
    models.remove("m")
    assert models.statistics("m", "1") is None


def test_a_model_called_stats_keeps_its_own_url() -> None:
    """The protocol's route comes before that of an extension; the statistics of each model can still be asked for."""
    models = ModelRegistry.of([Model(name="stats", predict=_inputs), DECLARED])
    service = Service(models)
    assert get(service, "/v2/models/stats").document["name"] == "stats"
    assert get(service, "/v2/models/stats/ready").document == {"name": "stats", "ready": True}
    assert _listed(service, "/v2/models/stats/stats") == [("stats", "1")]
    models.remove("stats")
    assert _listed(service, "/v2/models/stats") == [("m", "1"), ("m", "3")]


# Readiness


@pytest.mark.parametrize(
    "ready", [lambda: False, _raising(RuntimeError), _raising(SystemExit)], ids=["no", "error", "exit"]
)
@pytest.mark.parametrize("is_inline", [True, False])
def test_a_model_that_is_not_ready_is_503_and_so_is_the_server(ready: Callable[[], bool], is_inline: bool) -> None:
    model = Model(name="m", predict=_inputs, ready=ready, is_inline=is_inline)
    service = _service(*demo_models(), model)
    for target in ("/v2/models/m/ready", "/v2/models/m/versions/1/ready", "/v2/health/ready"):
        answered = get(service, target)
        assert (answered.status, answered.fields["Retry-After"], answered.error) == (503, "1", "model 'm' is not ready")
    assert ask(service).status == 503
    for target in ("/v2/health/live", "/v2/models/identity/ready", "/v2/models/m", "/v2/models/m/config"):
        assert get(service, target).status == 200


def test_ctrl_c_is_not_the_models() -> None:
    service = _service(Model(name="m", predict=_inputs, ready=_raising(KeyboardInterrupt)))
    with pytest.raises(KeyboardInterrupt):
        get(service, "/v2/models/m/ready")


def test_a_model_may_become_ready_and_cease_to_be() -> None:
    answers = [True]
    service = _service(Model(name="m", predict=_inputs, ready=lambda: answers[0], is_inline=True))
    resolved = service.open(head("/v2/models/m/infer", "POST", length=9))
    for is_ready in (True, False, True):
        answers[0] = is_ready
        assert get(service, "/v2/models/m/ready").status == (200 if is_ready else 503)
        assert get(service, "/v2/health/ready").status == (200 if is_ready else 503)
        assert resolved.is_inline(9) is is_ready  # type: ignore[union-attr] # it was ready then


def test_a_refusal_by_the_head_alone_is_answered_before_readiness() -> None:
    service = _service(Model(name="m", predict=_inputs, ready=lambda: False))
    reply = service.begin(head("/v2/models/m/versions/9/infer", "POST", length=9))
    assert answer(reply).status == 404  # type: ignore[arg-type] # a reply


# Optional inputs


def test_an_optional_input_may_be_left_out() -> None:
    inputs = (TensorMetadata("x", "FP32", (2,)), TensorMetadata("more", "INT8", (1,), optional=True))
    service = service_of(lambda request: {"n": np.array([len(request.inputs)])}, inputs=inputs)
    assert ask(service).outputs["n"] == [1]
    service = service_of(_inputs, inputs=(TensorMetadata("x", "FP32", (2,), optional=True), inputs[1]))
    assert ask(service).status == 200


def test_an_input_that_is_there_has_to_fit_although_it_is_optional() -> None:
    service = service_of(_inputs, inputs=(TensorMetadata("x", "FP32", (3,), optional=True),))
    assert "the shape is [2], the model takes [3]" in ask(service).error


def test_one_that_is_required_is_missed_behind_an_optional_one() -> None:
    inputs = (TensorMetadata("more", "INT8", (1,), optional=True), TensorMetadata("z", "FP32", (2,)))
    service = service_of(_inputs, inputs=(TensorMetadata("x", "FP32", (2,)), *inputs))
    assert ask(service).error == "the model also needs the input 'z' ($.inputs)"


def test_an_output_is_never_optional() -> None:
    with pytest.raises(LocalProtocolError, match="output 'y' of model 'm' is optional, which only inputs can be"):
        Model(name="m", predict=_inputs, outputs=(TensorMetadata("y", "FP32", (2,), optional=True),))


def test_the_configuration_of_a_batch_is_that_of_triton() -> None:
    """With `max_batch_size`, the `dims` are those of one row."""
    batch = Batch(max_rows=8, max_delay=0.0005, preferred_rows=(4, 8), max_queue_rows=100)
    service = _service(replace(DECLARED, outputs=None, batch=batch))
    document = get(service, "/v2/models/m/config").document
    assert (document["max_batch_size"], document["input"][0]["dims"], document["input"][1]["dims"]) == (8, [3], [])
    assert document["dynamic_batching"] == {
        "preferred_batch_size": [4, 8],
        "max_queue_delay_microseconds": 500,
        "preserve_ordering": False,
        "default_queue_policy": {"max_queue_size": 100},
    }
