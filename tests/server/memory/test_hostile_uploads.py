"""Directories of uploads with what no server has put there, and disks that fail: uploads are lost, never the server."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamcodec.http import RequestHead
from streamcodec.http.heads.messages import Fields
from streamcodec.runtime.uploads.folder import UploadFolder
from tests.server.memory.test_stored_uploads import HEAD, folder_of, server_at
from tests.server.memory.uploading import BODY, FIELDS, MORE, X, all_there, asked, begun, patch
from tests.server.wire import Wire, floats, head
from tests.waiting import until

FIXED = struct.Struct("<24s16sQQQddIx")
LENGTH, HEADER_LENGTH = 5000, 100
KEPT = {"target": "/v2/models/m/infer", "fields": [["inference-header-content-length", str(HEADER_LENGTH)]]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "uploads"


def put(folder: UploadFolder, path: Path, text: bytes | None = None, **numbers: Any) -> Path:  # noqa: ANN401 - integers and floats
    """Write the file of the upload "id" anew, with some numbers or a head that lie."""
    created = folder.create("id", HEAD)
    assert created is not None
    file = path / created.name
    created.remove()
    text = json.dumps(KEPT).encode() if text is None else text
    usual = {"received": 0, "synced": 0, "expires": 60.0, "ends": 600.0, "size": len(text)}
    start = FIXED.size + len(text)
    start += -(start + HEADER_LENGTH) % 64
    fixed = FIXED.pack(b"streamcodec uploads 1\0\0\0", bytes(16), LENGTH, *{**usual, **numbers}.values())
    file.write_bytes((fixed + text).ljust(start, b"\0") + bytes(LENGTH))
    file.chmod(0o600)
    return file


def test_a_file_of_this_form_is_an_upload(path: Path) -> None:
    """So what the next test refuses, it refuses for one thing."""
    folder = folder_of(path, lambda: 0.0)
    put(folder, path)
    file = folder.find("id")
    assert file is not None
    assert (file.head.target, file.length, file.received) == (KEPT["target"], LENGTH, 0)
    file.close()
    folder.close()


def kept(**members: Any) -> bytes:  # noqa: ANN401 - of JSON
    return json.dumps({**KEPT, **members}).encode()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        pytest.param(None, {"received": LENGTH + 1}, id="more-received-than-there-is"),
        pytest.param(None, {"synced": (1 << 64) - 1}, id="more-synced-than-there-is"),
        pytest.param(None, {"size": (1 << 32) - 1}, id="a-head-beyond-the-file"),
        pytest.param(None, {"size": 0}, id="no-head"),
        pytest.param(None, {"expires": math.nan}, id="a-time-that-is-none"),
        pytest.param(None, {"expires": math.inf, "ends": math.inf}, id="for-ever"),
        pytest.param(None, {"expires": 700.0}, id="longer-than-to-its-end"),
        pytest.param(b"[" * 100_000, {}, id="nested"),
        pytest.param(b"9" * 100_000, {}, id="digits"),
        pytest.param(b"\xff", {}, id="no-utf8"),
        pytest.param(b"null", {}, id="no-object"),
        pytest.param(kept(target=5), {}, id="a-target-that-is-no-text"),
        pytest.param(kept(fields=5), {}, id="fields-that-are-none"),
        pytest.param(kept(fields=[["host"]]), {}, id="a-field-without-a-value"),
        pytest.param(kept(fields=[["host", "\u4e2d"]]), {}, id="a-value-that-no-head-has"),
        pytest.param(kept(fields=[["inference-header-content-length", "x"]]), {}, id="a-length-that-is-none"),
        pytest.param(kept(fields=[["a", "b"]] * 200_000), {}, id="very-many-fields"),
    ],
)
@pytest.mark.parametrize("way", ["swept", "found"])
def test_a_file_that_lies_is_removed(path: Path, text: bytes | None, numbers: dict[str, Any], way: str) -> None:
    folder = folder_of(path, lambda: 0.0)
    put(folder, path, text, **numbers)
    if way == "swept":
        folder.sweep()
    else:
        with pytest.raises(FileNotFoundError):
            folder.find("id")
    assert [*path.iterdir()] == []
    folder.close()


def test_what_is_no_file_of_ours_takes_no_place(path: Path, tmp_path: Path) -> None:
    """Links, also to themselves, to directories and to files that are there twice; sockets, pipes, devices."""
    folder = folder_of(path, lambda: 0.0)
    outside = tmp_path / "outside"
    outside.write_bytes(bytes(500))
    for name, target in [
        ("file", outside),
        ("folder", tmp_path),
        ("nothing", path / "no"),
        ("self", path / "self.upload"),
    ]:
        (path / f"{name}.upload").symlink_to(target)
    (path / "directory.upload").mkdir()
    os.mkfifo(path / "pipe.upload")
    os.link(outside, path / "twice.upload")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path / "socket.upload"))
        assert len(folder) == 1, "a file of this user counts until it is looked at"
        folder.sweep()
        assert len(folder) == 0
        files = [folder.create(upload_id, HEAD) for upload_id in ("1", "2")]
    assert None not in files, "there is room for two"
    assert outside.read_bytes() == bytes(500)
    assert not (path / "pipe.upload").exists()
    assert not (path / "twice.upload").exists()
    folder.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of others")
def test_a_file_of_another_user_is_not_read(path: Path) -> None:
    folder = folder_of(path, lambda: 0.0)
    os.chown(put(folder, path), 1, 1)
    assert len(folder) == 0
    with pytest.raises(FileNotFoundError):
        folder.find("id")
    folder.close()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot reserve room")
@pytest.mark.parametrize("has_room", [True, False])
def test_a_copy_with_holes_gets_its_room_again(path: Path, monkeypatch: pytest.MonkeyPatch, *, has_room: bool) -> None:
    """`cp` leaves holes where nothing was received; to write to one on a full disk would end the process."""
    folder = folder_of(path, lambda: 0.0)
    created = folder.create("id", RequestHead(method="POST", target="/", fields=HEAD.fields, content_length=500_000))
    assert created is not None
    folder.keep(created)
    file = path / created.name
    beginning, nbytes = file.read_bytes()[:4096], file.stat().st_size
    file.write_bytes(beginning)
    os.truncate(file, nbytes)
    if file.stat().st_blocks * 512 >= nbytes:
        pytest.skip("this file system has no holes")
    folder.sweep()
    assert file.stat().st_blocks * 512 < nbytes, "a look writes nothing"
    if has_room:
        found = folder.find("id")
        assert found is not None
        assert file.stat().st_blocks * 512 >= nbytes
        found.close()
    else:
        monkeypatch.setattr(os, "posix_fallocate", failing(errno.ENOSPC))
        with pytest.raises(FileNotFoundError):
            folder.find("id")
        assert file.exists(), "there may be room later"
    folder.close()


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_disk_that_fails_loses_uploads_and_not_the_server(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(path, lambda: 0.0)
    one, two = folder.create("1", HEAD), folder.create("2", HEAD)
    assert one is not None
    assert two is not None
    folder.keep(two)
    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", failing(errno.EIO))
        patched.setattr(os, "unlink", failing(errno.EROFS))
        assert folder.create("3", HEAD) is None
        folder.sweep()
        folder.sync()
        one.remove()
    assert len(folder) == 2
    found = folder.find("1")
    assert found is not None, "its lock is free, and the next sweep removes it"
    found.remove()
    folder.close()


def test_a_head_that_is_too_long_for_a_file_has_no_upload(path: Path) -> None:
    folder = folder_of(path, lambda: 0.0)
    fields = Fields.of(tuple((b"x", b"\xff" * 1000) for _ in range(200)))
    assert folder.create("id", RequestHead(method="POST", target="/", fields=fields, content_length=5)) is None
    assert [*path.iterdir()] == []
    folder.close()


def test_a_directory_that_is_gone(path: Path) -> None:
    """What is being brought goes on; what was interrupted is lost, and nothing new begins."""
    with server_at(path) as address, Wire(address) as wire:
        with Wire(address) as other:
            interrupted = begun(other, body=BODY[:1000])
            all_there(other)
        until(lambda: asked(address, interrupted).status == 204)
        location = begun(wire, body=BODY[:1000])
        shutil.rmtree(path)
        assert floats(wire.send(BODY[1000:]).response()) == X.tolist()
        assert [asked(address, each).status for each in (location, interrupted)] == [404, 404]
        with Wire(address) as new:
            lengths = [f"Upload-Length: {len(BODY)}", "Content-Length: 0"]
            assert new.send(head("/v2/models/identity/infer", *FIELDS, MORE, *lengths)).response().status == 503
            assert new.send(patch(interrupted, 0, 5), BODY[:5]).response().status == 404
