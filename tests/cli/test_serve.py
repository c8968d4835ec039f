"""`streamcodec serve`: what it takes for a model, what it says of it, and what of an address that cannot be had."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamcodec.cli import main
from streamcodec.cli.description import describe
from streamcodec.cli.serving.loading import check_path, load
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.memory.windows import Windows
from streamcodec.service import ANY_SIZE, Model, ModelRegistry, Service, TensorMetadata
from tests.server.programs import ROOT

HEAD = "from streamcodec.service import Model, ModelRegistry, Service\n"
MODEL = HEAD + "model = Model(name='mine', predict=lambda request: request.inputs)\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory; what is imported from there is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def _names(text: str) -> list[str]:
    served = load(text).served
    return [model.name for model in (served.models if isinstance(served, Service) else served)]


def _complaint(text: str) -> str:
    with pytest.raises(LocalProtocolError) as caught:
        load(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("service = Service(ModelRegistry.of([model]))", "service"),
        ("models = [model]", "models"),
        ("MODELS = ModelRegistry.of([model])", "MODELS"),
        ("def app():\n    return model", "app"),
        ("models, MODELS, app = [], [], model", "app"),
        ("import json as service\nmodels = [model]", "models"),
    ],
)
def test_a_module_alone(source: str, found: str, folder: Path) -> None:
    (folder / "alone.py").write_text(MODEL + source)
    for text in ("alone", "alone.py", "./alone.py", str(folder / "alone.py"), f"alone:{found}", f"alone.py:{found}"):
        assert _names(text) == ["mine"]
        assert load(text).source == f"{found!r} of {folder / 'alone.py'}"


def test_a_module_without_the_usual_names(folder: Path) -> None:
    (folder / "unusual.py").write_text(MODEL + "other = [model]\n")
    expected = "'unusual' has none of service, app, MODELS, models; say what to serve, as unusual:"
    assert _complaint("unusual") == f"{expected}model"
    (folder / "nothing.py").write_text("x = 1\n")
    assert _complaint("nothing").endswith("say what to serve, as nothing:OBJECT")


def test_a_file_is_the_module_that_it_is_in_its_package(folder: Path) -> None:
    package = folder / "elsewhere" / "packaged"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "mine.py").write_text(MODEL)
    (package / "models.py").write_text("from .mine import model\nmodels = [model]\n")
    assert _names("elsewhere/packaged/models.py") == ["mine"]
    assert sys.modules["packaged.models"].__package__ == "packaged"


def test_a_file_that_cannot_be_imported_by_its_name(folder: Path) -> None:
    assert _complaint("missing.py") == f"there is no file 'missing.py' in {folder}"
    assert _complaint("./missing") == f"there is no file 'missing' in {folder}"
    (folder / "json.py").write_text(MODEL)
    assert "'json.py' has the name of another module, " in _complaint("json.py")
    assert _complaint("json.py").endswith("json/__init__.py; rename it")
    (folder / "sys.py").write_text(MODEL)
    assert _complaint("sys.py") == "'sys.py' has the name of another module, None; rename it"


def test_a_module_that_is_not_there_is_one_line_that_says_where_it_was_looked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "plain.py").touch()
    for name, words in {
        "nowhere": "No module named 'nowhere'",
        "nowhere.at.all": "No module named 'nowhere'",
        "plain.part": "No module named 'plain.part'; 'plain' is not a package",
    }.items():
        places = f"{folder}, then on Python's path: PYTHONPATH and the packages of {sys.prefix}"
        assert _complaint(f"{name}:models") == f"{words}; it was looked for in {places}"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("source", "frames", "last"),
    [
        ("import nowhere\n", 1, "ModuleNotFoundError: No module named 'nowhere'"),
        ("def f():\n    1 / 0\nf()\n", 2, "ZeroDivisionError: division by zero"),
        ("raise SystemExit('no weights')\n", 1, "SystemExit: no weights"),
        ("raise TypeError('wrong')\n", 1, "TypeError: wrong"),
        ("def models(:\n", 1, "SyntaxError: invalid syntax"),
        ("def models():\n    return {}['k']\n", 1, "KeyError: 'k'"),
        ("try:\n    {}['k']\nexcept KeyError:\n    open('no')\n", 2, "No such file"),
        ("try:\n    1 / 0\nexcept Exception as e:\n    raise OSError('x') from e\n", 2, "OSError: x"),
    ],
)
def test_what_fails_in_the_users_code_is_shown_with_the_users_frames(
    source: str, frames: int, last: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.py").write_text(source)
    for text in ("broken", "broken.py:models"):
        assert main(["serve", text, "--port", "0"]) == 1
        lines = capsys.readouterr().err.splitlines()
        shown = [line for line in lines if line.startswith("  File ")]
        assert len(shown) == frames
        assert all(line.startswith(f'  File "{folder}/broken.py", line ') for line in shown)
        assert last in lines[-2]
        assert lines[-1] in {
            "streamcodec: 'broken' cannot be imported",
            f"streamcodec: {text!r} has failed",
        }


def test_a_module_that_imports_what_fails_shows_the_way_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "first.py").write_text("import second\n")
    (folder / "second.py").write_text("import json\njson.loads('{')\n")
    assert "cannot be imported" in _complaint("first")
    shown = [line.split('"')[1] for line in capsys.readouterr().err.splitlines() if line.startswith("  File ")]
    assert shown[:2] == [f"{folder}/first.py", f"{folder}/second.py"]
    assert all("json" in path for path in shown[2:])


def test_a_function_with_arguments_cannot_be_called(folder: Path) -> None:
    (folder / "needs.py").write_text(HEAD + "def models(path):\n    return []\n")
    assert _complaint("needs") == "'needs' cannot be called without arguments: missing a required argument: 'path'"
    assert "'needs:Service' cannot be called without arguments" in _complaint("needs:Service")


def test_objects_that_cannot_be_served(folder: Path) -> None:
    (folder / "odd.py").write_text(MODEL + "service = 7\nmixed = [model, 7]\ntwice = [model, model]\nmake = dict\n")
    words = "not a Service, a Model, a list of Models or a ModelRegistry"
    assert _complaint("odd") == f"'odd:service' is int, {words}"
    assert _complaint("odd:mixed") == f"'odd:mixed' is list, {words}"
    assert _complaint("odd:nothing") == "'odd:nothing': 'odd' has no 'nothing'"
    assert _complaint("odd:") == "'odd:': 'odd' has no 'object without a name'"
    assert "names of models must be unique" in _complaint("odd:twice")
    assert "there are two with the name 'mine'" in _complaint("odd:twice")
    assert _names("odd:make") == []  # of a type written in C, nobody knows the arguments


def test_a_file_beside_it_does_not_hide_a_module(folder: Path) -> None:
    (folder / "streamcodec.service").write_text("[Unit]")
    check_path("streamcodec.service:demo_models")
    (folder / "x.npy").write_bytes(b"")
    with pytest.raises(LocalProtocolError, match=r"'x\.npy' is no Python file"):
        check_path("x.npy")


def test_a_directory_is_no_module(folder: Path) -> None:
    (folder / "nothing_in").mkdir()
    said = f"'nothing_in' is a directory; name a Python file in it, as nothing_in{os.sep}my_models.py"
    assert _complaint("nothing_in") == said


def test_a_module_may_have_the_name_of_a_directory_or_a_file(folder: Path) -> None:
    (folder / "twin").mkdir()
    (folder / "twin.py").write_text(MODEL + "models = [model]\n")
    check_path("twin")
    assert _names("twin") == ["mine"]
    (folder / "single.py").write_text(MODEL + "models = [model]\n")
    (folder / "single").touch()
    check_path("single:models")
    assert _names("single:models") == ["mine"]


OPTIONS = [
    ("--nonfinite", "null"),
    ("--cors-origin", "*"),
    ("--allowed-host", "x"),
    ("--compress",),
    ("--no-compression",),
    ("--classification",),
    ("--no-headerless",),
    ("--pool-memory", "0"),
    ("--max-header", "1K"),
    ("--max-message", "1K"),
    ("--max-tensor", "1K"),
    ("--max-compression-ratio", "9"),
]


def test_options_that_a_service_has_made_up_its_mind_about(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ready.py").write_text(MODEL + "service = Service(ModelRegistry.of([model]))\n")
    for words in (*OPTIONS, [word for option in OPTIONS for word in option]):
        with pytest.raises(SystemExit) as ended:
            main(["serve", "ready", "--port", "0", *words])
        assert ended.value.code == 2
        complaint = capsys.readouterr().err.splitlines()[-1]
        flags = ", ".join(word for word in words if word.startswith("--"))
        assert f"error: {flags}: 'service' of {folder / 'ready.py'} is a Service" in complaint


def _predict(_: object) -> dict[str, float]:
    return {}


async def _predict_async(_: object) -> dict[str, float]:
    return {}


def test_models_are_described() -> None:
    x, y = TensorMetadata("x", "FP32", (ANY_SIZE, 3)), TensorMetadata("y", "BYTES", ())
    models = [
        Model(name="a", predict=_predict, inputs=(x,), outputs=(y, x), versions=("1", "2")),
        Model(name="b", predict=_predict, is_inline=True, inputs=()),
        Model(name="c", predict=_predict_async, inputs=(x, x)),
        Model(name="d", predict=_predict, windows=Windows()),
        Model(name="e", predict=_predict_async, windows=Windows(), is_inline=True),
    ]
    assert list(describe(ModelRegistry.of(models))) == [
        "  a, versions 1, 2: x FP32 [-1, 3] -> y BYTES [], x FP32 [-1, 3]; in worker threads until it proves quick",
        "  b, version 1: none -> any; inline, if the request is small",
        "  c, version 1: x FP32 [-1, 3], x FP32 [-1, 3] -> any; async, on the event loop",
        "  d, version 1: any -> any; in worker threads, window by window",
        "  e, version 1: any -> any; async, on the event loop, window by window",
    ]
    wide = Model(name="w", predict=_predict, inputs=(y,) * 6)
    shown = "y BYTES [], y BYTES [], y BYTES [], y BYTES [] and 2 more"
    assert list(describe(ModelRegistry.of([wide]))) == [
        f"  w, version 1: {shown} -> any; in worker threads until it proves quick"
    ]
    many = list(describe(ModelRegistry.of(Model(name=f"m{number}", predict=_predict) for number in range(1000))))
    assert (len(many), many[-1]) == (21, "  and 980 more")


def _output_of(*arguments: str, cwd: Path, count: int) -> list[str]:
    """Run `serve`, and return the first lines that it prints."""
    command = [sys.executable, "-W", "error", "-m", "streamcodec", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE) as it:
        try:
            assert it.stdout is not None
            return [it.stdout.readline().decode("ascii", "replace").rstrip() for _ in range(count)]
        finally:
            it.terminate()


@pytest.mark.slow
def test_where_is_said_first_and_then_what(folder: Path) -> None:
    where, first, *models = _output_of(cwd=folder, count=4)
    assert where.startswith("listening on http://127.0.0.1:")
    assert first == "serving the demo models:"
    assert models == [
        "  identity, version 1: any -> any; inline, if the request is small",
        "  sink, version 1: any -> COUNT INT64 [1]; inline, if the request is small",
    ]
    (folder / "steering.py").write_text(HEAD + "models = Model(name='a\\x1b[2J', predict=print)\n")
    assert _output_of("steering", cwd=folder, count=3)[1:] == [
        f"serving 'models' of {folder / 'steering.py'}:",
        "  a\\x1b[2J, version 1: any -> any; in worker threads until it proves quick",
    ]


@pytest.mark.parametrize(
    "command",
    [("serve",), ("serve", "--workers", "2"), ("guard", "--upstream", "http://127.0.0.1:1")],
    ids=" ".join,
)
def test_a_port_in_use(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        assert main([*command, "--port", str(number)]) == 1
    expected = f"port {number} of 127.0.0.1 is in use; stop its user, or choose another port (0 picks one)"
    assert capsys.readouterr().err == f"streamcodec: {expected}\n"


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (
            "nobody.invalid",
            "there is no host 'nobody.invalid'; listen at a name or an address of this machine",
        ),
        ("192.0.2.1", "192.0.2.1 is not an address of this machine; listen at one that is, or at 0.0.0.0 for all"),
    ],
)
def test_a_host_that_is_none_of_ours(host: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", "--host", host]) == 1
    assert capsys.readouterr().err.startswith(f"streamcodec: {words}")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            PermissionError(13, "Permission denied"),
            "you may not listen on port 80; choose one of 1024 or more",
        ),
        (OSError(24, "Too many open files"), "[Errno 24] Too many open files"),
    ],
)
def test_other_trouble_with_an_address(
    error: OSError, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def create_server(*_: object, **__: object) -> socket.socket:
        raise error

    monkeypatch.setattr("socket.create_server", create_server)
    assert main(["serve", "--port", "80"]) == 1
    assert capsys.readouterr().err == f"streamcodec: {words}\n"
