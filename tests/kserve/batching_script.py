"""KServe's gRPC client of a batched model, and the models that cannot be batched.

`python -m tests.kserve.batching_script PORT` runs in KServe's environment, and writes what came out as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest, Model

from streamcodec import LocalProtocolError
from streamcodec.kserve import batched
from streamcodec.service import Batch
from tests.kserve.program import Passing, Rows

_BATCH = Batch()


class _Pieces(Rows):
    def predict(self, payload: Any, headers: Any = None) -> Iterator[Any]:  # noqa: ANN401, ARG002 - as KServe's
        yield payload


class _Scalar(Rows):
    def get_output_types(self) -> list[dict[str, Any]]:
        return [{"name": "y", "datatype": "FP32", "shape": []}]


def _with_fields() -> Model:
    model = Rows("fields")
    model.required_response_headers = True
    return model


_REFUSED: dict[str, Callable[[], object]] = {
    "no model": lambda: batched(1, _BATCH),
    "transformer": lambda: batched(Passing("passing"), _BATCH),
    "twice": lambda: batched(batched(Rows("twice"), _BATCH), _BATCH),
    "generator": lambda: batched(_Pieces("pieces"), _BATCH),
    "fields": lambda: batched(_with_fields(), _BATCH),
    "scalar": lambda: batched(_Scalar("scalar"), _BATCH),
    "no batch": lambda: batched(Rows("rows"), 64),  # type: ignore[arg-type]  # what the test is about
}


def _refusal(make: Callable[[], object]) -> str:
    try:
        make()
    except LocalProtocolError as error:
        return str(error)
    return "accepted"


async def _by_grpc(port: int) -> dict[str, Any]:
    """Send two rows each from two clients at once."""
    client = InferenceGRPCClient(url=f"127.0.0.1:{port}")

    async def infer(values: list[float]) -> Any:  # noqa: ANN401 - KServe's
        x = InferInput("x", [len(values), 1], "FP32")
        x.set_data_from_numpy(np.array(values, np.float32)[:, None], binary_data=True)
        return await client.infer(InferRequest("rows", [x]))

    answers = await asyncio.gather(infer([1, 2]), infer([3, 4]))
    return {
        name: [value for answer in answers for value in answer.get_output_by_name(name).as_numpy().tolist()]
        for name in ("y", "rows")
    }


def main(port: int) -> None:
    refused = {case: _refusal(make) for case, make in _REFUSED.items()}
    sys.stdout.write(json.dumps({"grpc": asyncio.run(_by_grpc(port)), "refused": refused}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
