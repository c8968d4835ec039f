"""Random inputs by a model's metadata."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pytest

from streamcodec import DATATYPES, encode_request
from streamcodec.cli.inferring.making import Shape, random_inputs, shape
from streamcodec.engine.errors import LocalProtocolError


def _metadata(**inputs: tuple[str, list[int]]) -> dict[str, Any]:
    entries = [{"name": name, "datatype": kind, "shape": sizes} for name, (kind, sizes) in inputs.items()]
    return {"name": "m", "inputs": entries}


def _made(metadata: dict[str, Any], *shapes: str, size: int = 1, seed: int = 0, **others: Any) -> dict[str, Any]:  # noqa: ANN401 - as the function has them
    given = [shape(text) for text in shapes]
    return random_inputs(metadata, {each.name: each for each in given}, size=size, seed=seed, **others)


@pytest.mark.parametrize("name", DATATYPES)
def test_every_datatype_can_be_sent(name: str) -> None:
    array = _made(_metadata(x=(name, [-1, 50])), size=4)["x"]
    assert array.shape == (4, 50)
    encode_request({"x": array})
    assert len(set(array.reshape(-1).tolist())) > (1 if name == "BOOL" else 20)
    if DATATYPES[name].kind in "iu":
        assert 0 <= array.min() <= array.max() < 100
    if name.startswith(("FP", "BF")):
        values = array if array.dtype.kind == "f" else (array.view("<u2").astype("<u4") << 16).view("<f4")
        assert 0 <= values.min() <= values.max() <= 1


def test_free_dimensions() -> None:
    metadata = _metadata(a=("FP32", [-1, 3, -1]), b=("INT64", []))
    found = _made(metadata, size=5)
    assert (found["a"].shape, found["b"].shape) == ((5, 3, 5), ())
    assert _made(metadata, "a:2,3,0")["a"].shape == (2, 3, 0)
    assert list(_made(metadata, without={"a"})) == ["b"]


def test_the_seed_chooses_the_values() -> None:
    metadata = _metadata(x=("FP32", [8]), s=("BYTES", [8]))
    first, same, other = (_made(metadata, seed=seed) for seed in (1, 1, 2))
    for name in "xs":
        assert first[name].tolist() == same[name].tolist() != other[name].tolist()


def test_a_model_that_declares_nothing() -> None:
    assert _made({"name": "m"}) == {}
    assert _made({"name": "m", "inputs": []}, "a:b:INT8:2,2")["a:b"].dtype == np.int8


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (["x:1"], "--shape of input 'x' does not fit its declaration, FP32 \\[-1, 3\\]"),
        (["x:1,4"], "does not fit"),
        (["x:FP64:1,3"], "does not fit"),
        (["y:1,3"], "no random input of the model is named 'y'"),
        (["x:999999999999,3"], "too large to be random"),
    ],
)
def test_shapes_that_do_not_fit(shapes: list[str], words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        _made(_metadata(x=("FP32", [-1, 3])), *shapes)


def test_too_many_texts() -> None:
    with pytest.raises(LocalProtocolError, match="too large"):
        _made(_metadata(x=("BYTES", [1 << 23])))


def test_undeclared_inputs_need_a_datatype() -> None:
    with pytest.raises(LocalProtocolError, match="give its datatype too, as --shape x:FP32:1,16"):
        _made({}, "x:1")


@pytest.mark.parametrize(
    "inputs",
    [1, [1], [{}], [{"name": "x", "datatype": "FLOAT", "shape": [1]}], [{"name": "x", "datatype": "FP32", "shape": 1}]],
)
def test_metadata_of_a_strange_server(inputs: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(LocalProtocolError, match="not as the V2 protocol describes"):
        _made({"inputs": inputs})


def test_the_text_of_a_shape() -> None:
    assert shape("a:b:1,2") == Shape(name="a:b", datatype=None, sizes=(1, 2))
    assert shape("x:") == Shape(name="x", datatype=None, sizes=())
    assert shape("x:BYTES:") == Shape(name="x", datatype=DATATYPES["BYTES"], sizes=())
    for text in ("x", "", ":1", "x:-1", "x:1,", "x:a", "x:1.5"):
        with pytest.raises(argparse.ArgumentTypeError):
            shape(text)
