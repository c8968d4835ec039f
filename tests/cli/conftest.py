"""Files as Windows has them, for the commands that rename or remove some."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def _is_in_use(path: str | os.PathLike[str]) -> bool:
    """Tell whether this process maps a file or has it open."""
    name = os.path.realpath(path)
    if name in Path("/proc/self/maps").read_text(encoding="utf-8"):
        return True
    return any(os.path.realpath(link) == name for link in Path("/proc/self/fd").iterdir())


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file that is mapped or open can be renamed, replaced or removed, and no room can be reserved."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("asks Linux")

    def strictly(act: Callable[..., None]) -> Callable[..., None]:
        def acted(*paths: str, **options: int) -> None:
            if any(map(_is_in_use, paths)):
                raise PermissionError(errno.EACCES, "it is used by a process", *paths[:1])
            act(*paths, **options)

        return acted

    for name in ("link", "rename", "replace", "unlink", "remove"):
        monkeypatch.setattr(os, name, strictly(getattr(os, name)))
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
