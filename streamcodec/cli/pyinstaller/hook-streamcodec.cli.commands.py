"""Hook: a command is a module that is loaded by its name, which PyInstaller cannot see in the code."""

from PyInstaller.utils.hooks import collect_submodules

hiddenimports = collect_submodules("streamcodec.cli")
