"""Refusals: with which code and in which words a service says no; its server and its log tell them on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamcodec import ErrorCode, LimitExceededError, Limits, LocalProtocolError, RemoteProtocolError, Windows
from streamcodec.engine.spec import TensorSpec
from streamcodec.formats.v2.encoder import Tensor
from streamcodec.formats.v2.model import RequestedOutput, RequestHeader
from streamcodec.service import Model, ModelRegistry, Reply, TensorMetadata
from streamcodec.service.models.classification import check_classes, classify_outputs
from streamcodec.service.models.model import Outputs
from streamcodec.service.negotiation import accepted_encoding
from streamcodec.service.request.raw import raw_tensor
from streamcodec.service.routes import find_route
from tests.service.requests import ask, get, head, service_of


def _predict(_: object) -> Outputs:
    return {}


def _model(*inputs: TensorMetadata, outputs: tuple[TensorMetadata, ...] | None = None) -> Model:
    return Model(name="m", predict=_predict, inputs=inputs, outputs=outputs)


def _asking_for(count: object) -> RequestHeader:
    return RequestHeader(
        tensors=(),
        outputs=(RequestedOutput(name="y", parameters={"classification": count}),),
    )


def _raw_tensor(model: Model, nbytes: int | None) -> TensorSpec:
    found = raw_tensor(model, head("/v2/models/m/infer", "POST", length=nbytes))
    assert isinstance(found, TensorSpec)
    return found


def _refusal(call: Callable[[], object]) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(
    ("call", "code", "status", "text"),
    [
        (lambda: find_route("/v2/nothing"), "not-found", 404, "there is no such route in the V2 protocol"),
        (lambda: find_route("/v2/models/%ff"), "invalid-http", 400, "the request target cannot be decoded"),
        (lambda: find_route("ftp://host/v2"), "not-found", 404, "there is no such route in the V2 protocol"),
        (lambda: ModelRegistry().find("m", None), "not-found", 404, "there is no model 'm'"),
        (
            lambda: ModelRegistry.of([_model()]).find("m", "9"),
            "not-found",
            404,
            "model 'm' has no version '9'",
        ),
        (
            lambda: _raw_tensor(_model(TensorMetadata("x", "FP32", (-1, 2))), 0),
            "length-required",
            411,
            "a raw binary request has a body; this one has neither Content-Length nor chunks",
        ),
        (
            lambda: _raw_tensor(_model(), 4),
            "model-mismatch",
            400,
            "a raw binary request needs a model with one input; this one takes 0 inputs",
        ),
        (
            lambda: _raw_tensor(_model(TensorMetadata("x", "FP32", (2,))), 4),
            "model-mismatch",
            400,
            "4 bytes do not fill the model's input [2] with items of 4 bytes",
        ),
        (
            lambda: check_classes(_model(), _asking_for("3")),
            "invalid-member",
            400,
            "the number of classes is an integer >= 1 ($.outputs[0].parameters.classification)",
        ),
        (
            lambda: check_classes(_model(outputs=(TensorMetadata("y", "BOOL", (1,)),)), _asking_for(1)),
            "model-mismatch",
            400,
            (
                "the output is BOOL, whose values have no order; classes are taken from integers and floats "
                "($.outputs[0].parameters.classification)"
            ),
        ),
    ],
)
def test_why_a_request_is_refused(call: Callable[[], object], code: str, status: int, text: str) -> None:
    refusal = _refusal(call)
    assert (refusal.code, refusal.status_hint, str(refusal)) == (ErrorCode(code), status, text)


def test_too_many_classes_are_refused_by_the_limit_of_texts() -> None:
    tensors = [Tensor(name="y", array=np.zeros(4))]
    with pytest.raises(LimitExceededError) as caught:
        classify_outputs(tensors, _model(), _asking_for(4), Limits(max_bytes_elements=3))
    assert (caught.value.limit, caught.value.message) == (
        "max_bytes_elements",
        "the classes are 4 texts, and 3 are allowed",
    )


def test_windows_are_never_of_bytes() -> None:
    service = service_of(_predict)
    (model,) = service.models
    windowed = Model(name="w", predict=model.predict, windows=Windows(max_window_bytes=64))
    service.models.add(windowed)
    answered = ask(service, np.array([b"a"], object))
    assert answered.status == 200
    header = _bytes_header()
    refusal = _refusal(lambda: windowed.check(header))
    assert (refusal.message, refusal.path) == (
        "the model takes windows, which BYTES do not have",
        "$.inputs[0].datatype",
    )


def _bytes_header() -> RequestHeader:
    return RequestHeader(tensors=(_raw_tensor(_model(TensorMetadata("x", "BYTES", (1,))), 4),))


def test_a_shape_that_is_not_the_models_is_told() -> None:
    service = service_of(_predict, inputs=(TensorMetadata("x", "FP32", (3,)),))
    assert ask(service, np.ones(2, np.float32)).error == "the shape is [2], the model takes [3] ($.inputs[0].shape)"


def test_an_unknown_datatype_of_metadata_is_told_with_those_there_are() -> None:
    with pytest.raises(LocalProtocolError, match="'FP3' is not a datatype; there are BOOL, UINT8, "):
        TensorMetadata("x", "FP3", ())


def test_a_weight_that_is_not_given_is_1() -> None:
    assert accepted_encoding([b"deflate, gzip;q=1"]) == "gzip"
    assert accepted_encoding([b"deflate;q=1, gzip"]) == "gzip"
    assert accepted_encoding([b"gzip, identity;q=1"]) is None


def test_only_blanks_stand_around_an_encoding() -> None:
    assert accepted_encoding([b"XgzipX"]) is None


def test_a_request_without_a_host_is_for_none() -> None:
    service = service_of(_predict, allowed_hosts=["localhost"])
    told = "this server is not {}; its operator lists the hosts that it is"
    assert get(service, "/v2").error == told.format("''")
    fields = [("Host", "localhost")]
    assert get(service, "http://[/v2", fields=fields).error == told.format("''")
    assert get(service, "http://other/v2", fields=fields).error == told.format("'other'")


@pytest.mark.parametrize("encoding", ["gzip", "wonders"])
def test_why_a_compressed_request_is_not_taken_is_told_to_the_server_too(encoding: str) -> None:
    service = service_of(_predict, decompresses=False)
    reply = service.begin(head("/v2/models/m/infer", "POST", [("Content-Encoding", encoding)], 9))
    assert isinstance(reply, Reply)
    assert reply.refusal is not None
    assert (reply.refusal.code, reply.refusal.message) == (
        ErrorCode.UNSUPPORTED_ENCODING,
        "this server takes no compressed requests",
    )


def test_why_a_method_is_not_answered_is_told_to_the_server_too() -> None:
    reply = service_of(_predict).begin(head("/v2", "PUT"))
    assert isinstance(reply, Reply)
    assert reply.refusal is not None
    assert reply.refusal.code is ErrorCode.METHOD_NOT_ALLOWED
