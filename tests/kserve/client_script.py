"""KServe's clients, REST and gRPC, against a server: `python -m tests.kserve.client_script URL GRPC_PORT CLIENT`.

CLIENT is `theirs`, or `ours` for our REST client in the place of KServe's. Runs in KServe's environment, and writes a
line of JSON for each case.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

from streamcodec.kserve import InferenceRESTClient as Ours
from streamcodec.kserve import arrays_of, infer_request
from tests.interop.tensors import BINARY_ONLY, PLAIN, datatype, fingerprint

CASES: dict[str, Callable[[InferenceRESTClient, str], Awaitable[Any]]] = {}


def their_request(name: str, *, there: bool = True, back: bool = True) -> InferRequest:
    """Make a request of one tensor with KServe's classes alone."""
    array = (PLAIN | BINARY_ONLY)[name]
    tensor = InferInput("x", list(array.shape), datatype(name))
    tensor.set_data_from_numpy(array, binary_data=there)
    wanted = [RequestedOutput("x", {"binary_data": back})]
    return InferRequest("identity", [tensor], request_id="7", request_outputs=wanted)


async def tour(rest: InferenceRESTClient, url: str, request: InferRequest) -> Any:  # noqa: ANN401 - any JSON value
    response = await rest.infer(url, request, model_name=request.model_name)
    (output,) = response.outputs
    return [response.id, response.model_name, output.name, output.datatype, fingerprint(output.as_numpy())]


def case(name: str, run: Callable[[InferenceRESTClient, str], Awaitable[Any]]) -> None:
    CASES[name] = run


for _name in [*PLAIN, "FP16"]:
    for _back in (True, False):
        case(
            f"{_name}, back {'binary' if _back else 'json'}",
            lambda rest, url, name=_name, back=_back: tour(rest, url, their_request(name, back=back)),  # type: ignore[misc]  # defaults of a lambda
        )


async def ours(rest: InferenceRESTClient, url: str) -> Any:  # noqa: ANN401 - any JSON value
    """Send what our function makes of arrays, with KServe's client."""
    arrays = {name: PLAIN[name] for name in ("FP32", "BYTES", "BOOL of rank 8")}
    response = await rest.infer(url, infer_request("arrays", arrays, request_id="9"), model_name="arrays")
    return [response.id, response.parameters, {o.name: fingerprint(o.as_numpy()) for o in response.outputs}]


async def lists(rest: InferenceRESTClient, url: str) -> Any:  # noqa: ANN401 - any JSON value
    """Send lists, some of them nested, and one input in binary; ask for JSON."""
    nested = InferInput("a", [2, 1], "INT64", data=[[1], [2]], parameters={"unit": "cm"})
    flat = InferInput("b", [2], "FP32", data=[0.5, -2.0])
    raw = InferInput("c", [2], "INT8")
    raw.set_data_from_numpy(np.array([1, -1], np.int8), binary_data=True)
    answers = []
    for inputs in ([nested, flat], [nested, flat, raw]):
        response = await rest.infer(url, InferRequest("identity", inputs, request_id="1"), model_name="identity")
        answers += [(output.name, output.datatype, output.shape, str(output.data)) for output in response.outputs]
    return answers


async def dictionary(rest: InferenceRESTClient, url: str) -> Any:  # noqa: ANN401 - any JSON value
    inputs = [{"name": "x", "shape": [1], "datatype": "INT64", "data": [7]}]
    response = await rest.infer(url, {"id": "d", "inputs": inputs}, model_name="identity")
    return [response.id, response.outputs[0].data]


async def unknown(rest: InferenceRESTClient, url: str) -> Any:  # noqa: ANN401 - any JSON value
    return await rest.infer(url, their_request("FP32"), model_name="nothing")


async def broken(rest: InferenceRESTClient, url: str) -> Any:  # noqa: ANN401 - any JSON value
    request = their_request("FP32")
    request.parameters = {"fail": "broken"}
    return await rest.infer(url, request, model_name="identity")


async def nameless(rest: InferenceRESTClient, url: str) -> Any:  # noqa: ANN401 - any JSON value
    return await rest.infer(url, their_request("FP32"))


async def no_scheme(rest: InferenceRESTClient, _: str) -> Any:  # noqa: ANN401 - any JSON value
    return await rest.infer("127.0.0.1", their_request("FP32"), model_name="identity")


async def nobody(rest: InferenceRESTClient, _: str) -> Any:  # noqa: ANN401 - any JSON value
    return await rest.infer("http://127.0.0.1:1", their_request("FP32"), model_name="identity")


async def half(rest: InferenceRESTClient, url: str) -> Any:  # noqa: ANN401 - any JSON value
    tensor = InferInput("x", [1], "FP16", data=[1.0])
    return await rest.infer(url, InferRequest("identity", [tensor]), model_name="identity")


for _case in (lists, dictionary, unknown, nameless, no_scheme, nobody, half):
    case(_case.__name__, _case)


async def health(rest: InferenceRESTClient, url: str) -> list[bool]:
    return [await rest.is_server_live(url), await rest.is_server_ready(url), await rest.is_model_ready(url, "identity")]


case("arrays", ours)
case("health", health)
case("broken", broken)  # the last one: after a status of 500 KServe's server hangs up


async def over_grpc(port: str) -> Any:  # noqa: ANN401 - any JSON value
    async with InferenceGRPCClient(f"127.0.0.1:{port}") as client:
        request = infer_request("arrays", {name: PLAIN[name] for name in ("FP32", "BYTES")})
        response = await client.infer(request)
        return {name: fingerprint(array) for name, array in arrays_of(response).items()}


async def main(url: str, grpc_port: str, whose: str) -> None:
    client = Ours if whose == "ours" else InferenceRESTClient
    async with client(RESTConfig(protocol="v2", retries=0, timeout=30)) as rest:
        for name, run in CASES.items():
            try:
                say(name, await run(rest, url))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome
                say(name, f"{type(error).__name__}: {error}")
    say("gRPC", await over_grpc(grpc_port))


def say(name: str, result: Any) -> None:  # noqa: ANN401 - any JSON value
    sys.stdout.write(json.dumps({"case": name, "result": result}) + "\n")


if __name__ == "__main__":
    np.seterr(all="ignore")
    asyncio.run(main(*sys.argv[1:]))
