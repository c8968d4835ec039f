"""What the clients say to somebody who reads along: of a result, and of an argument that is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from streamcodec import LocalProtocolError
from streamcodec.server import ServerOptions
from tests.client.drivers import KINDS, Kind
from tests.server.models import models
from tests.server.programs import server_here


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models(), ServerOptions()) as (_, (host, port)):
        yield f"http://{host}:{port}"


def test_result_is_shown_in_three_lines(url: str) -> None:
    with Kind("sync").client(url) as client:
        result = client.infer("identity", {"x": np.ones((2, 3), np.float32)}, request_id="7")
        many = client.infer("identity", {f"x{number}": np.ones(1, np.int8) for number in range(10)})
    lines = repr(result).splitlines()
    assert lines[0].startswith("InferResult(model 'identity', version ")
    assert lines[0].endswith("id '7',")
    assert lines[1:] == ["  outputs x FP32 [2, 3],", f"  parameters {dict(result.header.parameters)!r})"]
    assert "x7 INT8 [1], and 2 more," in repr(many)
    assert len(repr(many).splitlines()) == 3


@KINDS
@pytest.mark.parametrize("wrong", [np.ones(3), [np.ones(3)], None], ids=["array", "list", "none"])
def test_inputs_without_names(url: str, kind: Kind, wrong: object) -> None:
    with (
        kind.client(url) as client,
        pytest.raises(LocalProtocolError, match=r"inputs are arrays by name, as \{'x': array\}, not "),
    ):
        client.infer("identity", cast("Any", wrong))
