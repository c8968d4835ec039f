"""Run an application of aiohttp: `python -m tests.embedding.run_aiohttp PORT MODULE:NAME [plain]`."""

from __future__ import annotations

import sys
from importlib import import_module

from aiohttp import web

if __name__ == "__main__":
    _, port, path, *plain = sys.argv
    module, _, name = path.partition(":")
    application = getattr(import_module(module), name)(auto_decompress=not plain)
    web.run_app(
        application,
        host="127.0.0.1",
        port=int(port),
        print=lambda _: None,
        access_log=None,
        shutdown_timeout=5,
        auto_decompress=not plain,
    )
