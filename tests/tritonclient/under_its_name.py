"""A plugin of pytest (`-p tests.tritonclient.under_its_name`) that puts our package in the place of tritonclient."""

from __future__ import annotations

import importlib
import sys

for _name in ("", ".utils", ".utils.shared_memory", ".http", ".http.aio", ".http.auth", ".http.aio.auth"):
    sys.modules[f"tritonclient{_name}"] = importlib.import_module(f"streamcodec.tritonclient{_name}")
