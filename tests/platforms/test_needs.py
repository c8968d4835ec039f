"""`tests/platforms/run` says what it needs before it makes anything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run")


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment with few commands."""
    for name in ("dirname", "realpath", "uname"):
        (tmp_path / name).symlink_to(shutil.which(name) or pytest.skip(f"{name} is not here"))
    return {"PATH": str(tmp_path), "ROOTS": str(tmp_path / "roots"), "PYTHON": "no-python"}


def _complaint(environment: dict[str, str], *arguments: str) -> str:
    bash = shutil.which("bash") or pytest.skip("bash is not here")
    result = subprocess.run([bash, RUN, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert not Path(environment["ROOTS"]).exists()
    (line,) = result.stderr.splitlines()
    return line


def test_all_that_is_missing_is_named(bare: dict[str, str]) -> None:
    missing = ["root"] * bool(os.geteuid()) + ["apt", "mmdebstrap", "util-linux", "qemu-user-static"]
    missing += ["debian-archive-keyring"] * (not Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists())
    missing += ["pip for no-python"]
    assert _complaint(bare, "s390x") == f"tests/platforms/run needs, and does not find: {', '.join(missing)}"


def test_an_unknown_processor_is_named(bare: dict[str, str]) -> None:
    assert (
        _complaint(bare, "armhf", "sparc")
        == "tests/platforms/run knows s390x armhf arm64 riscv64 i386 amd64, not sparc"
    )
