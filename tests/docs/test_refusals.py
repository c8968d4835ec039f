"""The endpoints that the pages and the examples show answer every refusal: a wrong request, and a lack of memory."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import numpy as np
import pytest
from aiohttp import web

from streamcodec import encode_request
from streamcodec.embedding import endpoint
from streamcodec.embedding.endpoint import SHARED_BUDGET
from streamcodec.runtime.memory.sharing import SharedReservation
from streamcodec.wsgi import reading as wsgi_reading
from tests.aiohttp.test_app import serving
from tests.asgi.client import Exchanged, scope_of

_DOCS: Final = Path(__file__).parents[2] / "docs"
_PATH: Final = "/v2/models/double/infer"
_BLOCK: Final = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)

MESSAGE: Final = encode_request({"x": np.arange(6, dtype=np.float32)})
BODY: Final = b"".join(MESSAGE.buffers)


def names_of(page: str) -> dict[str, Any]:
    """Run the blocks of a page that have endpoints; return their names."""
    names: dict[str, Any] = {"__name__": __name__}
    for source in _BLOCK.findall((_DOCS / page).read_text()):
        if "receive_request" in source:
            exec(source, names)  # noqa: S102 - the documentation's
    return names


def ask_fastapi(app: Any, body: bytes) -> int:  # noqa: ANN401 - FastAPI's
    fields = [(name.encode(), value.encode()) for name, value in fields_for(body)]
    exchanged = Exchanged(deque([body]))
    anyio.run(app, scope_of("POST", _PATH, fields), exchanged.receive, exchanged.send)
    return exchanged.status


def ask_flask(app: Any, body: bytes) -> int:  # noqa: ANN401 - Flask's
    status: int = app.test_client().post(_PATH, data=body, headers=fields_for(body)).status_code
    return status


def ask_aiohttp(app: web.Application, body: bytes) -> int:
    async def main() -> int:
        async with serving(app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = "".join(f"{name}: {value}\r\n" for name, value in [("Host", "x"), *fields_for(body)])
            writer.write(f"POST {_PATH} HTTP/1.1\r\n{head}\r\n".encode() + body)
            line = await reader.readline()
            writer.close()
            return int(line.split()[1])

    return anyio.run(main)


def fields_for(body: bytes) -> list[tuple[str, str]]:
    return [*(dict(MESSAGE.headers) | {"Content-Length": str(len(body))}).items()]


ENDPOINTS: Final[dict[str, tuple[str, str, Callable[[Any, bytes], int]]]] = {
    "FastAPI": ("embedding.md", "api", ask_fastapi),
    "Flask": ("embedding.md", "views", ask_flask),
    "aiohttp": ("embedding.md", "own", ask_aiohttp),
    "aiohttp's guide": ("howto/flask-aiohttp.md", "app", ask_aiohttp),
}


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let others have all of the memory, and nobody wait for it."""

    async def wait(_: object, __: float) -> bool:
        return False

    monkeypatch.setattr(endpoint, "look_for_memory", wait)
    monkeypatch.setattr(wsgi_reading, "block_for_memory", lambda _, __: False)
    others = SharedReservation(SHARED_BUDGET)
    others.ask(SHARED_BUDGET.budget.max_bytes)
    yield
    others.release()


@pytest.mark.parametrize("name", ENDPOINTS)
def test_a_wrong_request_is_answered_as_the_page_says(name: str) -> None:
    page, app, ask = ENDPOINTS[name]
    assert ask(names_of(page)[app], BODY) == 200
    assert ask(names_of(page)[app], BODY[:-1]) == 400


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("name", ENDPOINTS)
def test_a_lack_of_memory_is_answered_as_the_page_says(name: str) -> None:
    page, app, ask = ENDPOINTS[name]
    assert ask(names_of(page)[app], BODY) == 503
