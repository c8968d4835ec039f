"""Fronts: each way in, as a server that can be made fresh at any time."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from streamcodec.client import Timeout
from streamcodec.service import Service
from tests.differential.answers import guarded_requests, names, scripted_server
from tests.differential.apps import PREFIX, AsgiHost, WsgiHost, aiohttp_app, forget
from tests.differential.client import Address, Connection, ask_alone
from tests.differential.models import Events, Recorder, models, options
from tests.differential.requests import BLOCKING, LENGTH, WAYS, Request, families, requests
from tests.embedding.servers import SERVERS, embedded
from tests.embedding.threads import in_aiohttp, in_hypercorn, in_uvicorn, in_waitress, in_werkzeug
from tests.guard.serving import guarding
from tests.interop.servers.processes import running
from tests.kserve.conftest import INTERPRETER
from tests.server.programs import server_here

_VARIABLES: Final = {"GUNICORN_CMD_ARGS": "--keep-alive 300"}
_PATIENT: Final = Timeout(connect=20.0, read=20.0, write=20.0, pool=20.0)

_USUAL: Final = families().map(requests)
_BLOCKING: Final = families(BLOCKING).map(requests)


class Front:
    """A way in.

    Attributes:
        name: of the front, in `FRONTS`.
        address: of the server.
        families: what is asked: of each history, something else.
        pipelines: whether a client may send a request before it has its last answer.
        interrupts: whether a client that stops is answered; else only when it goes on.
        tells_ports: whether an observer is told the port of a client.
        is_observed: whether there are observers.
        stops: whether a client may stop in a request.
    """

    is_ours = False
    """Whether the connections are ours, too."""

    def __init__(
        self,
        name: str,
        address: Address,
        *,
        families: st.SearchStrategy[st.SearchStrategy[Request]] = _USUAL,
        pipelines: bool = True,
        interrupts: bool = True,
        tells_ports: bool = True,
        is_observed: bool = True,
        stops: Callable[[Request], bool] = lambda _: True,
    ) -> None:
        self.name = name
        self.address = address
        self.families = families
        self.pipelines = pipelines
        self.interrupts = interrupts
        self.is_observed = is_observed
        self.stops = stops
        self._hosts = None if tells_ports else count(1)

    def connect(self) -> Connection:
        """Return a new connection, whose name nobody else has had."""
        if self._hosts is None:
            return Connection(self.address)
        number = next(self._hosts)
        return Connection(self.address, f"127.1.{number >> 8 & 255}.{number & 255}")

    def refresh(self, *, is_hasty: bool) -> None:
        """Put a fresh server in the place of the one before."""
        self._do("hasty" if is_hasty else "fresh")

    def records(self) -> list[tuple[str, Events]]:
        """Return what the observer of this server was told: clients, and events."""
        found: list[tuple[str, Events]] = json.loads(self._do("records"))
        return found

    def _do(self, order: str) -> bytes:
        answer = ask_alone(self.address, f"GET {PREFIX}{order} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert answer.status == 200, answer
        return answer.body


Serve = Callable[[Recorder, bool], AbstractContextManager[Address]]


class OwnFront(Front):
    """A server of ours, which is started anew."""

    is_ours = True

    def __init__(self, name: str, stack: ExitStack, serve: Serve, **traits: Any) -> None:  # noqa: ANN401 - those of `Front`
        super().__init__(name, ("", 0), **traits)
        self._serve = serve
        self._stack = stack.enter_context(ExitStack())
        self._recorder = Recorder()

    def refresh(self, *, is_hasty: bool) -> None:
        """Stop the server, and start another one."""
        self._stack.close()
        forget()
        self._recorder = Recorder()
        self.address = self._stack.enter_context(self._serve(self._recorder, is_hasty))

    def records(self) -> list[tuple[str, Events]]:
        """Return what the observer was told, in the form in which others tell it."""
        found: list[tuple[str, Events]] = json.loads(json.dumps(self._recorder.over))
        return found


@contextmanager
def _bundled(backend: str, recorder: Recorder, is_hasty: bool) -> Iterator[Address]:
    service = Service(models(has_loop=True))
    with server_here(service, options(is_hasty=is_hasty), backend=backend, observer=recorder) as (_, address):
        yield address


@contextmanager
def _guarded(upstream: str | None, recorder: Recorder, is_hasty: bool) -> Iterator[Address]:
    """Run a guard; without a URL, with a server of ours behind it, which is patient."""
    with ExitStack() as stack:
        if upstream is None:
            host, port = stack.enter_context(_bundled("asyncio", Recorder(), False))
            upstream = f"http://{host}:{port}"
        guard = guarding(upstream, options=options(is_hasty=is_hasty), timeout=_PATIENT, observer=recorder)
        yield stack.enter_context(guard)


@contextmanager
def _process(name: str) -> Iterator[Address]:
    command, kind = SERVERS[name]
    with (
        tempfile.TemporaryDirectory() as folder,
        embedded(command, f"tests.differential.apps:{kind}_app", Path(folder, "log"), _VARIABLES) as embedding,
    ):
        yield embedding.address


@contextmanager
def _kserve() -> Iterator[Address]:
    python, program = os.environ[INTERPRETER], "tests.differential.kserve_program"
    with tempfile.TemporaryDirectory() as folder, running(python, program, Path(folder)) as peer:
        host, _, port = peer.url.removeprefix("http://").partition(":")
        yield host, int(port)


_HOSTED: Final[dict[str, Callable[[], AbstractContextManager[Address]]]] = {
    "uvicorn h11": lambda: in_uvicorn(AsgiHost(), "h11"),
    "uvicorn httptools": lambda: in_uvicorn(AsgiHost(), "httptools"),
    "hypercorn": lambda: in_hypercorn(AsgiHost(), "asyncio"),
    "hypercorn trio": lambda: in_hypercorn(AsgiHost(), "trio"),
    "aiohttp": lambda: in_aiohttp(aiohttp_app(auto_decompress=True)),
    "aiohttp plain": lambda: in_aiohttp(aiohttp_app(auto_decompress=False), auto_decompress=False),
    "waitress": lambda: in_waitress(WsgiHost()),
    "werkzeug": lambda: in_werkzeug(WsgiHost()),
    "granian ASGI": partial(_process, "granian ASGI"),
    "gunicorn gthread": partial(_process, "gunicorn gthread"),
    "granian": partial(_process, "granian"),
    **({"kserve": _kserve} if INTERPRETER in os.environ else {}),
}
"""Servers of other people."""

IN_PROCESSES: Final = ("granian ASGI", "gunicorn gthread", "granian", "kserve")
"""Those that take a process of their own, and more time to start."""

_OWN: Final[dict[str, Serve]] = {
    **{backend: partial(_bundled, backend) for backend in ("asyncio", "uvloop", "trio")},
    "guard": partial(_guarded, None),
}

_WSGI: Final[dict[str, Any]] = {"interrupts": False, "families": _BLOCKING}
_TRAITS: Final[dict[str, dict[str, Any]]] = {
    "waitress": _WSGI,
    "werkzeug": {**_WSGI, "pipelines": False},
    "gunicorn gthread": _WSGI,
    "granian": {**_WSGI, "tells_ports": False},
    "kserve": {
        "is_observed": False,
        "families": families(WAYS[:1]).filter(lambda family: family.form == "binary").map(requests),
        "stops": lambda request: (
            request.method == b"POST" and LENGTH.lower() in request.wire.lower()
        ),  # else it is theirs
    },
}

FRONTS: Final = (*_OWN, "guard scripted", *_HOSTED)


@contextmanager
def front_of(name: str) -> Iterator[Front]:
    """Run a way in until the block ends."""
    with ExitStack() as stack:
        if name in _OWN:
            yield OwnFront(name, stack, _OWN[name])
        elif name == "guard scripted":
            upstream = stack.enter_context(scripted_server())
            yield OwnFront(name, stack, partial(_guarded, upstream), families=names().map(guarded_requests))
        else:
            yield Front(name, stack.enter_context(_HOSTED[name]()), **_TRAITS.get(name, {}))
