"""KServe's application without a server, whose requests break off in every place, and whose collector is off.

`python -m tests.kserve.faults_script COUNT` runs in KServe's environment, and writes what is left as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from kserve import ModelServer, model_server
from kserve.protocol.rest.server import RESTServer

from streamcodec import EncodedMessage, Tensor, encode_request
from streamcodec.asgi.app import Message
from streamcodec.kserve import install
from streamcodec.kserve.call import KserveIntake
from streamcodec.runtime.models import threads
from streamcodec.server import ServerOptions
from tests.asgi.client import Exchanged, scope_of
from tests.kserve.program import models
from tests.processes import resident

OPTIONS = ServerOptions(read_timeout=0.2, write_timeout=0.2, budget_timeout=0.2, max_memory_bytes=32 << 20)
LARGE = 1 << 20
SETTLING_SECONDS = 0.3
"""In which threads give back what they had, and idle ones end."""


class FaultError(Exception):
    """What a server may raise where it sends to a client that has left."""


def application() -> tuple[Any, KserveIntake]:
    """Make KServe's application, as its server does when it starts."""
    server = ModelServer(enable_grpc=False, enable_latency_logging=False)
    install(server, OPTIONS)
    for model in models():
        server.register_model(model)
    rest = RESTServer("kserve.model_server:app", server.dataplane, server.model_repository_extension, http_port=0)
    rest.create_application()
    app = model_server.app
    (intake,) = [layer.kwargs["intake"] for layer in app.user_middleware if "intake" in layer.kwargs]
    return app, intake


def question(count: int, **parameters: object) -> EncodedMessage:
    array = np.arange(count, dtype=np.float32)[None]
    asked = {"binary_data_output": True, **parameters}
    return encode_request([Tensor(name="x", array=array)], request_id="1", parameters=asked)


async def ask(app: Any, exchanged: Exchanged, message: EncodedMessage, path: str, send: Any) -> None:  # noqa: ANN401 - of ASGI
    fields = [(name.encode(), value.encode()) for name, value in message.headers]
    fields.append((b"x-question", b"1"))
    await app(scope_of("POST", path, fields), exchanged.receive, send)


async def break_off(app: Any, chance: random.Random, bodies: list[tuple[EncodedMessage, bytes]]) -> None:  # noqa: ANN401 - of ASGI
    """Ask for something, and break it off somewhere."""
    message, body = chance.choice(bodies)
    model = chance.choice(["identity", "arrays", "hooked", "sink", "nothing", "late", "dictionary", "alone"])
    cut = chance.choice([0, 10, 200, len(body) // 2, len(body), len(body)])
    pieces = deque(body[start : start + 50_000] for start in range(0, cut, 50_000))
    exchanged = Exchanged(pieces, is_cut=cut < len(body) or chance.random() < 0.3)
    sends = chance.choice([0, 1, 3, 1000])

    async def send(_: Message) -> None:
        nonlocal sends
        await anyio.lowlevel.checkpoint()
        if sends <= 0:
            raise FaultError
        sends -= 1

    with anyio.move_on_after(chance.choice([0.0, 0.0005, 0.003, 1.0, 1.0])):
        with suppress(FaultError, RuntimeError):  # of the server, of the model
            await ask(app, exchanged, message, f"/v2/models/{model}/infer", send)


async def faults(app: Any, intake: KserveIntake, count: int) -> dict[str, int]:  # noqa: ANN401 - of ASGI
    """Break off many requests, and say what is left."""
    chance = random.Random(7)  # noqa: S311 - no secret
    messages = [question(16), question(20_000), question(200_000), question(20_000, fail="broken")]
    bodies = [(message, b"".join(message.buffers)) for message in messages]
    await break_off(app, chance, bodies)
    sockets = open_sockets()
    for _ in range(count // 8):
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(break_off, app, chance, bodies)
    await anyio.sleep(SETTLING_SECONDS)
    gc.collect()
    pool = intake.frontend.service.pool
    assert pool is not None
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "sockets": open_sockets() - sockets,
        "reserved": intake.frontend.budget.reserved,
        "reused_bytes": pool.reused_bytes,
    }


def open_sockets() -> int:
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found += path.readlink().name.startswith("socket:")
    return found


def kept(intake: KserveIntake) -> int:
    """Return the bytes that the pool keeps for the next requests."""
    pool = intake.frontend.service.pool
    assert pool is not None
    return pool.idle_bytes


async def flat(
    app: Any,  # noqa: ANN401 - of ASGI
    intake: KserveIntake,
    model: str,
    rounds: int,
    **parameters: object,
) -> dict[str, int]:
    """Ask for large tensors with the collector off, and say by how much memory grows, without what the pool keeps.

    On a busy machine a request may begin before the thread of the last one has let go of its tensor. Then the pool
    keeps two blocks from then on, on purpose.
    """
    message = question(LARGE, **parameters)
    body = b"".join(message.buffers)
    statuses: set[int] = set()

    async def send(sent: Message) -> None:
        if sent["type"] == "http.response.start":
            statuses.add(sent["status"])

    before = 0
    gc.collect()
    gc.disable()
    for number in range(rounds + 5):
        if number == 5:
            await anyio.sleep(SETTLING_SECONDS)
            before = resident(os.getpid()) - kept(intake)
        pieces = deque(body[start : start + (256 << 10)] for start in range(0, len(body), 256 << 10))
        await ask(app, Exchanged(pieces), message, f"/v2/models/{model}/infer", send)
    await anyio.sleep(SETTLING_SECONDS)
    found = max(0, resident(os.getpid()) - kept(intake) - before)
    gc.enable()
    (status,) = statuses
    return {"status": status, "bytes": found}


async def main(count: int) -> None:
    threads.IDLE_SECONDS = SETTLING_SECONDS / 10
    app, intake = application()
    result = {
        "left": await faults(app, intake, count),
        "identity": await flat(app, intake, "identity", 100),
        "arrays": await flat(app, intake, "arrays", 100),
        "failing": await flat(app, intake, "identity", 100, fail="invalid"),
        "batched": await flat(app, intake, "alone", 100),
        "batched, failing": await flat(app, intake, "alone", 100, fail="invalid"),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]))
