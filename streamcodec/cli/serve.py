"""`streamcodec serve`: serve models over HTTP."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Iterable
from typing import Any

from streamcodec.cli.arguments import Commands, port
from streamcodec.core.errors import LocalProtocolError
from streamcodec.server import run as run_server
from streamcodec.service import Model, ModelRegistry, Service, demo_models

_DESCRIPTION = """\
Serve models by the V2 inference protocol until Ctrl-C or SIGTERM.

MODULE:OBJECT names what to serve: a Model, a list of Models, a ModelRegistry, or a function that returns one of these.
The module is looked for in the current directory first. Without it two demo models are served: 'identity' answers its
inputs, 'sink' answers the number of tensor bytes it received.
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "serve",
        help="serve models over HTTP",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="?", metavar="MODULE:OBJECT", help="what to serve (default: the demo models)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument("--port", type=port, default=8000, help="port to listen at; 0 picks one (default: %(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Serve until a signal."""
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s: %(message)s")
    models = demo_models() if options.models is None else load_models(options.models)
    if run_server(Service(models), host=options.host, port=options.port, on_listening=_announce):
        os._exit(0)  # models are still running in threads, for which the interpreter would wait


def load_models(name: str) -> ModelRegistry:
    """Import what `MODULE:OBJECT` names.

    Raises:
        LocalProtocolError: there is no such module or object, or it is nothing that can be served.
    """
    module_name, _, path = name.partition(":")
    sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
        for attribute in path.split("."):
            found = getattr(found, attribute)
        return _registry(found() if callable(found) else found, name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise LocalProtocolError(f"{name!r} names nothing to serve: {error}") from None


def _registry(found: object, name: str) -> ModelRegistry:
    if isinstance(found, ModelRegistry):
        return found
    models = [found] if isinstance(found, Model) else found
    if isinstance(models, Iterable):
        models = list(models)
        if all(isinstance(model, Model) for model in models):
            return ModelRegistry.of(models)
    raise LocalProtocolError(f"{name!r} is {type(found).__name__}, not a Model, a list of Models or a ModelRegistry")


def _announce(host: str, number: int) -> None:
    authority = f"[{host}]" if ":" in host else host
    print(f"listening on http://{authority}:{number}", flush=True)
