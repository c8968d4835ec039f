"""What KServe's own client, unmodified, gets from our servers: one line of JSON for each case.

Runs in an environment that has KServe but neither streamcodec nor pytest, in the root of the checkout, as
`python -m tests.interop.kserve.client_script http://HOST:PORT http://HOST:PORT`; the second is the server that
compresses. It judges nothing: it says what happened, and `expectations.py` knows what should have.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import zlib
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from itertools import product
from typing import Any

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

from tests.interop.kserve.caller import (
    CASES,
    CASES_COMPRESSING,
    FORMS,
    HEADER_LENGTH,
    Caller,
    as_input,
    case,
    floats,
    is_binary,
    outputs_of,
)
from tests.interop.tensors import TENSORS, datatype, elements, fingerprint

_TIMEOUT = 60.0


async def comes_back(caller: Caller, name: str, *, there: bool, back: bool) -> dict[str, Any]:
    array = TENSORS[name]
    response = await caller.infer(
        "identity",
        [as_input("x", array, datatype(name), binary=there)],
        parameters={"binary_data_output": back},
    )
    (output,) = response.outputs
    return {"datatype": output.datatype, "binary": is_binary(caller), **fingerprint(output.as_numpy())}


async def reaches_the_model(caller: Caller, name: str, *, binary: bool) -> dict[str, Any]:
    seen = await caller.seen([as_input("x", TENSORS[name], datatype(name), binary=binary)])
    return {"binary": seen["binary"], **seen["inputs"]["x"]}


for _name, (_form, _binary) in product(TENSORS, FORMS.items()):
    CASES[f"{_name}: reaches the model, {_form}"] = partial(reaches_the_model, name=_name, binary=_binary)
    for _back_form, _back in FORMS.items():
        CASES[f"{_name}: comes back, {_form} to {_back_form}"] = partial(
            comes_back, name=_name, there=_binary, back=_back
        )


@case("all plain tensors in one request, mixed both ways")
async def mixed(caller: Caller) -> list[str]:
    """Name those that do not come back as sent."""
    names = [name for name in TENSORS if "NaN" not in name and "not in UTF-8" not in name]
    binary = {name: index % 2 == 0 or datatype(name) == "FP16" for index, name in enumerate(names)}
    wanted = {name: index % 3 == 0 or datatype(name) == "FP16" for index, name in enumerate(names)}
    response = await caller.infer(
        "identity",
        [as_input(name, TENSORS[name], datatype(name), binary=binary[name]) for name in names],
        request_outputs=[RequestedOutput(name, {"binary_data": wanted[name]}) for name in names],
    )
    arrays = {output.name: output.as_numpy() for output in response.outputs}
    return [name for name in names if fingerprint(arrays[name]) != fingerprint(TENSORS[name])]


@case("BF16: the client makes none from numpy")
async def bfloat16_from_numpy(_: Caller) -> None:
    as_input("x", np.array([1], dtype=np.uint16), "BF16")


def _bfloat16() -> dict[str, Any]:
    """BF16 as the client lets it pass: bytes that it does not look at, with the size said by hand."""
    return {
        "inputs": [InferInput("x", [2], "BF16", parameters={"binary_data_size": 4})],
        "raw_inputs": [b"\x80\x3f\x00\x40"],
    }


@case("BF16: given as bytes, it reaches the model")
async def bfloat16_as_bytes(caller: Caller) -> dict[str, Any]:
    fingerprints: dict[str, Any] = (await caller.seen(**_bfloat16()))["inputs"]["x"]
    return fingerprints


@case("BF16: the client does not read it")
async def bfloat16_back(caller: Caller) -> dict[str, Any]:
    return outputs_of(await caller.infer("identity", **_bfloat16(), parameters={"binary_data_output": True}))


@case("tensor of 600 KB: comes back")
async def image(caller: Caller) -> bool:
    array = floats(150_528).reshape(1, 224, 224, 3)
    response = await caller.identity({"x": array}, parameters={"binary_data_output": True})
    return fingerprint(response.outputs[0].as_numpy()) == fingerprint(array)


@case("tensor of 64 MiB: comes back")
async def large(caller: Caller) -> bool:
    """The client makes a list of it, which takes seconds."""
    array = floats(1 << 24)
    response = await caller.identity({"x": array}, parameters={"binary_data_output": True})
    return fingerprint(response.outputs[0].as_numpy()) == fingerprint(array)


@case("empty tensor: what the client writes")
async def empty(_: Caller) -> dict[str, Any]:
    document, header_length = InferRequest("identity", [as_input("x", floats(0), "FP32")]).to_rest()
    return {"input": document["inputs"][0], "header_length": header_length}


@case("several inputs: the sink counts the bytes of all")
async def several(caller: Caller) -> dict[str, Any]:
    inputs = [as_input("a", floats(16), "FP32"), as_input("b", elements(b"abc", b""), "BYTES", binary=False)]
    return outputs_of(await caller.infer("sink", inputs))


@case("requests at once: each gets its own answer")
async def at_once(caller: Caller) -> list[Any]:
    sent = [np.full(3, index, dtype=np.float32) for index in range(8)]
    responses = await asyncio.gather(*(caller.identity({"x": array}) for array in sent))
    return [outputs_of(response)["x"][0] for response in responses]


@case("input given as a list")
async def plain_list(caller: Caller) -> dict[str, Any]:
    return outputs_of(await caller.infer("identity", [InferInput("x", [2, 2], "FP32", data=[1, 2.5, 3, 4])]))


@case("input given as a nested list")
async def nested_list(caller: Caller) -> dict[str, Any]:
    return outputs_of(await caller.infer("identity", [InferInput("x", [2, 2], "FP32", data=[[1, 2.5], [3, 4]])]))


@case("input given as an array")
async def plain_array(caller: Caller) -> dict[str, Any]:
    return outputs_of(await caller.infer("identity", [InferInput("x", [4], "FP32", data=floats())]))


_DOCUMENT = {"id": "7", "inputs": [{"name": "x", "shape": [2], "datatype": "INT64", "data": [-(2**63), 2**63 - 1]}]}


@case("request given as a dict")
async def plain_dict(caller: Caller) -> dict[str, Any]:
    response = await caller.client.infer(caller.url, _DOCUMENT, model_name="identity")
    return {"id": response.id, **outputs_of(response)}


@case("graph endpoint: the answer as a dict")
async def graph(caller: Caller) -> Any:  # noqa: ANN401 - any JSON value
    target = f"{caller.url}/v2/models/identity/infer"
    return await caller.client.infer(target, _DOCUMENT, is_graph_endpoint=True)


@case("request id: echoed")
async def request_id(caller: Caller) -> Any:  # noqa: ANN401 - any JSON value
    return (await caller.identity({"x": floats()}, request_id='größer 🦊 " \\ \n')).id


@case("request id: the one that the client makes up is echoed")
async def made_up_id(caller: Caller) -> bool:
    response = await caller.infer("seen", [as_input("x", floats(), "FP32")])
    seen = json.loads(response.outputs[0].as_numpy()[0])
    return bool(response.id) and response.id == seen["id"]


@case("parameters: reach the model")
async def parameters(caller: Caller) -> Any:  # noqa: ANN401 - any JSON value
    given = {"text": "größer", "count": 2**53 + 1, "flag": True, "ratio": 0.5}
    return (await caller.seen([as_input("x", floats(), "FP32")], parameters=given))["parameters"]


@case("requested outputs: a subset, in the order asked for")
async def subset(caller: Caller) -> list[str]:
    wanted = [RequestedOutput("c"), RequestedOutput("a")]
    response = await caller.identity(dict.fromkeys("abcd", floats()), request_outputs=wanted)
    return [output.name for output in response.outputs]


async def _output_form(caller: Caller, asked: dict[str, bool] | None, all_outputs: dict[str, bool] | None) -> bool:
    wanted = [RequestedOutput("x", asked)]
    response = await caller.identity({"x": floats()}, request_outputs=wanted, parameters=all_outputs)
    assert outputs_of(response) == {"x": [0, 1, 2, 3]}
    return is_binary(caller)


for _text, _asked, _all in (
    ("no wish is JSON", None, None),
    ("binary_data true is binary", {"binary_data": True}, None),
    ("binary_data false is JSON", {"binary_data": False}, None),
    ("binary_data_output true counts where outputs are listed", None, {"binary_data_output": True}),
    ("binary_data false wins over binary_data_output", {"binary_data": False}, {"binary_data_output": True}),
    ("binary_data true wins over binary_data_output", {"binary_data": True}, {"binary_data_output": False}),
):
    CASES[f"requested output: {_text}"] = partial(_output_form, asked=_asked, all_outputs=_all)


@case("model that declares all: computes")
async def declared(caller: Caller) -> dict[str, Any]:
    inputs = [as_input("GAIN", floats(3)[2:], "FP32"), as_input("IMAGE", floats(6).reshape(2, 3), "FP32")]
    return outputs_of(await caller.infer("calibrate", inputs))


@case("model name: percent-decoded")
async def model_name(caller: Caller) -> Any:  # noqa: ANN401 - any JSON value
    return (await caller.infer("prüfung 1", [as_input("x", floats(), "FP32")])).model_name


@case("model version: the client has no way to ask, but its name's path works")
async def model_version(caller: Caller) -> Any:  # noqa: ANN401 - any JSON value
    with_version = await caller.infer("seen/versions/1", [as_input("x", floats(), "FP32")])
    return json.loads(with_version.outputs[0].as_numpy()[0])["version"]


@case("model version: the client drops it from the answer")
async def dropped_version(caller: Caller) -> Any:  # noqa: ANN401 - any JSON value
    return (await caller.identity({"x": floats()})).model_version


@case("classes of a batch, with labels")
async def classes(caller: Caller) -> dict[str, Any]:
    scores = np.array([[0.5, -1, 8, 2], [3, 9, 9, 0]], dtype=np.float32)
    wanted = [RequestedOutput("SCORES", {"classification": 2})]
    return outputs_of(await caller.infer("animals", [as_input("SCORES", scores, "FP32")], request_outputs=wanted))


_OPAQUE = "application/octet-stream"


@case("bytes in the place of a request: raw binary request")
async def raw(caller: Caller) -> dict[str, Any]:
    fields = {HEADER_LENGTH: "0", "Content-Type": _OPAQUE}
    response = await caller.infer_bytes("single", floats().tobytes(), fields)
    return {"binary": is_binary(caller), **outputs_of(response)}


@case("bytes in the place of a request: headerless form")
async def headerless(caller: Caller) -> dict[str, Any]:
    body, _ = _body()
    return outputs_of(await caller.infer_bytes("identity", body, {"Content-Type": _OPAQUE}))


async def _compressed(caller: Caller, compress: Callable[[bytes], bytes], encoding: str) -> dict[str, Any]:
    body, header_length = _body()
    fields = {HEADER_LENGTH: header_length, "Content-Type": _OPAQUE, "Content-Encoding": encoding}
    return outputs_of(await caller.infer_bytes("identity", compress(body), fields))


for _encoding, _compress in (("gzip", gzip.compress), ("deflate", zlib.compress)):
    CASES[f"bytes in the place of a request: {_encoding}"] = partial(
        _compressed, compress=_compress, encoding=_encoding
    )


def _body() -> tuple[bytes, str]:
    """Return what the client would send, and the length of the header."""
    body, header_length = InferRequest("identity", [as_input("x", floats(), "FP32")]).to_rest()
    return body, str(header_length)


async def _compressed_answer(caller: Caller, *, back: bool) -> dict[str, Any]:
    array = floats(5000)
    response = await caller.identity({"x": array}, parameters={"binary_data_output": back})
    return {
        "encoding": caller.headers["content-encoding"],
        "binary": is_binary(caller),
        "same": fingerprint(response.outputs[0].as_numpy()) == fingerprint(array),
    }


for _form, _back in FORMS.items():
    CASES_COMPRESSING[f"answer compressed, though the caller did not ask: {_form}"] = partial(
        _compressed_answer, back=_back
    )


async def _null(caller: Caller, name: str) -> dict[str, Any]:
    response = await caller.infer("identity", [as_input("x", TENSORS[name], datatype(name))])
    (output,) = response.outputs
    return {"data": output.data, **fingerprint(output.as_numpy())}


for _name in ("FP32 infinities and NaN", "FP64 infinities and NaN"):
    CASES_COMPRESSING[f"{_name}: null is read as NaN"] = partial(_null, name=_name)


async def _wrong(
    caller: Caller, model: str, make: Callable[[], InferInput], wanted: list[RequestedOutput] | None
) -> None:
    await caller.infer(model, [make()], request_outputs=wanted)


def _zeros(nbytes: int) -> InferInput:
    return as_input("x", np.zeros(nbytes, dtype=np.uint8), "UINT8")


_X = partial(as_input, "x", floats(), "FP32")
for _text, _model, _input, _wanted in (
    ("unknown model", "nothing", _X, None),
    ("unknown output", "identity", _X, [RequestedOutput("y")]),
    ("unknown input", "calibrate", _X, None),
    ("missing input", "calibrate", partial(as_input, "GAIN", floats(1), "FP32"), None),
    ("wrong shape", "calibrate", partial(as_input, "IMAGE", floats(), "FP32"), None),
    ("wrong datatype", "calibrate", partial(as_input, "GAIN", np.ones(1), "FP64"), None),
    ("unknown model, with 100 KB", "nothing", partial(_zeros, 100_000), None),
    ("unknown model, with 64 MiB", "nothing", partial(_zeros, 1 << 26), None),
):
    CASES[f"refused: {_text}"] = partial(_wrong, model=_model, make=_input, wanted=_wanted)


@case("refused: the next request works")
async def after_refusals(caller: Caller) -> dict[str, Any]:
    return outputs_of(await caller.identity({"x": floats()}))


@case("server: live")
async def server_live(caller: Caller) -> Any:  # noqa: ANN401 - any JSON value
    return await caller.client.is_server_live(caller.url)


@case("server: ready")
async def server_ready(caller: Caller) -> Any:  # noqa: ANN401 - any JSON value
    return await caller.client.is_server_ready(caller.url)


@case("model: ready")
async def model_ready(caller: Caller) -> Any:  # noqa: ANN401 - any JSON value
    return await caller.client.is_model_ready(caller.url, "identity")


@case("model: unknown, so not ready")
async def model_not_ready(caller: Caller) -> Any:  # noqa: ANN401 - any JSON value
    return await caller.client.is_model_ready(caller.url, "nothing")


@case("metadata: the client has no call for it")
async def metadata(caller: Caller) -> list[str]:
    return [name for name in dir(caller.client) if "metadata" in name]


async def main(url: str, compressing_url: str) -> None:
    say({"versions": ", ".join(f"{package} {version(package)}" for package in ("kserve", "httpx"))})
    config = RESTConfig(protocol="v2", retries=0, timeout=_TIMEOUT)
    async with InferenceRESTClient(config) as client:
        todo = [(url, *item) for item in CASES.items()]
        todo += [(compressing_url, *item) for item in CASES_COMPRESSING.items()]
        for address, name, run in todo:
            caller = Caller(client, address)
            try:
                say({"case": name, "result": await run(caller)})
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome
                say({"case": name, "error": f"{type(error).__name__}: {error}"})


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
