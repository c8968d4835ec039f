"""Expectations: what KServe's client gets in each case of `client_script.py`, and the cell of the matrix that it shows.

What the client itself cannot do is an expected error with a name, like all else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from tests.interop.tensors import NOT_FINITE, TENSORS, datatype, feature, fingerprint


@dataclass(frozen=True, slots=True)
class Fails:
    """The case ends with an exception in the client."""

    kind: str
    text: str
    """Part of its message."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is to come of a case."""

    feature: str
    outcome: Any
    """`Fails`, or the result, any JSON value."""
    deviation: str | None = None
    """What the client does in a way of its own; what we do about it."""


@dataclass(frozen=True, slots=True)
class _Deviates:
    """An outcome that shows a deviation."""

    outcome: Any
    text: str


def _refused(status: str, text: str) -> Fails:
    """The server answers with an error, and the client passes on our words."""
    return Fails("HTTPStatusError", f"{text}, '{status}' for url")


_BAD_REQUEST = "400 Bad Request"
_NOT_FOUND = "404 Not Found"

# What KServe's client cannot do, or the server refuses for a reason.
_NAN_SENT_AS_NULL = _Deviates(
    _refused(_BAD_REQUEST, "a value is not a number ($.inputs[0].data[0])"),
    "writes NaN and the infinities as null in JSON; refused (400), because null is not a number and the value is lost; "
    "send them in binary",
)
_NAN_NOT_READ = _Deviates(
    Fails("InvalidInput", "Unrecognized request format: unexpected character"),
    "cannot read the literal NaN, which we write as Triton does; serve with `--nonfinite null`, or request binary data",
)
_FP16_NOT_SENT = Fails("InvalidInput", "Sending FP16 data via JSON is not supported")
_FP16_NOT_ANSWERED = _refused(_BAD_REQUEST, "FP16 has no JSON form; ask for binary data")
_NOT_TEXT = Fails("InferenceError", "using UTF-8. Please use binary_data=True")
_NOT_TEXT_NOT_READ = _Deviates(
    _NOT_TEXT,
    "decodes binary BYTES as text and fails if they are not UTF-8; answers are sent unchanged, and the model gets "
    "what was sent",
)
_NOT_TEXT_NOT_ANSWERED = _refused(_BAD_REQUEST, "a BYTES element is not UTF-8, which JSON needs; use the binary form")
_MADE_QUIET = (
    "converts binary FP32 to Python floats, which makes signalling NaNs quiet; answers are sent "
    "unchanged, and the model gets what was sent"
)


def _sending_fails(name: str, there: str) -> Fails | _Deviates | None:
    if there == "binary":
        return None
    if "NaN" in name:
        return _NAN_SENT_AS_NULL
    return {"FP16": _FP16_NOT_SENT, "BYTES not in UTF-8": _NOT_TEXT}.get(name)


def _answer_fails(name: str, back: str) -> Fails | _Deviates | None:
    if back == "json":
        if "NaN" in name:
            return _NAN_NOT_READ
        return {"FP16": _FP16_NOT_ANSWERED, "BYTES not in UTF-8": _NOT_TEXT_NOT_ANSWERED}.get(name)
    return _NOT_TEXT_NOT_READ if name == "BYTES not in UTF-8" else None


def _is_read(name: str, back: str) -> dict[str, Any] | _Deviates:
    """What the client makes of a tensor that it reads."""
    read = {"datatype": datatype(name), "binary": back == "binary"}
    array = TENSORS[name]
    if name.startswith("FP32 NaN payloads"):
        return _Deviates(read | fingerprint((array.view("u4") | 0x00400000).view("f4")), _MADE_QUIET)
    return read | fingerprint(array)


def _tensors() -> Iterator[tuple[str, str, Any]]:
    """Tell feature, case and outcome of the tours that each tensor makes."""
    for name, there in product(TENSORS, ("binary", "json")):
        unsent = _sending_fails(name, there)
        seen = {"binary": ["x"] if there == "binary" else [], **fingerprint(TENSORS[name])}
        yield feature(name, there), f"{name}: reaches the model, {there}", unsent or seen
        for back in ("binary", "json"):
            outcome = unsent or _answer_fails(name, back) or _is_read(name, back)
            yield feature(name, there, back), f"{name}: comes back, {there} to {back}", outcome


def _nulls() -> dict[str, Any]:
    """What is read where the server writes null."""
    return {
        f"{name}: null is read as NaN": {"data": [None] * 3, **fingerprint(np.full(3, np.nan, dtype=array.dtype))}
        for name, array in NOT_FINITE.items()
    }


_FLOATS = [0.0, 1.0, 2.0, 3.0]


def _by_hand(outcome: Any) -> _Deviates:  # noqa: ANN401 - any JSON value
    return _Deviates(
        outcome,
        "has no method for it; it sends bytes instead of a request unchanged, with the fields given by hand",
    )


def _is_compressed(*, binary: bool) -> _Deviates:
    return _Deviates(
        {"encoding": "gzip", "binary": binary, "same": True},
        "asks for compressed answers in every request (httpx does); "
        "answered plain unless the server was started with `--compress`",
    )


