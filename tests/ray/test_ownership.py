"""Ownership: replicas of one application share a port, and those of two do not."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("fcntl", reason="there are no shared ports")

from streamcodec import LocalProtocolError
from streamcodec.ray.ownership import own, owner_here

_HOLDS = """
import sys
from streamcodec.ray.ownership import own
file = own('::', 9, 'a#x')
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_replicas_of_one_application_share_a_port() -> None:
    with own("127.0.0.1", 9, "a#x"), own("127.0.0.1", 9, "a#x"), own("127.0.0.1", 10, "b#x"), own("::1", 9, "b#x"):
        pass


@pytest.mark.parametrize("other", ["b#x", "a#y", "a#xx", ""])
def test_another_application_is_refused_until_all_have_gone(other: str) -> None:
    with own("127.0.0.1", 9, "a#x"):
        with own("127.0.0.1", 9, "a#x"), pytest.raises(LocalProtocolError, match="belongs to 'a#x'"):
            own("127.0.0.1", 9, other)
        with pytest.raises(LocalProtocolError, match="give one of them another port"):
            own("127.0.0.1", 9, other)
    with own("127.0.0.1", 9, other), pytest.raises(LocalProtocolError, match=f"belongs to '{other}'"):
        own("127.0.0.1", 9, "a#x")


def test_it_ends_with_the_process() -> None:
    with subprocess.Popen([sys.executable, "-c", _HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        with pytest.raises(LocalProtocolError, match="belongs to 'a#x'"):
            own("::", 9, "b#x")
        process.kill()
        process.wait()
        own("::", 9, "b#x").close()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    with own("h", 9, "a"):
        (lock,) = tmp_path.iterdir()
    lock.unlink()
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        own("h", 9, "a")
    assert not (tmp_path / "elsewhere").exists()


def test_outside_of_ray_there_is_no_owner() -> None:
    assert owner_here() == ""
