"""Layering: which room may know which (design, section 3), read from the source of every module."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

import streamcodec

ROOT = Path(streamcodec.__file__).parent
WORLD = {
    "asyncio",
    "concurrent",
    "datetime",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "queue",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "warnings",
}
"""Where a codec would touch the world: I/O, clocks, threads, chance, logging."""

SHARED = ("engine", "formats.v2", "http", "service", "transports", "runtime", "embedding")

MAY_IMPORT = {
    "engine": ({"numpy", "ml_dtypes", "msgspec"}, {"engine"}),
    "formats": ({"numpy", "ml_dtypes"}, {"engine", "formats"}),
    "http": ({"h11"}, {"engine", "http"}),
    "service": (
        {"numpy"},
        {
            "engine",
            "formats.v2",
            "http.heads.messages",
            "http.bodies.collector",
            "http.bodies.fed",
            "http.bodies.known",
            "http.heads.statuses",
            "http.writing",
            "service",
            "",
        },
    ),
    "transports": ({"anyio", "numpy"}, {"engine", "formats.v2", "http", "service", "transports"}),
    "runtime": ({"anyio"}, {"engine", "formats.v2", "http", "service", "transports", "runtime"}),
    "server": ({"anyio", "uvloop"}, {"engine", "formats.v2", "http", "service", "transports", "runtime", "server"}),
    "embedding": ({"anyio"}, {"engine", "formats.v2", "http", "service", "transports", "runtime", "embedding"}),
    # What adapts to a framework knows nothing of the bundled server.
    "asgi": ({"anyio"}, {*SHARED, "asgi"}),
    "wsgi": (set(), {*SHARED, "wsgi"}),
    "aiohttp": ({"anyio", "aiohttp"}, {*SHARED, "aiohttp"}),
    # KServe's application is made of FastAPI, its client of httpx, its JSON of orjson.
    "kserve": ({"anyio", "fastapi", "httpx", "kserve", "numpy", "orjson"}, {*SHARED, "asgi", "kserve"}),
    # One of its files knows one of the two, and the others neither.
    "metrics": ({"opentelemetry", "prometheus_client"}, {"engine", "service", "runtime.folders", "metrics"}),
    # Ray's own names appear in one function only.
    "ray": ({"ray"}, {"engine", "service", "runtime", "server", "asgi", "ray"}),
    # Hypothesis is for the strategies alone; the package works without it, as its own tests show.
    "testing": ({"numpy", "hypothesis"}, {"engine", "formats", "testing"}),
    "blackbox": ({"h11", "numpy"}, {"engine", "formats.v2", "blackbox"}),
    "inspection": ({"numpy"}, {"engine", "formats", "http", "inspection"}),
    "guard": (
        {"anyio", "numpy"},
        {"engine", "formats.v2", "http", "service", "transports", "runtime", "server", "client", "guard"},
    ),
    "client": ({"anyio", "numpy"}, {"engine", "formats.v2", "http", "transports", "client", ""}),
    # Of the clients it knows what users know.
    "tritonclient": ({"anyio", "numpy"}, {"engine", "formats.v2", "http", "client", "tritonclient"}),
}
"""For each room: the packages from outside, and the rooms of our own ("" is the package's face)."""


def modules(room: str) -> list[Path]:
    """The source files of a room."""
    return sorted((ROOT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """The full names of all modules that a file imports, also inside of functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield node.module


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


PURE = ("engine", "formats", "http", "service")
"""The rooms that touch nothing but memory."""

ROOM_FILES = [(room, path) for room in MAY_IMPORT for path in modules(room)]
PURE_FILES = [pytest.param(path, id=named(path)) for room in PURE for path in modules(room)]


def test_every_room_has_rules() -> None:
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert rooms - {"cli"} == set(MAY_IMPORT)


def _may_know(room: str, name: str) -> bool:
    outside, inside = MAY_IMPORT[room]
    package, _, rest = name.partition(".")
    if package == "streamcodec":
        return any(rest == ours or (ours and rest.startswith(f"{ours}.")) for ours in inside)
    return package in sys.stdlib_module_names | outside


def test_rooms_import_only_what_they_may_know() -> None:
    """All files in one test: a round that tries some parameter sets of each test would leave most of them out."""
    found = [(named(path), name) for room, path in ROOM_FILES for name in imports(path) if not _may_know(room, name)]
    assert not found


@pytest.mark.parametrize("path", PURE_FILES)
def test_pure_rooms_do_not_touch_the_world(path: Path) -> None:
    # `sys.byteorder` and `sys.maxsize` are constants of the machine; a memory map is a file; `io.BytesIO` is memory.
    exceptions = {"engine/datatypes.py": {"sys"}, "engine/limits.py": {"sys"}}
    exceptions["engine/memory/memory_map.py"] = {"os", "io"}
    exceptions["engine/memory/reserving.py"] = {"os"}
    exceptions["engine/json/longtext.py"] = {"io"}
    allowed = exceptions.get(named(path), set())
    assert not WORLD & {name.partition(".")[0] for name in imports(path)} - allowed


@pytest.mark.parametrize("path", PURE_FILES)
def test_pure_rooms_are_not_asynchronous_and_print_and_open_nothing(path: Path) -> None:
    kinds = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    # Records are defined as dataclasses are, by code that is written for them.
    forbidden = {"print", "open", "input", "exec", "eval"} - ({"exec"} if named(path) == "engine/record.py" else set())
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not isinstance(node, kinds), f"line {getattr(node, 'lineno', '?')}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in forbidden, f"line {node.lineno}"


@pytest.mark.parametrize("path", PURE_FILES)
def test_pure_rooms_have_no_assertions_and_no_mutable_globals(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not any(isinstance(node, ast.Assert | ast.Global) for node in ast.walk(tree))


FORMATS = {path.stem for path in (ROOT / "formats").iterdir() if path.stem not in {"__init__", "__pycache__"}}


@pytest.mark.parametrize("path", modules("formats"), ids=named)
def test_formats_do_not_know_each_other(path: Path) -> None:
    """But for frames, whose content is a V2 message."""
    own = path.relative_to(ROOT / "formats").parts[0].removesuffix(".py")
    known = {name.split(".")[2] for name in imports(path) if name.startswith("streamcodec.formats.")}
    assert known <= FORMATS & ({own, "v2"} if own == "frame" else {own})


def test_there_are_no_cycles_anywhere() -> None:
    names = {path: ".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in ROOT.rglob("*.py")}
    known = set(names.values())
    graph = {name: {other for other in imports(path) if other in known} for path, name in names.items()}
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert set(order) == known
    assert all(a != b for a, b in pairwise(order))


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_the_codec_works_without_h11_and_anyio() -> None:
    code = """
import sys
sys.modules["h11"] = sys.modules["anyio"] = sys.modules["ml_dtypes"] = sys.modules["msgspec"] = None
import numpy, streamcodec
message = streamcodec.encode_request([streamcodec.Tensor(name="x", array=numpy.arange(3))])
decoder = streamcodec.request_decoder(header_length=message.header_length, body_length=message.body_length)
decoder.feed(b"".join(message.buffers))
decoder.next_event()
print(decoder.next_event().array.tolist())
"""
    assert run(code) == "[0, 1, 2]"


def test_http_works_without_numpy() -> None:
    code = """
import sys
sys.modules["numpy"] = None
from streamcodec.http import ClientConnection, Collector, ServerConnection

def bring(parts, connection, receiver):
    data = b"".join(parts)
    data = data[connection.feed(data):]
    connection.next_event()
    connection.receive_body(receiver)
    connection.feed(data)
    print(connection.next_event().nbytes, bytes(receiver.data))

client, server = ClientConnection(), ServerConnection()
fields = [("Host", "x"), ("Content-Length", "4")]
bring(client.send_request("POST", "/", fields, [b"12", memoryview(b"34")]), server, Collector(4))
bring(server.send_response(200, [], [memoryview(b"567")]), client, Collector(3))
"""
    assert run(code) == "4 b'1234'\n3 b'567'"


def test_importing_the_codec_imports_nothing_heavy() -> None:
    heavy = "h11 anyio asyncio ml_dtypes msgspec socket ssl logging subprocess streamcodec.http streamcodec.service"
    code = f"""
import sys, numpy
before = set(sys.modules)
from streamcodec import *
assert Decoder
print(sorted((set(sys.modules) - before) & set({heavy.split()!r})))
"""
    assert run(code) == "[]"


def modules_at_rest(models: str) -> set[str]:
    """Return the modules that `streamcodec serve` has imported before its first request."""
    code = f"""
import sys
from streamcodec.cli import commands
commands.parse(["serve"])
from streamcodec.server import Server
from streamcodec.server.processes.loops import new_loop
from streamcodec.service import Model, ModelRegistry, Service, TensorMetadata, demo_models
Server(Service({models}))
new_loop().close()
print(*sys.modules)
"""
    return set(run(code).split())


def test_a_server_has_imported_all_it_needs_before_it_serves_and_nothing_else() -> None:
    late = {name for name in ("msgspec.json", "uvloop") if importlib.util.find_spec(name.partition(".")[0])}
    needless = "ml_dtypes secrets random shutil tempfile http.client email numpy.random numpy.ma numpy.fft ctypes.util"
    modules = modules_at_rest("demo_models()")
    assert late - modules == set(), "or the first request that needs them holds up all others for 10 ms"
    assert modules & {*needless.split()} == set(), "they take memory on small devices"


def test_a_server_has_imported_what_its_models_declare() -> None:
    pytest.importorskip("ml_dtypes")
    for side in ("inputs", "outputs"):
        model = f"Model(name='x', predict=dict, {side}=(TensorMetadata('x', 'BF16', (3,)),))"
        assert "ml_dtypes" in modules_at_rest(f"ModelRegistry.of([{model}])"), (
            "or its first request holds up all others for 8 ms"
        )
