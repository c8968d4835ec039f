"""PyInstaller learns here what the command line loads by name; the entry point `pyinstaller40` names this folder."""

from __future__ import annotations

from pathlib import Path


def hook_dirs() -> list[str]:
    """Return the folder of the hooks, for PyInstaller."""
    return [str(Path(__file__).parent)]
