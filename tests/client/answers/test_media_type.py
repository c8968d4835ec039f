"""The header's length in the media type: sent by both clients if they are told to, and understood in any case."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from streamcodec import (
    SAGEMAKER_MEDIA_TYPE,
    VERTEX_AI_MEDIA_TYPE,
    LocalProtocolError,
    RemoteProtocolError,
    encode_response,
)
from streamcodec.client import AsyncClient, Client
from streamcodec.service import Service
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import response, scripted
from tests.server.models import models
from tests.server.programs import server_here

X = np.arange(6, dtype=np.float32)
MESSAGE = encode_response({"x": X}, model_name="m")
MEDIA_TYPES = pytest.mark.parametrize("media_type", [SAGEMAKER_MEDIA_TYPE, VERTEX_AI_MEDIA_TYPE])


def answer(content_type: str) -> bytes:
    return response(b"".join(MESSAGE.buffers), f"Content-Type: {content_type}")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(Service(models(), compresses=True)) as (_, (host, port)):
        yield f"http://{host}:{port}"


@KINDS
@MEDIA_TYPES
def test_on_the_wire(kind: Kind, media_type: str) -> None:
    answers = [answer(f"{media_type};json-header-size={MESSAGE.header_length}")] * 3
    with scripted(answers) as server, kind.client(server.url, media_type=media_type) as client:
        assert np.array_equal(client.infer("m", {"x": X})["x"], X)
        client.infer("m", {"x": X}, is_binary=False)
        client.call("infer_raw", "m", X)
    binary, text, raw = (request.partition(b"\r\n\r\n") for request in server.requests)
    size = binary[2].index(b"}]}") + len(b"}]}")
    size += -size % 64
    assert f"\r\nContent-Type: {media_type};json-header-size={size}\r\n".encode() in binary[0]
    assert b"\r\nContent-Type: application/json\r\n" in text[0]
    assert f"\r\nContent-Type: {media_type};json-header-size=0\r\n".encode() in raw[0]
    assert not any(b"inference-header" in request.lower() for request in server.requests)


@pytest.mark.slow
@KINDS
@MEDIA_TYPES
@pytest.mark.parametrize("encoding", [None, "gzip"])
def test_there_and_back(kind: Kind, url: str, media_type: str, encoding: str | None) -> None:
    options = {"media_type": media_type, "request_compression": encoding, "response_compression": encoding}
    with kind.client(url, **options) as client:
        for x in (X, np.arange(100_000), np.array(["größe", ""])):
            for is_binary in (True, False):
                assert client.infer("identity", {"x": x}, is_binary=is_binary)["x"].shape == x.shape


@KINDS
def test_an_answer_is_understood_by_a_client_that_has_not_asked_for_it(kind: Kind) -> None:
    answers = [answer(f"{SAGEMAKER_MEDIA_TYPE}; json-header-size={MESSAGE.header_length}")]
    with scripted(answers) as server, kind.client(server.url) as client:
        assert np.array_equal(client.infer("m", {"x": X})["x"], X)


@KINDS
def test_a_malformed_one_is_the_servers_fault(kind: Kind) -> None:
    malformed = answer(f"{SAGEMAKER_MEDIA_TYPE};json-header-size=x")
    wanted = pytest.raises(RemoteProtocolError, match="json-header-size is not a plain decimal number")
    with scripted([malformed]) as server, kind.client(server.url) as client, wanted:
        client.infer("m", {"x": X})


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_another_media_type_is_refused(client: type[Client | AsyncClient]) -> None:
    with pytest.raises(LocalProtocolError, match="the media types with the header's length are"):
        client("http://127.0.0.1:1", media_type="application/json")
    with pytest.raises(LocalProtocolError, match="media_type says it"):
        client("http://127.0.0.1:1", headers={"Content-Type": SAGEMAKER_MEDIA_TYPE})
