"""The command line as a process: Ctrl-C at any moment, output that nobody reads, and what is imported for it."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from streamcodec.client import Client
from tests.processes import announced
from tests.server.models import models
from tests.server.programs import server_here

COMMAND = (sys.executable, "-m", "streamcodec")
BEGUN = """
import signal, sys, streamcodec.cli as cli
def handle(*arguments, signal_=signal.signal):
    usual = signal_(*arguments)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return usual
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
signal.signal = handle
sys.stdout.write('begun\\n')
sys.stdout.flush()
cli.program()
"""
"""What `python -m streamcodec` does, but it says when Python has started. A signal that comes before the program
handles it waits until then, because nobody can handle it earlier."""

INTERRUPTED = {130, -signal.SIGINT}
"""A shell says 130 of both; the latter is what Ctrl-C comes to when Python has closed down."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_here(models()) as (_, (host, port)):
        yield f"http://{host}:{port}"


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """A shell lets what it starts in the background ignore it."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


def _interrupted(moment: float, *arguments: str, cwd: Path) -> tuple[int, str]:
    """Run a command and interrupt it at a moment; return its exit status and what it complained."""
    command = [sys.executable, "-c", BEGUN, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=60)
        return process.returncode, complaints


@pytest.mark.slow
@pytest.mark.usefixtures("heeds_ctrl_c")
@pytest.mark.parametrize("command", ["infer", "serve", "bench", "demo", "fuzz"])
def test_ctrl_c_at_any_moment(command: str, url: str, tmp_path: Path) -> None:
    """From the first import to the last moment, as a random choice has it: a new one in each run."""
    np.save(tmp_path / "x.npy", np.zeros(1 << 20, np.float32))
    arguments = {
        "infer": (url, "identity", "--input", "x=x.npy", "--output-dir", "out"),
        "serve": ("--port", "0"),
        "bench": (url, "--model", "identity", "--shape", "x:FP32:16"),
        "demo": (),
        "fuzz": (url, "--model", "identity", "--input", "x:FP32:-1"),
    }
    began = time.monotonic()
    subprocess.run([*COMMAND, command, "--help"], capture_output=True, timeout=60, check=True)
    usual = time.monotonic() - began
    for _ in range(5):
        moment = random.uniform(0, 1.5 * usual)  # noqa: S311 - no secret
        status, complaints = _interrupted(moment, command, *arguments[command], cwd=tmp_path)
        # What had ended, or a server that was there to be stopped, has gone well.
        assert status in INTERRUPTED | ({0} if command in {"infer", "serve"} else set()), f"at {moment}: {complaints}"
        assert not complaints, f"at {moment}"
        assert {path.name for path in tmp_path.glob("out/*")} <= {"x.npy"}
        for path in tmp_path.glob("out/*"):
            assert np.load(path).shape == (1 << 20,)
            path.unlink()


SWALLOWING = {
    "an except clause": """
        try:
            begun()
        except KeyboardInterrupt:
            pass
    """,
    "a callback of a weak reference": """
        import weakref
        class Named: ...
        named = Named()
        reference = weakref.ref(named, lambda _: begun())
        del named
    """,
}
SWALLOWED = """
import sys, time, streamcodec.cli as cli
from streamcodec.cli import commands
def begun():
    sys.stdout.write("begun\\n")
    sys.stdout.flush()
    time.sleep(30)
def run(options):
    code = __import__("textwrap").dedent({code!r})
    exec(code)
    try:
        time.sleep(30)
    finally:
        time.sleep(0.5)  # the clean-up is not interrupted again
        sys.stdout.write("cleaned up")
commands.run = run
cli.program()
"""


@pytest.mark.usefixtures("heeds_ctrl_c")
@pytest.mark.parametrize("code", SWALLOWING.values(), ids=SWALLOWING)
def test_ctrl_c_that_is_swallowed(code: str) -> None:
    """NumPy does so while `numpy.random` is imported, and Python itself in the locks of modules."""
    command = [sys.executable, "-c", SWALLOWED.format(code=code), "fuzz", "--list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        said, complaints = process.communicate(timeout=60)
    assert (process.returncode in INTERRUPTED, said, complaints) == (True, "cleaned up", "")


def test_what_a_shell_keeps_from_ctrl_c_is_not_interrupted(tmp_path: Path) -> None:
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert _interrupted(0, "fuzz", "--list", cwd=tmp_path) == (0, "")
    finally:
        signal.signal(signal.SIGINT, usual)


def _shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell, which then says the status of the first command."""
    program = f'run() {{ {" ".join(COMMAND)} "$@"; echo status $? >&3; }}; {line}'
    process = subprocess.run(
        ["bash", "-c", f"exec 3>&1; {program}"],  # noqa: S607 - whichever there is
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.stderr == ""
    return process


@pytest.mark.slow
def test_a_reader_who_has_had_enough(url: str) -> None:
    shown = _shell("run fuzz --list | head -1").stdout.splitlines()
    assert shown[0].startswith("| probe ")
    assert shown[1] in {"status 0", "status 141"}  # all may be in the pipe before its reader goes
    line = f"run fuzz {url} --model identity --input x:FP32:-1 --all --only 'boundaries/*' --max-rate 9999 | head -3"
    shown = _shell(line).stdout.splitlines()
    assert [row[0] for row in shown[:3]] == ["|"] * 3
    assert shown[3:] == ["status 141"]


@pytest.mark.slow
def test_output_that_nobody_reads_at_all() -> None:
    assert _shell("run fuzz --list | (exec <&-; sleep 2)").stdout == "status 141\n"
    for option in ("--help", "--version"):  # argparse takes no notice where Python keeps nothing back to be written
        assert _shell(f"run {option} | (exec <&-; sleep 1)").stdout in {"status 0\n", "status 141\n"}


@pytest.mark.slow
def test_a_server_whose_words_nobody_reads_serves() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # for a port that is free
        number = listener.getsockname()[1]
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "serve", "--no-access-log", "--port", str(number)]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with suppress(OSError), Client(f"http://127.0.0.1:{number}") as client:
                assert client.is_server_live()
                break
            time.sleep(0.1)
        process.terminate()
        _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")


