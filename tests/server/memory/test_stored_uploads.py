"""Uploads in files: they outlive the server, and several processes share them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcodec import LocalProtocolError, NewArray, Placement, TensorSpec, encode_request, request_decoder
from streamcodec.http import RequestHead
from streamcodec.http.heads.messages import Fields
from streamcodec.runtime.uploads.folder import UploadFolder
from streamcodec.server import Server, ServerOptions
from streamcodec.service import InferenceRequest, Model, ModelRegistry, Service
from tests.server.memory.uploading import BODY, FIELDS, MORE, Address, X, all_there, asked, begun, offset, patch
from tests.server.models import models
from tests.server.programs import MODELS, Program, server_here, serving
from tests.server.wire import Answer, Wire, floats, head
from tests.waiting import until

KIND = ServerOptions(resumable_uploads=8, upload_timeout=30.0, read_timeout=60)
MIXED = encode_request(
    {
        "bytes": np.array([b"a" * n for n in range(500)], object),
        "odd": np.arange(3, dtype=np.uint8),
        "moved": np.arange(70_000, dtype=np.float64),
        "flag": np.arange(9) % 2 == 0,
        "large": X,
    },
    parameters={"binary_data_output": True},
)
MIXED_START = MIXED.header_length or 0
MIXED_BODY = b"".join(MIXED.buffers)
MIXED_FIELDS = [f"{name}: {value}" for name, value in MIXED.headers if name != "Content-Length"]
MIXED_LENGTHS = [f"Upload-Length: {len(MIXED_BODY)}", "Content-Length: 0"]
CUTS = [0, 1, MIXED_START, MIXED_START + 60_000, 400_000, 800_003, len(MIXED_BODY) - 1, len(MIXED_BODY)]


@contextmanager
def server_at(
    folder: Path,
    registry: ModelRegistry | None = None,
    **options: Any,  # noqa: ANN401 - those of ServerOptions
) -> Iterator[Address]:
    with server_here(registry or models(), replace(KIND, upload_dir=folder, **options)) as (_, address):
        yield address


def mixed(address: Address, nbytes: int) -> str:
    """Begin an upload of several tensors, and break off after so many bytes; return its location."""
    with Wire(address) as wire:
        wire.send(head("/v2/models/identity/infer", *MIXED_FIELDS, MORE, *MIXED_LENGTHS))
        location = wire.response().fields["location"]
        wire.send(patch(location, 0, len(MIXED_BODY)), MIXED_BODY[:nbytes])
        all_there(wire)
        until(lambda: offset_when_free(address, location) == nbytes)
    return location


def offset_when_free(address: Address, location: str) -> int | None:
    """Ask until no other process has the upload."""
    answers: list[Answer] = []

    def is_there() -> bool:
        answers.append(asked(address, location))
        assert answers[-1].status in {204, 404, 503}
        return answers[-1].status != 503

    until(is_there)
    return int(answers[-1].fields["upload-offset"]) if answers[-1].status == 204 else None


def rest(address: Address, location: str, at: int) -> Answer:
    with Wire(address) as wire:
        return wire.send(patch(location, at, len(MIXED_BODY) - at), MIXED_BODY[at:]).response()


def is_right(answer: Answer) -> bool:
    """Whether an answer has the tensors of the request, in any order of their bytes."""
    length = int(answer.fields["inference-header-content-length"])
    return answer.body[length:] == MIXED_BODY[MIXED_START:]


@pytest.mark.parametrize("nbytes", CUTS[:-1])
def test_an_upload_goes_on_after_a_restart(tmp_path: Path, nbytes: int) -> None:
    folder = tmp_path / "uploads"
    with server_at(folder) as address:
        location = mixed(address, nbytes)
    with server_at(folder) as address:
        assert offset(address, location) == nbytes
        assert is_right(rest(address, location, nbytes))
        assert asked(address, location).status == 404
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize("nbytes", CUTS)
def test_a_piece_that_does_not_end_the_upload(tmp_path: Path, nbytes: int) -> None:
    """Whatever the last piece has, each decoder reads what the file has again."""
    with server_at(tmp_path) as address, Wire(address) as wire:
        wire.send(head("/v2/models/identity/infer", *MIXED_FIELDS, MORE, *MIXED_LENGTHS))
        location = wire.response().fields["location"]
        wire.send(patch(location, 0, nbytes, MORE), MIXED_BODY[:nbytes])
        assert wire.response().status == 204
        assert offset(address, location) == nbytes
        assert is_right(wire.send(patch(location, nbytes, len(MIXED_BODY) - nbytes), MIXED_BODY[nbytes:]).response())


def test_a_killed_worker_does_not_lose_an_upload() -> None:
    arguments = ("--workers", "2", "--resumable-uploads", "4")
    with serving(MODELS, *arguments) as program:
        with Wire(program.address) as wire:
            location = begun(wire, body=BODY[:500_003])
            for worker in _workers(program):
                os.kill(worker, signal.SIGKILL)
        at = until_answered(program, location)
        assert 0 <= at <= 500_003
        with Wire(program.address) as wire:
            answer = wire.send(patch(location, at, len(BODY) - at), BODY[at:]).response()
        assert floats(answer) == X.tolist()
        program.kill(signal.SIGTERM)
        assert program.ends() == 0
        assert program.complaints().count("\n") <= 4, "two deaths"


@pytest.mark.slow
def test_what_a_killed_server_has_left_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    arguments = ("--workers", "2", "--resumable-uploads", "4")
    with serving(MODELS, *arguments) as program:
        workers = _workers(program)
        program.kill(signal.SIGKILL)
        program.ends()
        [left] = tmp_path.glob("streamcodec-uploads-*")
    with serving(MODELS, *arguments) as program:
        [present] = tmp_path.glob("streamcodec-uploads-*")
        assert present != left
        program.kill(signal.SIGTERM)
        assert program.ends() == 0
    assert [*tmp_path.glob("streamcodec-uploads-*")] == []
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


def until_answered(program: Program, location: str) -> int:
    """Ask for the offset until a worker answers it."""
    offsets: list[int] = []

    def answers() -> bool:
        try:
            offsets.append(offset_when_free(program.address, location) or 0)
        except OSError:
            return False
        return True

    until(answers)
    return offsets[-1]


def _workers(program: Program) -> list[int]:
    children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children").read_text(encoding="ascii")
    return [int(child) for child in children.split()]


def test_two_servers_share_a_directory(tmp_path: Path) -> None:
    """The other one gives way though it has not noticed that its connection is lost."""
    with server_at(tmp_path) as first, server_at(tmp_path) as second, Wire(first) as lost:
        location = begun(lost, body=BODY[:500_003])
        until(lambda: asked(second, location).status == 503 or asked(second, location).status == 204)
        at = offset_when_free(second, location)
        assert at is not None
        assert 0 < at <= 500_003
        with Wire(second) as wire:
            answer = wire.send(patch(location, at, len(BODY) - at), BODY[at:]).response()
        assert floats(answer) == X.tolist()
        assert lost.is_closed()
        assert asked(first, location).status == 404


def test_a_server_that_ends_while_the_model_works_has_all_of_the_upload(tmp_path: Path) -> None:
    called, goes_on = threading.Semaphore(0), threading.Event()

    def predict(request: InferenceRequest) -> dict[str, Any]:
        x = request.inputs["x"]
        x += 1  # of which the next call sees nothing
        called.release()
        assert goes_on.wait(60)
        return {"x": x}

    def registry() -> ModelRegistry:
        return ModelRegistry.of([Model(name="identity", predict=predict)])

    with server_at(tmp_path, registry(), shutdown_timeout=0.01) as address:
        wire = Wire(address)
        location = begun(wire, body=BODY)
        assert called.acquire(timeout=60)
    with wire:
        assert wire.is_closed()
    goes_on.set()
    with server_at(tmp_path, registry()) as address:
        assert offset(address, location) == len(BODY)
        with Wire(address) as wire:
            assert floats(wire.send(patch(location, len(BODY), 0)).response()) == (X + 1).tolist()


def test_uploads_make_room_for_others(tmp_path: Path) -> None:
    """Within the bytes of the directory, and the number; nobody is sent away while some are interrupted."""
    with server_at(tmp_path, max_upload_dir_bytes=3 * len(BODY)) as address:
        locations = []
        for nbytes in (1000, 0, 3000):
            with Wire(address) as wire:
                locations.append(begun(wire, body=BODY[:nbytes]))
                all_there(wire)
                until(lambda: offset_when_free(address, locations[-1]) == nbytes)  # noqa: B023 - called at once
        assert [offset_when_free(address, each) for each in locations] == [1000, None, 3000]
        with Wire(address) as wire:
            length = f"Upload-Length: {4 * len(BODY)}"
            beginning = head("/v2/models/identity/infer", *FIELDS, MORE, length, "Content-Length: 0")
            answer = wire.send(beginning).response()
        assert (answer.status, answer.fields["upload-limit"]) == (503, "max-size=0")
        assert [offset_when_free(address, each) for each in locations] == [1000, None, 3000]


@pytest.mark.parametrize("change", ["garbage", "empty", "short", "other length"])
def test_damaged_files_are_removed(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "uploads"
    with server_at(folder) as address, Wire(address) as wire:
        location = begun(wire, body=BODY[:100_000])
        offset(address, location)
    [file] = folder.iterdir()
    data = bytearray(file.read_bytes())
    match change:
        case "garbage":
            data[:20] = bytes(20)
        case "empty":
            data.clear()
        case "short":
            del data[-1:]
        case _:
            data[38:46] = (len(BODY) + 1).to_bytes(8, "little")
    file.write_bytes(data)
    with server_at(folder) as address:
        assert asked(address, location).status == 404
    assert [*folder.iterdir()] == []


def test_what_is_no_upload_stays_outside(tmp_path: Path) -> None:
    folder, outside = tmp_path / "uploads", tmp_path / "outside"
    folder.mkdir(0o700)
    outside.write_bytes(b"mine")
    (folder / "link.upload").symlink_to(outside)
    os.mkfifo(folder / "pipe.upload", 0o600)
    (folder / "notes.txt").write_bytes(b"mine, too")
    with server_at(folder) as address, Wire(address) as wire:
        begun(wire, body=BODY[:1000])
    assert outside.read_bytes() == b"mine"
    assert (folder / "notes.txt").read_bytes() == b"mine, too"


def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    for name, mode in (("open", 0o755), ("group", 0o770)):
        folder = tmp_path / name
        folder.mkdir()
        folder.chmod(mode)
        with pytest.raises(LocalProtocolError, match="chmod 700"):
            Server(Service(models()), replace(KIND, upload_dir=folder))
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for path, reason in ((link, "Not a directory"), (tmp_path / "no" / "such", "No such file")):
        with pytest.raises(LocalProtocolError, match=reason):
            Server(Service(models()), replace(KIND, upload_dir=path))
    with pytest.raises(LocalProtocolError, match="resumable_uploads"):
        ServerOptions(upload_dir=tmp_path)
    with pytest.raises(LocalProtocolError, match="path of a directory"):
        ServerOptions(upload_dir=5, resumable_uploads=1)  # type: ignore[arg-type]


def folder_of(path: Path, clock: Callable[[], float], boot: bytes = bytes(16)) -> UploadFolder:
    return UploadFolder(
        path, max_files=2, max_bytes=1 << 20, keep_seconds=60.0, lifetime_seconds=600.0, clock=clock, boot=boot
    )


HEAD = RequestHead(
    method="POST",
    target="/v2/models/m/infer",
    fields=Fields.of(((b"host", b"x"), (b"authorization", b"secret"), (b"inference-header-content-length", b"100"))),
    content_length=5000,
)


@pytest.mark.parametrize("is_synced", [True, False])
def test_after_a_stop_of_the_machine_only_what_was_synced_counts(tmp_path: Path, *, is_synced: bool) -> None:
    path, now = tmp_path / "uploads", [1000.0]
    folder = folder_of(path, lambda: now[0])
    file = folder.create("id", HEAD)
    assert file is not None
    file.write(0, b"x" * 300)
    file.count(300)
    folder.keep(file)
    if is_synced:
        folder.sync()
    folder.close()
    now[0] = 5.0  # the clock of another run of the machine
    folder = folder_of(path, lambda: now[0], boot=b"1" * 16)
    file = folder.find("id")
    assert file is not None
    assert file.received == (300 if is_synced else 0)
    assert folder.seconds_left(file) == 60
    assert file.head.fields.items == (HEAD.fields.items[0], HEAD.fields.items[2]), "a password is not written down"
    folder.keep(file)
    now[0] = 65.0
    folder.sweep()
    assert len(folder) == 0
    folder.close()


def test_a_time_that_is_over_ends_an_upload_before_the_next_sweep(tmp_path: Path) -> None:
    now = [0.0]
    folder = folder_of(tmp_path / "uploads", lambda: now[0])
    file = folder.create("id", HEAD)
    assert file is not None
    folder.keep(file)
    now[0] = 60.0
    with pytest.raises(FileNotFoundError):
        folder.find("id")
    folder.close()


def test_a_file_that_was_removed_meanwhile_is_not_found(tmp_path: Path) -> None:
    """Two processes open it; one of them has it until it is complete."""
    folder = folder_of(tmp_path / "uploads", lambda: 0.0)
    file = folder.create("id", HEAD)
    assert file is not None
    assert folder.find("id") is None
    assert file.is_asked_for
    file.remove()
    file.remove()
    with pytest.raises(FileNotFoundError):
        folder.find("id")
    folder.close()


_FULL = """
import resource, signal, sys
from pathlib import Path
from tests.server.memory import test_stored_uploads as tests
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
folder = tests.folder_of(Path(sys.argv[1]), lambda: 0.0)
print(folder.create("id", tests.HEAD), len(folder), flush=True)
"""


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A limit of the process for files is the same to it."""
    command = [sys.executable, "-c", _FULL, str(tmp_path / "uploads")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert printed.stdout == "None 0\n"


def test_tensors_lie_in_the_file(tmp_path: Path) -> None:
    """Those that are aligned there; so nothing is copied when an upload goes on."""
    folder = folder_of(tmp_path / "uploads", lambda: 0.0)
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "a": np.arange(100, dtype=np.float32),
        "b": np.arange(3, dtype=np.uint8),
        "c": np.arange(9, dtype=np.float32),
    }
    message = encode_request(arrays)
    fields = tuple((name.lower().encode(), value.encode()) for name, value in message.headers)
    request = RequestHead(method="POST", target="/x", fields=Fields.of(fields), content_length=message.body_length)
    file = folder.create("id", request)
    assert file is not None
    elsewhere: list[str] = []

    def otherwise(spec: TensorSpec) -> Placement:
        elsewhere.append(spec.name)
        return NewArray()

    decoder = request_decoder(
        header_length=message.header_length,
        body_length=message.body_length,
        place=partial(file.place, otherwise=otherwise),
    )
    body = b"".join(message.buffers)
    assert decoder.feed(body) == len(body)
    start = message.header_length or 0
    assert file.body[start : start + 403] == body[start : start + 403], "a and b"
    assert elsewhere == ["c"]
    assert [file.holds(at) for at in (start - 1, start, start + 402, start + 403)] == [False, True, True, False]
    file.remove()
    folder.close()
