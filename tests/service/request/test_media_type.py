"""The header's length in the media type: the answer says it where the request has said it."""

from __future__ import annotations

import numpy as np
import pytest

from streamcodec import (
    HEADER_LENGTH_FIELD,
    SAGEMAKER_MEDIA_TYPE,
    VERTEX_AI_MEDIA_TYPE,
    EncodedMessage,
    Tensor,
    encode_raw_request,
    encode_request,
    parse_header_length,
)
from streamcodec.service import ResolvedHead, Service, TensorMetadata
from streamcodec.service.request.plan import Recipe
from tests.service.requests import Answer, answer, head, post, service_of

TARGET = "/v2/models/m/infer"
MEDIA_TYPES = pytest.mark.parametrize("media_type", [SAGEMAKER_MEDIA_TYPE, VERTEX_AI_MEDIA_TYPE])
MESSAGE = encode_request(
    [Tensor(name="x", array=np.arange(3, dtype=np.int64))], parameters={"binary_data_output": True}
)
INPUT = TensorMetadata(name="x", datatype="INT64", shape=(-1,))


@pytest.fixture
def service() -> Service:
    return service_of(lambda request: request.values, inputs=(INPUT,), compresses=True)


def ask(service: Service, message: EncodedMessage, media_type: str | None, *fields: tuple[str, str]) -> Answer:
    headers = message.headers if media_type is None else message.headers_with(media_type)
    return post(service, TARGET, b"".join(message.buffers), [*headers, *fields])


def says(found: Answer, media_type: str) -> int | None:
    """Return what the field says, when the media type has said its length."""
    name, _, length = found.fields["Content-Type"].partition(";json-header-size=")
    assert name == media_type
    assert parse_header_length([], [found.fields["Content-Type"].encode()]) == int(length)
    assert found.body[: int(length)].rstrip().endswith(b"}]}")
    return int(found.fields[HEADER_LENGTH_FIELD]) - int(length) if HEADER_LENGTH_FIELD in found.fields else None


def test_sagemakers_answer_has_it_in_the_media_type_alone(service: Service) -> None:
    for message in (MESSAGE, encode_raw_request(np.arange(3, dtype=np.int64))):
        found = ask(service, message, SAGEMAKER_MEDIA_TYPE)
        assert found.status == 200
        assert says(found, SAGEMAKER_MEDIA_TYPE) is None


def test_vertex_ais_answer_has_it_in_both_places(service: Service) -> None:
    found = ask(service, MESSAGE, VERTEX_AI_MEDIA_TYPE)
    assert found.status == 200
    assert says(found, VERTEX_AI_MEDIA_TYPE) == 0


@MEDIA_TYPES
def test_answers_without_binary_tensors_are_as_ever(service: Service, media_type: str) -> None:
    for message, status in (
        (encode_request({"x": np.arange(3, dtype=np.int64)}), 200),
        (encode_request({"y": np.arange(3, dtype=np.int64)}), 400),
    ):
        wanted, found = ask(service, message, None), ask(service, message, media_type)
        assert found.status == wanted.status == status
        assert (found.fields, found.body) == (wanted.fields, wanted.body)


@MEDIA_TYPES
def test_a_compressed_answer(service: Service, media_type: str) -> None:
    message = encode_request({"x": np.zeros(9999, np.int64)}, parameters={"binary_data_output": True})
    found = ask(service, message, media_type, ("Accept-Encoding", "gzip"))
    assert found.fields["Content-Encoding"] == "gzip"
    assert found.fields["Content-Type"].startswith(f"{media_type};json-header-size=")


def test_a_recipe_belongs_to_a_media_type(service: Service) -> None:
    body = b"".join(MESSAGE.buffers)
    types = []
    for media_type in (None, SAGEMAKER_MEDIA_TYPE, VERTEX_AI_MEDIA_TYPE) * 2:
        headers = MESSAGE.headers if media_type is None else MESSAGE.headers_with(media_type)
        resolved = service.open(head(TARGET, "POST", headers, len(body)))
        assert isinstance(resolved, ResolvedHead)
        plan = Recipe(resolved).plan(body[: MESSAGE.header_length], len(body))
        assert plan is not None
        reply = plan.reply({"y": np.ones(3)}, plan.header)
        types.append(answer(reply).fields["Content-Type"].partition(";")[0])
    assert types == ["application/octet-stream", SAGEMAKER_MEDIA_TYPE, VERTEX_AI_MEDIA_TYPE] * 2