@pytest.mark.slow
@pytest.mark.usefixtures("heeds_ctrl_c")
def test_what_hangs_after_ctrl_c_is_ended_by_another_one() -> None:
    code = """
import sys, time, streamcodec.cli as cli, streamcodec.cli.commands as commands
def run(options):
    try:
        print("now", flush=True)
        time.sleep(60)
    finally:
        print("then", flush=True)
        time.sleep(60)
commands.run = run
cli.program()
"""
    command = [sys.executable, "-c", code, "fuzz", "--list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for word in ("now", "then"):
            assert process.stdout.readline().strip() == word
            process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None  # the second came so soon that the first may not have had its effect
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 130


@pytest.mark.slow
def test_complaints_that_nobody_reads() -> None:
    assert _shell("run infer http://127.0.0.1:1 m 2>&1 >/dev/null | (exec <&-; sleep 2)").stdout == "status 1\n"


@pytest.mark.slow
def test_output_that_is_closed(url: str) -> None:
    assert _shell("run fuzz --list >&-").stdout == "status 0\n"
    assert _shell(f"run infer {url} m 2>&-").stdout == "status 1\n"


@pytest.mark.slow
def test_output_that_cannot_be_written() -> None:
    process = _shell("run fuzz --list >/dev/full 2>&3")
    assert process.stdout == "streamcodec: [Errno 28] No space left on device\nstatus 1\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "serve --port 0",
        "serve --port 0 --workers 2",
        "serve --uds x.sock",
        "guard --upstream http://127.0.0.1:1 --port 0",
        "inspect x.npy",
        "infer URL identity --input x=x.npy",
        "bench URL --model identity --shape x:FP32:1 --warmup 0 --duration 0.1 --concurrency 2 --processes 2",
    ],
)
def test_a_full_disk_under_the_output_is_told_in_one_line(
    command: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones(4, np.float32))
    with Path("/dev/full").open("w") as full:
        arguments = command.replace("URL", url).split()
        told = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert re.fullmatch(r"streamcodec: (\[Errno 28\] )?No space left on device\n", told.stderr), told.stderr
        assert told.returncode == 1
        assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]
        untold = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=full, check=False)
        assert untold.returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--workers", "2"]], ids=str)
def test_a_full_disk_under_the_log_stops_no_server(more: list[str]) -> None:
    command = [*COMMAND, "serve", "--port", "0", *more]
    with (
        Path("/dev/full").open("w") as full,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=full, text=True) as process,
    ):
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        for _ in range(3):
            with Client(url) as client:
                assert client.infer("identity", {"x": np.ones(3)})["x"].tolist() == [1, 1, 1]
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--version"], ["numpy", "anyio", "h11", "streamcodec.codec", "streamcodec.service", "asyncio"]),
        (["--help"], ["numpy", "anyio", "h11", "streamcodec.codec", "streamcodec.service", "asyncio"]),
        (["serve", "--help"], ["streamcodec.client", "streamcodec.blackbox", "streamcodec.cli.demo"]),
        (["infer", "--help"], ["streamcodec.server", "streamcodec.service", "streamcodec.blackbox"]),
        (["bench", "--help"], ["streamcodec.server", "streamcodec.service", "matplotlib", "asyncio"]),
        (["fuzz", "--help"], ["streamcodec.server", "streamcodec.service"]),
    ],
    ids=" ".join,
)
def test_what_a_command_does_not_need_is_not_imported(arguments: list[str], absent: list[str]) -> None:
    code = "import sys, atexit, streamcodec.cli as cli; atexit.register(lambda: print(*sys.modules)); cli.program()"
    process = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert not set(absent) & set(process.stdout.splitlines()[-1].split())


def _in_address_space(mebibytes: int, *arguments: str) -> list[str]:
    return ["sh", "-c", f'ulimit -v {mebibytes << 10}; exec "$@"', "sh", *COMMAND, *arguments]


@pytest.mark.skipif(sys.platform != "linux", reason="the address space cannot be limited")
def test_a_small_address_space_is_enough_with_one_thread_of_blas() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    command = _in_address_space(160, "serve", "--small", "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            with Client(announced(server.stdout)) as client:
                assert client.infer("identity", {"x": np.ones(3)})["x"].tolist() == [1, 1, 1]
        finally:
            server.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="the address space cannot be limited")
def test_too_small_an_address_space_is_told_in_a_line() -> None:
    """So small that not even numpy's libraries can be loaded. With a little more, OpenBLAS may say so in its words."""
    command = _in_address_space(48, "serve", "--port", "0")
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    expected = "streamcodec: error: an address space of 48 MiB (RLIMIT_AS, ulimit -v) is too small\n"
    assert (result.returncode, result.stderr) == (1, expected)
