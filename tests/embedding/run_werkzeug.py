"""Run werkzeug: `python -m tests.embedding.run_werkzeug PORT MODULE:NAME`."""

from __future__ import annotations

import sys
from importlib import import_module

from werkzeug.serving import WSGIRequestHandler, run_simple


class Quiet(WSGIRequestHandler):
    """Keeps connections, and writes no line for each request."""

    protocol_version = "HTTP/1.1"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write nothing."""


if __name__ == "__main__":
    _, port, path = sys.argv
    module, _, name = path.partition(":")
    application = getattr(import_module(module), name)
    run_simple("127.0.0.1", int(port), application, threaded=True, request_handler=Quiet)
