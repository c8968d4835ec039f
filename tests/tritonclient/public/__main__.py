"""Run the published programs: see `tests.tritonclient.public`."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from tests.interop.servers.processes import running
from tests.ports import free_port

_ROOT: Final = Path(__file__).parents[3]
_SECONDS: Final = 120
_IMPORT: Final = re.compile(r"^(\s*(?:from|import) )tritonclient(?=\.(?:http|utils)| import utils)", re.MULTILINE)
_EXAMPLES: Final = "src/python/examples"
_WITHOUT_CLIENT: Final = (
    "buffer_size_overflow",
    "negative_dimensions",
    "loading_large_invalid_model",
    "load_oversized_file_parameter",
    "json_recursion_depth_limit",
    "duplicate_output_names",
    "repository_index_deeply_nested_json",
    "inference_header_content_length_out_of_range",
)
"""Of `http_test`, sent without a client; they are for servers newer than the one here, and some of them end it."""


@dataclass(frozen=True, slots=True)
class Program:
    """A published program."""

    server: str
    """Which of the servers of `repository` it talks to."""
    path: str
    """Within the checkout of `client` or `server`."""
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def is_test(self) -> bool:
        """Whether `unittest` counts what it does."""
        return self.path.startswith("qa/")

    @property
    def title(self) -> str:
        """What it is called in the table."""
        names = [f"{name}={value}" for name, value in self.environment.items() if name.startswith("TEST")]
        words = [Path(self.path).name, *self.options, *names]
        return " ".join(words).replace("-compression-algorithm", "").replace(" IMAGES", "")


def _example(name: str, *options: str, server: str = "examples") -> Program:
    return Program(server, f"{_EXAMPLES}/{name}.py", options)


def _compressed(request: str, response: str) -> list[str]:
    return ["--request-compression-algorithm", request, "--response-compression-algorithm", response]


_INFER: Final = {"BACKENDS": "python", "ENSEMBLES": "0", "CPU_ONLY": "1", "USE_GRPC": "0"}
PROGRAMS: Final = [
    _example("simple_http_infer_client"),
    _example("simple_http_infer_client", *_compressed("gzip", "gzip")),
    _example("simple_http_infer_client", *_compressed("deflate", "deflate")),
    _example("simple_http_aio_infer_client"),
    _example("simple_http_aio_infer_client", *_compressed("gzip", "deflate")),
    _example("simple_http_async_infer_client"),
    _example("simple_http_string_infer_client"),
    _example("simple_http_health_metadata"),
    _example("simple_http_sequence_sync_infer_client"),
    _example("simple_http_sequence_sync_infer_client", "-d"),
    _example("simple_http_shm_client"),
    _example("simple_http_shm_string_client"),
    _example("simple_http_cudashm_client"),
    _example("simple_http_model_control", server="control"),
    _example("reuse_infer_objects_client"),
    _example("memory_growth_test", "-r", "200", server="others"),
    _example("image_client", "-m", "image", "-c", "3", "-b", "2", "IMAGES", server="others"),
    _example("image_client", "-a", "-m", "image", "-s", "INCEPTION", "IMAGES", server="others"),
    _example("ensemble_image_client", "-c", "2", "IMAGES", server="others"),
    Program("examples", "qa/L0_http/python_http_aio_test.py"),
    Program("others", "qa/L0_http/http_test.py"),
    Program("others", "qa/L0_http/http_client_plugin_test.py"),
    Program("others", "qa/L0_http/http_basic_auth_test.py"),
    Program("slow", "qa/L0_client_timeout/client_infer_timeout_test.py"),
    Program("sums", "qa/L0_infer/infer_test.py", environment=_INFER),
    Program("sums", "qa/L0_infer/infer_test.py", environment=_INFER | {"TEST_SYSTEM_SHARED_MEMORY": "1"}),
]


class Runner:
    """Runs programs as they are, and with the import line changed, from copies in a directory of its own."""

    def __init__(self, python: str, checkouts: dict[str, Path], work: Path) -> None:
        """Prepare the images that some programs send."""
        self._python = python
        self._checkouts = checkouts
        self._work = work
        self._images = work / "images"
        self._images.mkdir()
        generator = np.random.default_rng(0)
        for number in range(3):
            pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(self._images / f"{number}.png")

    def run(self, program: Program, port: int, secured_port: int, *, is_ours: bool) -> tuple[str, str]:
        """Run a program; return what is to be said of it, and what it printed."""
        repository = self._checkouts["server" if program.is_test else "client"]
        with tempfile.TemporaryDirectory(dir=self._work) as folder:
            copies = Path(folder, "qa", "common"), Path(folder, *Path(program.path).parent.parts)
            sources = [*repository.glob("qa/common/*_util.py")] if program.is_test else []
            for copy in copies:
                copy.mkdir(parents=True, exist_ok=True)
            for source in sources:
                _copy(source, copies[0], port, secured_port, is_ours=is_ours)
            _copy(repository / program.path, copies[1], port, secured_port, is_ours=is_ours)
            done = subprocess.run(
                [self._python, *self._arguments(program, port)],
                cwd=copies[1],
                env=os.environ | {"PYTHONPATH": str(_ROOT)} | program.environment,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        return _said(program, done), done.stdout + done.stderr

    def _arguments(self, program: Program, port: int) -> list[str]:
        name = Path(program.path).name
        if program.is_test:
            tests = ["-k", "ClientInferTimeoutTest.test_http"] if "timeout" in name else []
            return ["-m", "unittest", "-v", name.removesuffix(".py"), *tests]
        url = [] if name.startswith("memory_growth") else ["-u", f"127.0.0.1:{port}"]
        return [name, *url, *(str(self._images) if option == "IMAGES" else option for option in program.options)]


def _copy(source: Path, folder: Path, port: int, secured_port: int, *, is_ours: bool) -> None:
    text = source.read_text()
    text = text.replace(":8000", f":{port}").replace(":8001", f":{port + 1}").replace(":8004", f":{secured_port}")
    for name in _WITHOUT_CLIENT:
        text = text.replace(f"def test_{name}(", f"def leave_out_{name}(")
    (folder / source.name).write_text(_IMPORT.sub(r"\1streamcodec.tritonclient", text) if is_ours else text)


def _said(program: Program, done: subprocess.CompletedProcess[str]) -> str:
    """Return how a program has ended, in a few words."""
    counted = re.search(r"^Ran (\d+) tests?", done.stderr, re.MULTILINE)
    if not program.is_test or counted is None:
        return "passes" if done.returncode == 0 else f"fails ({done.returncode})"
    failed = re.findall(r"^(?:FAIL|ERROR): (\w+ \([\w.]+\))", done.stderr, re.MULTILINE)
    return f"{int(counted[1]) - len({*failed})} of {counted[1]}"


@contextmanager
def _secured(port: int, folder: Path) -> Iterator[int]:
    """Run nginx in front of a server; it asks for a user and a password."""
    own = free_port()
    (folder / "users").write_text("username:{PLAIN}password\n")
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; events {{}} http {{ access_log off; server {{ "
        f"listen 127.0.0.1:{own}; auth_basic models; auth_basic_user_file {folder}/users; "
        f"location / {{ proxy_pass http://127.0.0.1:{port}; }} }} }}"
    )
    command = ["nginx", "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield own
        finally:
            process.terminate()


def main() -> None:
    """Run all programs, print a table, and with `--log` what they printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.tritonclient.public", description=__doc__)
    parser.add_argument("--client", type=Path, required=True, help="checkout of triton-inference-server/client")
    parser.add_argument("--server", type=Path, required=True, help="checkout of triton-inference-server/server")
    parser.add_argument("--only", default="", help="text in the name of the programs to run")
    parser.add_argument("--log", type=Path, help="file for what the programs print")
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="has tritonclient[all], attrdict, pillow, requests and what we need (default: this one)",
    )
    options = parser.parse_args()
    triton = os.environ.get("STREAMCODEC_TRITON_PYTHON")
    if triton is None:
        sys.exit("STREAMCODEC_TRITON_PYTHON is not set: a Python that has nvidia-pytriton")
    programs = [program for program in PROGRAMS if options.only in program.title]
    print(f"{'':66} {'tritonclient':>14} {'ours':>10}")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        work.chmod(0o755)  # nginx reads it as another user
        runner = Runner(options.python, {"client": options.client, "server": options.server}, work)
        for server in dict.fromkeys(program.server for program in programs):
            (work / server).mkdir()
            with (
                running(triton, "tests.tritonclient.public.repository", work / server) as peer,
                _secured(int(peer.url.rpartition(":")[2]), work) as secured_port,
            ):
                port = int(peer.url.rpartition(":")[2])
                for program in (each for each in programs if each.server == server):
                    theirs, ours = (
                        runner.run(program, port, secured_port, is_ours=is_ours) for is_ours in (False, True)
                    )
                    print(f"{program.title:66} {theirs[0]:>14} {ours[0]:>10}", flush=True)
                    if options.log is not None:
                        _note(options.log, program, theirs[1], ours[1])
                    peer.check()


def _note(file: Path, program: Program, theirs: str, ours: str) -> None:
    with file.open("a") as log:
        log.write(f"== {program.title}, tritonclient\n{theirs}\n== {program.title}, ours\n{ours}\n")


if __name__ == "__main__":
    main()
