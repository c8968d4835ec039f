"""Jobs: what tests tell the programs to do, and what these say came of it; each is one JSON object.

A program first says `{"versions": "name x.y.z, name x.y.z"}`. Then it does jobs. A job has these members:

- `method` (`GET` or `POST`) and `url`;
- `inputs`: tensors with `name`, `datatype`, `shape`, `values`; `json` is true for one that travels as JSON. `count`
  stands for the values 0, 1, 2, ... of FP32. `dtype` is numpy's name of a type for Python alone;
- `members`: what else belongs into the JSON of the request;
- `framing`: `headerless`, `length` (with Inference-Header-Content-Length) or `raw` (no JSON, and that length is 0);
- `encoding`: `gzip`, `deflate`, or empty; `fields`: more fields of the head;
- `chunk_bytes`: if not 0, the body goes in chunks, its length unsaid;
- `surplus`: how many bytes to append to the body, or to cut off its end if negative;
- `digest`: say of the outputs' bytes only their SHA-256.

The answer has `status`, `fields` (names in lower case), `document` (the JSON), `outputs` by name with `datatype`,
`shape` and `values` or `sha256`, and `compressed`; or it has `failure`, where the client could not do it.

Values are texts, since a number of JSON is not for all languages the same: integers in decimal, those of BOOL 0 and 1;
floats as the integer that their bits are; elements of BYTES in hexadecimal. Each client makes the tensors of its
language from them, and back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote

import ml_dtypes
import numpy as np

from tests.interop.tensors import BINARY_ONLY, BYTES, PLAIN, Array, elements, fingerprint

BFLOAT16 = np.array([0x8000, 0x0001, 0x3EAB, 0x7F7F, 0xFF80, 0x7F81], dtype=np.uint16).view(ml_dtypes.bfloat16)
WITHOUT_JSON = BINARY_ONLY | {"BF16": BFLOAT16}
"""Tensors that have no form in JSON."""

_DATATYPES = {datatype: array.dtype for datatype, array in (PLAIN | WITHOUT_JSON).items() if " " not in datatype}
_NAMES = {dtype: datatype for datatype, dtype in _DATATYPES.items()}


class ClientError(Exception):
    """The client could not send the request, or not read the answer; the text is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a client has read."""

    status: int
    fields: dict[str, str]
    """Those of the head that it can see, with names in lower case."""
    document: Any
    """The JSON of the answer; None if it was empty."""
    outputs: dict[str, Array]
    digests: dict[str, str]
    """SHA-256 of the outputs, where only that was wanted."""
    compressed: bool

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Self:
        """Understand what a program says.

        Raises:
            ClientError: it says that it could not do it.
        """
        if "failure" in said:
            raise ClientError(said["failure"])
        outputs = said["outputs"].items()
        return cls(
            status=said["status"],
            fields=said["fields"],
            document=said["document"],
            outputs={name: _array(**output) for name, output in outputs if "values" in output},
            digests={name: output["sha256"] for name, output in outputs if "sha256" in output},
            compressed=said["compressed"],
        )

    @property
    def error(self) -> str:
        """What the server says was wrong."""
        text: str = self.document["error"]
        return text

    @property
    def seen(self) -> dict[str, Any]:
        """What the model `seen` says that it was given."""
        report: dict[str, Any] = json.loads(self.outputs["SEEN"][0])
        return report

    def is_binary(self, name: str) -> bool:
        """Return whether an output came as bytes."""
        (output,) = (output for output in self.document["outputs"] if output["name"] == name)
        return "binary_data_size" in output.get("parameters", {})


class Caller:
    """One of the clients, with a server to call."""

    def __init__(self, ask: Callable[[dict[str, Any]], dict[str, Any]], address: str) -> None:
        """Take what does a job, and HOST:PORT."""
        self._ask = ask
        self._url = f"http://{address}"

    def get(self, path: str) -> Answer:
        """Ask for metadata or health."""
        return Answer.of(self._ask(_job("GET", self._url + path)))

    def infer(
        self,
        inputs: Mapping[str, Array],
        *,
        model: str = "identity",
        as_json: Collection[str] = (),
        binary_output: bool | None = None,
        members: Mapping[str, Any] | None = None,
        **job: object,
    ) -> Answer:
        """Send tensors to a model.

        Args:
            inputs: the tensors by name.
            model: its name, and its version as the path has it.
            as_json: names of the tensors that travel as JSON.
            binary_output: what to ask of all outputs; None to ask for nothing, which gives JSON.
            members: more of the request's JSON.
            job: other members of the job.
        """
        sent = [as_input(name, array, as_json=name in as_json) for name, array in inputs.items()]
        return self.send(sent, model=model, members=_asking(members, binary_output), **job)

    def send(self, inputs: list[dict[str, Any]], *, model: str = "identity", **job: object) -> Answer:
        """Send tensors in the form that a job has them."""
        return Answer.of(self._ask(_job("POST", f"{self._url}/v2/models/{quote(model)}/infer", inputs=inputs, **job)))


def as_input(name: str, array: Array, *, as_json: bool = False) -> dict[str, Any]:
    """Return a tensor as a job has it."""
    return {
        "name": name,
        "datatype": _NAMES[array.dtype],
        "shape": list(array.shape),
        "values": _texts(array),
        "count": 0,
        "dtype": None,
        "json": as_json,
    }


def ramp(count: int) -> dict[str, Any]:
    """Return the tensor `x` of the values 0, 1, 2, ... as a job has it."""
    empty = np.empty(0, dtype=np.float32)
    return as_input("x", empty) | {"shape": [count], "count": count}


def floats(count: int = 4) -> Array:
    return np.arange(count, dtype=np.float32)


def assert_same(outputs: dict[str, Array], arrays: dict[str, Array]) -> None:
    assert {name: fingerprint(array) for name, array in outputs.items()} == {
        name: fingerprint(array) for name, array in arrays.items()
    }


def _job(method: str, url: str, **members: object) -> dict[str, Any]:
    job = {
        "method": method,
        "url": url,
        "inputs": [],
        "members": {},
        "framing": "headerless",
        "fields": {},
        "encoding": "",
        "chunk_bytes": 0,
        "surplus": 0,
        "digest": False,
    }
    assert not members.keys() - job.keys(), "a job has no such members"
    return job | members


def _asking(members: Mapping[str, Any] | None, binary_output: bool | None) -> dict[str, Any]:
    asked = {} if binary_output is None else {"parameters": {"binary_data_output": binary_output}}
    return asked | dict(members or {})


def _bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind in "iu" else np.dtype(f"u{dtype.itemsize}")


def _texts(array: Array) -> list[str]:
    if array.dtype == BYTES:
        return [element.hex() for element in array.flat]
    return [str(value) for value in array.reshape(-1).view(_bits(array.dtype)).tolist()]


def _array(*, datatype: str, shape: list[int], values: list[str]) -> Array:
    if datatype == "BYTES":
        return elements(*map(bytes.fromhex, values), shape=tuple(shape))
    dtype = _DATATYPES[datatype]
    bits = np.array([int(value) for value in values], dtype=_bits(dtype))
    array: Array = bits.view(dtype).reshape(shape)
    return array