_REST: dict[str, dict[str, Any]] = {
    "binary and JSON mixed": {
        "all plain tensors in one request, mixed both ways": [],
        "several inputs: the sink counts the bytes of all": {"COUNT": [16 * 4 + (4 + 3) + 4]},
    },
    "BF16": {
        "BF16: the client makes none from numpy": _Deviates(
            Fails("InferenceError", "got unexpected datatype UINT16 from numpy array, expected BF16"),
            "cannot make BF16 from numpy; raw bytes with a size given by hand reach the model",
        ),
        "BF16: given as bytes, it reaches the model": fingerprint(np.array([1, 2], dtype=ml_dtypes.bfloat16)),
        "BF16: the client does not read it": _Deviates(
            Fails("InvalidInput", "invalid datatype in the input"),
            "cannot read BF16; sent as requested; let the model answer in another datatype",
        ),
    },
    "empty tensors": {
        "empty tensor: what the client writes": _Deviates(
            {
                "input": {
                    "name": "x",
                    "shape": [0],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": 0},
                    "data": None,
                },
                "header_length": None,
            },
            "writes an empty binary tensor as `data: null` with size 0, and no header length if it is the only tensor; "
            "read as an empty tensor",
        ),
    },
    "large tensors": {
        "tensor of 600 KB: comes back": True,
        "tensor of 64 MiB: comes back": True,
    },
    "binary tensors": {"requests at once: each gets its own answer": [0, 1, 2, 3, 4, 5, 6, 7]},
    "JSON tensors": {
        "input given as a list": {"x": [[1, 2.5], [3, 4]]},
        "input given as a nested list": {"x": [[1, 2.5], [3, 4]]},
        "input given as an array": {"x": _FLOATS},
    },
    "non-finite as JSON": _nulls(),
    "64-bit extremes": {
        "request given as a dict": {"id": "7", "x": [-(2**63), 2**63 - 1]},
        "graph endpoint: the answer as a dict": {
            "model_name": "identity",
            "model_version": "1",
            "id": "7",
            "outputs": [{"name": "x", "shape": [2], "datatype": "INT64", "data": [-(2**63), 2**63 - 1]}],
        },
    },
    "ids and parameters": {
        "request id: echoed": 'größer 🦊 " \\ \n',
        "request id: the one that the client makes up is echoed": True,
        "parameters: reach the model": {"text": "größer", "count": 2**53 + 1, "flag": True, "ratio": 0.5},
    },
    "requested outputs": {
        "requested outputs: a subset, in the order asked for": ["c", "a"],
        "requested output: no wish is JSON": False,
        "requested output: binary_data true is binary": True,
        "requested output: binary_data false is JSON": False,
        "requested output: binary_data_output true counts where outputs are listed": True,
        "requested output: binary_data false wins over binary_data_output": False,
        "requested output: binary_data true wins over binary_data_output": True,
        "model that declares all: computes": {"SCALED": [[0, 2, 4], [6, 8, 10]], "MEAN": [3, 5, 7]},
    },
    "raw binary request": {
        "bytes in the place of a request: raw binary request": _by_hand({"binary": True, "x": _FLOATS})
    },
    "headerless form": {"bytes in the place of a request: headerless form": _by_hand({"x": _FLOATS})},
    "gzip request": {"bytes in the place of a request: gzip": _by_hand({"x": _FLOATS})},
    "deflate request": {"bytes in the place of a request: deflate": _by_hand({"x": _FLOATS})},
    "compressed response": {
        "answer compressed, though the caller did not ask: binary": _is_compressed(binary=True),
        "answer compressed, though the caller did not ask: json": _is_compressed(binary=False),
    },
    "classification": {
        "classes of a batch, with labels": {
            "SCORES": [["8.000000:2:otter", "2.000000:3:owl"], ["9.000000:1:dog", "9.000000:2:otter"]]
        },
    },
    "versions": {
        "model version: the client has no way to ask, but its name's path works": _Deviates(
            "1", "has no argument for a version; `NAME/versions/VERSION` as the name of the model works"
        ),
        "model version: the client drops it from the answer": _Deviates(
            None, "drops the version from the answer; sent nevertheless"
        ),
    },
    "errors": {
        "refused: unknown model": _refused(_NOT_FOUND, "there is no model 'nothing'"),
        "refused: unknown output": _refused(_BAD_REQUEST, "the model has no output 'y' ($.outputs[0].name)"),
        "refused: unknown input": _refused(_BAD_REQUEST, "the model has no input 'x' ($.inputs[0].name)"),
        "refused: missing input": _refused(_BAD_REQUEST, "the model also needs the input 'IMAGE' ($.inputs)"),
        "refused: wrong shape": _refused(_BAD_REQUEST, "the shape is [4], the model takes [-1, 3] ($.inputs[0].shape)"),
        "refused: wrong datatype": _refused(
            _BAD_REQUEST, "the datatype is FP64, the model takes FP32 ($.inputs[0].datatype)"
        ),
        "refused: unknown model, with 100 KB": _refused(_NOT_FOUND, "there is no model 'nothing'"),
        # The server answers at once; the client reads nothing while it sends, so the answer has to wait for it.
        "refused: unknown model, with 64 MiB": _refused(_NOT_FOUND, "there is no model 'nothing'"),
        "refused: the next request works": {"x": _FLOATS},
    },
    "metadata and health": {
        "model name: percent-decoded": "prüfung 1",
        "server: live": True,
        "server: ready": True,
        "model: ready": True,
        "model: unknown, so not ready": False,
        "metadata: the client has no call for it": _Deviates(
            [], "has no method for metadata; it requests only the health"
        ),
    },
}


def _expectations() -> Mapping[str, Expectation]:
    cases = [*_tensors(), *((feature, *case) for feature, cases in _REST.items() for case in cases.items())]
    return {
        case: Expectation(feature, outcome.outcome, outcome.text)
        if isinstance(outcome, _Deviates)
        else Expectation(feature, outcome)
        for feature, case, outcome in cases
    }


EXPECTED = _expectations()
"""By the name of the case."""
