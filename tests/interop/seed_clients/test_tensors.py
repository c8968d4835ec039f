"""Tensors: all datatypes, in every form, there and back."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import product

import numpy as np
import pytest

from tests.interop.seed_clients.jobs import WITHOUT_JSON, Caller, assert_same, floats, ramp
from tests.interop.seed_clients.systems import ALL, GO, JAVASCRIPT, NODE, PYTHON, cell, only
from tests.interop.tensors import NOT_FINITE, PLAIN, elements, feature, fingerprint

_TENSORS = PLAIN | NOT_FINITE | WITHOUT_JSON
_WITH_MINUS_ZERO = {"FP32", "FP64"}
_FRAMINGS = ("headerless", "length")


def _travels_as_json(system: str, name: str, *, back: bool) -> bool:
    """Return whether a client can do it; what happens where it cannot is in `test_languages.py`."""
    if name in WITHOUT_JSON:
        return False
    if name in NOT_FINITE:
        return system == PYTHON
    if system == PYTHON:
        return True
    if system in JAVASCRIPT and "INT64" in name:
        return False
    return back or (name not in _WITH_MINUS_ZERO and not (system == GO and name == "UINT8"))


def _journeys() -> Iterator[object]:
    """Yield client, tensor, how it is sent, and whether the answer is binary."""
    for system, name, there, back in product(ALL, _TENSORS, (*_FRAMINGS, "json"), ("binary", "json")):
        if there == "json" and not _travels_as_json(system, name, back=False):
            continue
        if back == "json" and not _travels_as_json(system, name, back=True):
            continue
        shown = "headerless form" if there == "headerless" else feature(name, there, back)
        yield cell(system, shown, name, there, back == "binary", name=f"{name}, {there} to {back}")


def _some(*names: str) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.interop(feature=feature(name))) for name in names]


@pytest.mark.parametrize(("system", "name", "there", "back"), list(_journeys()), indirect=["system"])
def test_tensor_comes_back_as_sent(client: Caller, name: str, there: str, back: bool) -> None:
    answer = client.infer(
        {"x": _TENSORS[name]},
        as_json="x" if there == "json" else "",
        framing="length" if there == "length" else "headerless",
        binary_output=back,
    )
    assert answer.status == 200
    assert_same(answer.outputs, {"x": _TENSORS[name]})
    assert answer.is_binary("x") is back
    assert answer.fields["content-type"] == ("application/octet-stream" if back else "application/json")


@pytest.mark.parametrize("name", _some("FP16", "BF16", "BYTES not in UTF-8"))
def test_tensor_without_json_form_asked_for_as_json_is_refused(client: Caller, name: str) -> None:
    """Which is what happens to one who asks for nothing, as KServe's page does, and reads JSON alone."""
    answer = client.infer({"x": WITHOUT_JSON[name]})
    assert answer.status == 400
    assert "binary" in answer.error


@pytest.mark.interop(feature="NaN payloads")
@pytest.mark.parametrize("name", [name for name in WITHOUT_JSON if "payloads" in name])
def test_signalling_nan_reaches_the_model_unchanged(client: Caller, name: str) -> None:
    answer = client.infer({"x": WITHOUT_JSON[name]}, model="seen")
    assert answer.seen["inputs"]["x"] == fingerprint(WITHOUT_JSON[name])


@pytest.mark.interop(feature="binary tensors")
@pytest.mark.parametrize("framing", _FRAMINGS)
def test_all_tensors_in_one_request(client: Caller, framing: str) -> None:
    answer = client.infer(_TENSORS, framing=framing, binary_output=True)
    assert_same(answer.outputs, _TENSORS)


@pytest.mark.interop(feature="binary and JSON mixed")
@pytest.mark.parametrize("framing", _FRAMINGS)
def test_all_tensors_in_one_request_binary_and_json_mixed_both_ways(client: Caller, system: str, framing: str) -> None:
    """Binary tensors are found although JSON tensors and tensors of size 0 stand between them."""
    names = [name for name in _TENSORS if "NaN" not in name]
    there = {n for i, n in enumerate(names) if i % 2 and _travels_as_json(system, n, back=False)}
    back = {n for i, n in enumerate(names) if i % 3 and _travels_as_json(system, n, back=True)}
    outputs = [{"name": name, "parameters": {"binary_data": name not in back}} for name in names]
    inputs = {name: _TENSORS[name] for name in names}
    answer = client.infer(inputs, as_json=there, framing=framing, members={"outputs": outputs})
    assert_same(answer.outputs, inputs)
    assert {name for name in names if not answer.is_binary(name)} == back


@pytest.mark.interop(feature="headerless form")
@pytest.mark.parametrize("back", [True, False], ids=["binary", "json"])
def test_names_and_texts_that_look_like_the_end_of_the_json(client: Caller, back: bool) -> None:
    inputs = {
        '}{"\\': floats(),
        "größer <&> 🦊\u2028": elements(b'}]}{"', b"\\", b'\\"}'),
        'inputs":[]}': floats(2),
    }
    answer = client.infer(inputs, as_json=["größer <&> 🦊\u2028"], binary_output=back)
    assert_same(answer.outputs, inputs)


@pytest.mark.interop(feature="headerless form")
def test_tensors_that_look_like_json(client: Caller) -> None:
    text = np.frombuffer(b'{"inputs": []} ]}"\\ \n' * 3, dtype=np.uint8)
    answer = client.infer({"x": text, "y": elements(b'{"', b"}")}, binary_output=True)
    assert_same(answer.outputs, {"x": text, "y": elements(b'{"', b"}")})


@only(PYTHON, NODE, GO)
@pytest.mark.interop(feature="headerless form")
@pytest.mark.parametrize("nbytes", [1, 7, 4096])
def test_body_cut_anywhere(client: Caller, nbytes: int) -> None:
    inputs = {"x": floats(300), "y": elements(b"}", b"\0", b"")}
    answer = client.infer(inputs, chunk_bytes=nbytes, binary_output=True)
    assert_same(answer.outputs, inputs)


@pytest.mark.slow
@pytest.mark.interop(feature="binary tensors")
def test_image_of_600_kb_as_on_the_page_of_kserve(client: Caller) -> None:
    image = np.sin(np.arange(3 * 224 * 224, dtype=np.float32)).reshape(1, 3, 224, 224)
    assert_same(client.infer({"image_input": image}).outputs, {"image_input": image})


_LARGE = 1 << 24
_LARGE_SHA256 = sha256(np.arange(_LARGE, dtype=np.float32).data).hexdigest()


@pytest.mark.slow
@pytest.mark.interop(feature="large tensors")
@pytest.mark.parametrize("framing", _FRAMINGS)
def test_tensor_of_64_mib_comes_back(client: Caller, framing: str) -> None:
    members = {"parameters": {"binary_data_output": True}}
    answer = client.send([ramp(_LARGE)], framing=framing, members=members, digest=True)
    assert answer.digests == {"x": _LARGE_SHA256}


@only(PYTHON, NODE, GO)
@pytest.mark.interop(feature="large tensors")
def test_tensor_of_64_mib_in_chunks_reaches_the_model(client: Caller) -> None:
    answer = client.send([ramp(_LARGE)], model="seen", chunk_bytes=100_000)
    assert answer.seen["inputs"]["x"]["sha256"] == _LARGE_SHA256
