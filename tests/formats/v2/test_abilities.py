"""What the metadata of a server say of what it reads."""

from __future__ import annotations

from typing import Any

import pytest

from streamcodec.formats.v2.abilities import reads_binary


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"name": "triton", "extensions": ["classification", "binary_tensor_data"]}, True),
        ({"name": "kserve", "extensions": ["model_repository_extension"]}, True),
        ({"name": "mlserver", "extensions": []}, False),
        ({"extensions": None}, False),
        ({"extensions": "binary_tensor_data"}, False),
        ({}, False),
    ],
)
def test_binary_tensors(metadata: dict[str, Any], expected: bool) -> None:
    assert reads_binary(metadata) is expected
