"""Documents: metadata of large models is ordinary, and how long it may be is a limit."""

from __future__ import annotations

import json

import pytest

from streamcodec import LimitExceededError, Limits
from tests.client.drivers import KINDS, Kind
from tests.client.scripted import response, scripted

MIB = 1 << 20


def _metadata(count: int) -> bytes:
    """Return the metadata of a model with so many inputs and as many outputs, as a server writes it."""
    tensors = [{"name": f"feature_{index:05}", "datatype": "FP32", "shape": [-1, 128]} for index in range(count)]
    document = {"name": "m", "versions": ["1"], "platform": "onnxruntime_onnx", "inputs": tensors, "outputs": tensors}
    return json.dumps(document).encode()


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("count", [2_000, 6_500])
def test_metadata_of_a_large_model(kind: Kind, count: int) -> None:
    text = _metadata(count)
    assert MIB // 4 < len(text) < MIB
    with scripted([response(text)]) as server, kind.client(server.url) as client:
        assert client.call("model_metadata", "m") == json.loads(text)


@KINDS
def test_how_long_a_document_may_be_is_a_limit(kind: Kind) -> None:
    text = _metadata(1_000)
    for excess in (0, 1):
        limits = Limits(max_document_bytes=len(text) - excess)
        with scripted([response(text)]) as server, kind.client(server.url, limits=limits) as client:
            if not excess:
                assert client.call("model_metadata", "m") == json.loads(text)
                continue
            with pytest.raises(LimitExceededError) as caught:
                client.call("model_metadata", "m")
            assert (caught.value.limit, caught.value.offset) == ("max_document_bytes", len(text) - 1)
