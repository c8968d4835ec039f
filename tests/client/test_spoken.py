"""What the clients say to somebody who reads along: of a result, and of an argument that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

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


X = {"x": np.ones(3)}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an array as inputs": ({"inputs": np.ones(3)}, "inputs are arrays by name, as {'x': array}, not numpy.ndarray"),
    "a list as inputs": ({"inputs": [np.ones(3)]}, "inputs are arrays by name, as {'x': array}, not list"),
    "no inputs": ({"inputs": None}, "inputs are arrays by name, as {'x': array}, not None"),
    "a name of an input": ({"inputs": {1: [1]}}, "names are str, unique in a message and not empty, unlike 1"),
    "uneven lists": ({"inputs": {"x": [[1], [1, 2]]}}, "numpy makes no array of 'x': "),
    "one output": ({"outputs": "y"}, "outputs are a list of names or of RequestedOutput objects, as ['y'], not str"),
    "outputs by name": ({"outputs": {"y": 1}}, "as ['y'], not dict"),
    "a number of outputs": ({"outputs": 1}, "as ['y'], not int"),
    "an output": ({"outputs": [{"name": "y"}]}, "as ['y'], not dict"),
    "a model": ({"model": 5}, "the name of a model is a str, as 'resnet', not int"),
    "a version": ({"version": 1}, "the version of a model is a str, as '1', not int"),
    "an id": ({"request_id": 7}, "an id is a str, as '7', not int"),
    "parameters": ({"parameters": [("a", 1)]}, "parameters are values by name, as {'temperature': 0.5}, not list"),
    "out": ({"out": np.ones(3)}, "out are arrays by the names of outputs, as {'y': array}, not numpy.ndarray"),
    "a place": ({"place": 5}, "place is a function from a TensorSpec to a placement, as new_array, not int"),
}


@KINDS
@pytest.mark.parametrize(("wrong", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_says_what_to_write(kind: Kind, wrong: dict[str, Any], words: str) -> None:
    with kind.client("http://nobody.invalid") as client, pytest.raises(LocalProtocolError, match=re.escape(words)):
        client.infer(**{"model": "m", "inputs": X} | wrong)
