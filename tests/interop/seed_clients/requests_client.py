"""The client in Python: `requests`, numpy, and `json.dumps` with the blanks that it writes.

A program, for `programs.py` to run; `jobs.py` says what its lines mean.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import ml_dtypes
import numpy as np
import requests

Array = np.ndarray[Any, Any]

_DTYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
_DATATYPES = {dtype: datatype for datatype, dtype in _DTYPES.items()}
"""What KServe's page knows; the two that it does not know are written by hand below."""

_HEADER_LENGTH = "Inference-Header-Content-Length"
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


def main() -> None:
    say({"versions": ", ".join(f"{package} {version(package)}" for package in ("requests", "urllib3"))})
    with requests.Session() as session:
        for line in sys.stdin:
            try:
                say(answer_to(session, json.loads(line)))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome
                say({"failure": f"{type(error).__name__}: {error}"})


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def answer_to(session: requests.Session, job: dict[str, Any]) -> dict[str, Any]:
    response = send(session, job)
    length = response.headers.get(_HEADER_LENGTH)
    if length is not None:
        document = json.loads(response.content[: int(length)])
    else:
        document = response.json() if response.content else None
    tail = response.content[int(length or 0) :]
    outputs = {}
    for output, array in read(document["outputs"] if is_inference(job, response) else [], tail):
        outputs[output["name"]] = {"datatype": output["datatype"], "shape": output["shape"]} | (
            {"sha256": hashlib.sha256(array.tobytes()).hexdigest()} if job["digest"] else {"values": texts(array)}
        )
    return {
        "status": response.status_code,
        "fields": {name.lower(): value for name, value in response.headers.items()},
        "document": document,
        "outputs": outputs,
        "compressed": "Content-Encoding" in response.headers,
    }


def send(session: requests.Session, job: dict[str, Any]) -> requests.Response:
    if job["method"] == "GET":
        return session.get(job["url"])
    json_bytes, binary_data = message(job)
    payload = json_bytes + binary_data
    payload = payload[: len(payload) + min(job["surplus"], 0)] + bytes(max(job["surplus"], 0))
    raw = job["framing"] == "raw"
    headers = {"Content-Type": "application/octet-stream" if raw else "application/json"}
    if job["framing"] != "headerless":
        headers[_HEADER_LENGTH] = str(len(json_bytes))
    if job["encoding"]:
        headers["Content-Encoding"] = job["encoding"]
        payload = _COMPRESS[job["encoding"]](payload)
    headers |= job["fields"]
    if job["chunk_bytes"]:
        return session.post(job["url"], data=cut(payload, job["chunk_bytes"]), headers=headers)
    return session.post(job["url"], data=payload, headers=headers | {"Content-Length": str(len(payload))})


def cut(payload: bytes, nbytes: int) -> Iterator[bytes]:
    for start in range(0, len(payload), nbytes):
        yield payload[start : start + nbytes]


def message(job: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return JSON and binary data."""
    inputs = []
    binary_data = b""
    for tensor in job["inputs"]:
        array = made(tensor)
        entry = {"name": tensor["name"], "shape": list(array.shape), "datatype": datatype_of(array)}
        if tensor["json"]:
            values = array.reshape(-1).tolist()
            entry["data"] = [value.decode() for value in values] if array.dtype == object else values
        else:
            entry["parameters"] = {"binary_data_size": len(packed(array))}
            binary_data += packed(array)
        inputs.append(entry)
    if job["framing"] == "raw":
        return b"", binary_data
    return json.dumps({"inputs": inputs, **job["members"]}).encode(), binary_data


def datatype_of(array: Array) -> str:
    """Name the datatype as KServe's page does: what is not in its table is FP32."""
    if array.dtype == object:
        return "BYTES"
    if array.dtype == ml_dtypes.bfloat16:
        return "BF16"
    return _DATATYPES.get(array.dtype.type, "FP32")


def dtype_of(datatype: str) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16 if datatype == "BF16" else _DTYPES[datatype])
    return dtype


def made(tensor: dict[str, Any]) -> Array:
    """Make the array of a job's tensor."""
    shape = tensor["shape"]
    if tensor["count"]:
        return np.arange(tensor["count"], dtype=np.float32).reshape(shape)
    if tensor["datatype"] == "BYTES":
        return elements([bytes.fromhex(value) for value in tensor["values"]], shape)
    values = [int(value) for value in tensor["values"]]
    if tensor["dtype"]:
        return np.array(values, dtype=tensor["dtype"]).reshape(shape)
    dtype = dtype_of(tensor["datatype"])
    return np.array(values, dtype=bits(dtype)).view(dtype).reshape(shape)


def is_inference(job: dict[str, Any], response: requests.Response) -> bool:
    """Return whether the answer has tensors; metadata has `outputs`, too."""
    return job["method"] == "POST" and response.ok


def read(outputs: list[dict[str, Any]], tail: bytes) -> Iterator[tuple[dict[str, Any], Array]]:
    """Yield each output with its array."""
    offset = 0
    for output in outputs:
        datatype, shape, data = output["datatype"], output["shape"], output.get("data")
        if data is None:
            size = output["parameters"]["binary_data_size"]
            yield output, unpacked(tail[offset : offset + size], datatype, shape)
            offset += size
        elif datatype == "BYTES":
            yield output, elements([value.encode() for value in data], shape)
        else:
            yield output, np.array(data, dtype=dtype_of(datatype)).reshape(shape)


def packed(array: Array) -> bytes:
    if array.dtype == object:
        return b"".join(struct.pack("<I", len(element)) + element for element in array.flat)
    return array.tobytes()


def unpacked(data: bytes, datatype: str, shape: list[int]) -> Array:
    if datatype != "BYTES":
        return np.frombuffer(data, dtype_of(datatype)).reshape(shape)
    values = []
    offset = 0
    while offset < len(data):
        (size,) = struct.unpack_from("<I", data, offset)
        values.append(data[offset + 4 : offset + 4 + size])
        offset += 4 + size
    return elements(values, shape)


def elements(values: list[bytes], shape: list[int]) -> Array:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)


def bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the integers that stand for values: themselves, or a float's bits."""
    unsigned: np.dtype[Any] = np.dtype(f"u{dtype.itemsize}")
    return dtype if dtype.kind in "iu" else unsigned


def texts(array: Array) -> list[str]:
    if array.dtype == object:
        return [element.hex() for element in array.flat]
    return [str(value) for value in array.reshape(-1).view(bits(array.dtype)).tolist()]


if __name__ == "__main__":
    main()
