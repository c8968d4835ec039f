"""Armed: a server process in which a client says which of the interpreter's next allocations fails."""

from __future__ import annotations

import sys

import _testcapi
import anyio
import numpy as np

from streamcodec.server import Server, open_listener
from streamcodec.service import InferenceRequest, Model, Service, demo_models
from streamcodec.service.models import Outputs


def arm(request: InferenceRequest) -> Outputs:
    """Let one allocation fail, so many from now on; none if negative."""
    start = int(request.inputs["x"][0])
    outputs = {"y": np.zeros(1, np.float32)}
    _testcapi.remove_mem_hooks()
    if start >= 0:
        _testcapi.set_nomemory(start, start + 1)
    return outputs


async def main() -> None:
    registry = demo_models()
    registry.add(Model(name="arm", predict=arm, is_inline=True))
    listener = open_listener("127.0.0.1", 0)
    server = Server(Service(registry))
    registry.add(
        Model(
            name="reserved",
            predict=lambda _: {"y": np.array([server.reserved_bytes], np.float32)},
            is_inline=True,
        )
    )
    print("listening on http://127.0.0.1:%d" % listener.getsockname()[1], flush=True)
    await server.serve(listener)


if __name__ == "__main__":
    loop = sys.argv[1]
    settings = {"use_uvloop": True} if loop == "uvloop" else {}
    anyio.run(main, backend="trio" if loop == "trio" else "asyncio", backend_options=settings)
