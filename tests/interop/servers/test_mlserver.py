"""Our clients against MLServer, which reads JSON only. It has no column in the matrix, which is of binary tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcodec import NotRepresentableError
from streamcodec.client import ServerError
from tests.client.drivers import Kind

pytestmark = pytest.mark.slow

_ARRAYS: dict[str, Any] = {
    "FP32": np.array([[1.5, -2], [0, 3e30]], np.float32),
    "INT64": np.array([2**62, -1], np.int64),
    "BYTES": np.array(["ä", ""], object),
}


@pytest.mark.parametrize("name", _ARRAYS)
def test_the_first_call_notices_it(kind: Kind, mlserver: str, name: str) -> None:
    array = _ARRAYS[name]
    with kind.client(mlserver) as client:
        for _ in range(2):
            result = client.infer("echo", {"x": array}, request_id="7")
            expected = [text.encode() for text in array] if name == "BYTES" else array
            assert np.array_equal(result["x"], expected)
            assert result.header.id == "7"


def test_what_it_cannot_be_sent(kind: Kind, mlserver: str) -> None:
    with kind.client(mlserver) as client, pytest.raises(NotRepresentableError) as caught:
        client.infer("echo", {"x": np.ones(2, np.float16)})
    assert "binary_tensor_data" in caught.value.__notes__[0]


def test_its_own_errors_stay_what_they_are(kind: Kind, mlserver: str) -> None:
    with kind.client(mlserver) as client, pytest.raises(ServerError, match="404: Model none not found"):
        client.infer("none", {"x": [1]})
