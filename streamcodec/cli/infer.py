"""`streamcodec infer`: send arrays from files to a model, and write its outputs to files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from streamcodec.cli.arguments import Commands, seconds
from streamcodec.client import Client
from streamcodec.core.compression import ENCODINGS
from streamcodec.core.datatypes import datatype_of
from streamcodec.core.errors import LocalProtocolError

_DESCRIPTION = """\
Send arrays from .npy files to a model of any V2 server, and write each output to OUTPUT_DIR/NAME.npy.

Inputs are memory-mapped, so a tensor may be larger than memory; arrays of strings are BYTES. Of the outputs, BYTES are
written as numpy's fixed-width byte strings, and BF16 as its bits in UINT16.
"""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "infer",
        help="send arrays to a model",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", metavar="URL", help="of the server, as http://127.0.0.1:8000")
    parser.add_argument("model", metavar="MODEL", help="name of the model")
    parser.add_argument(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        type=_input,
        metavar="NAME=FILE.npy",
        help="an input; give one for each",
    )
    parser.add_argument("--output-dir", type=Path, default=Path(), help="where to write (default: this folder)")
    parser.add_argument("--model-version", metavar="VERSION", help="of the model (default: the server's choice)")
    parser.add_argument("--timeout", type=seconds, default=60.0, help="seconds without progress (default: %(default)g)")
    parser.add_argument(
        "--request-compression",
        choices=ENCODINGS,
        help="compress the request, where that makes it smaller, in memory; for slow networks (default: do not)",
    )
    parser.add_argument(
        "--response-compression",
        choices=ENCODINGS,
        help="ask the server to compress its answer; it need not do so (default: do not ask)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Make the request and write the outputs."""
    inputs = dict(options.inputs)
    if len(inputs) < len(options.inputs):
        raise LocalProtocolError("an input is given twice")
    options.output_dir.mkdir(parents=True, exist_ok=True)
    client = Client(
        options.url,
        timeout=options.timeout,
        request_compression=options.request_compression,
        response_compression=options.response_compression,
    )
    with client:
        result = client.infer(options.model, inputs, version=options.model_version)
    for name, array in result.outputs.items():
        # The server chooses the names: encoded, they can name no other folder.
        path = options.output_dir / f"{quote(name, safe=' ')}.npy"
        np.save(path, _savable(array, name))
        print(f"{name}: {datatype_of(array.dtype).name} {list(array.shape)} -> {path}")


def _input(text: str) -> tuple[str, np.ndarray[Any, Any]]:
    """Read `NAME=FILE.npy`; the array stays on disk until it is sent."""
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.npy")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"cannot read {path!r}: {error}") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise argparse.ArgumentTypeError(f"{path!r} is an archive of several arrays, not a .npy file")
    return name, array


def _savable(array: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Return what a .npy file can hold without pickling."""
    if datatype_of(array.dtype).name == "BF16":
        return array.view("<u2")
    if array.dtype != object:
        return array
    fixed = array.astype(bytes) if array.size else array.astype("S1")
    if not np.array_equal(fixed.astype(object), array):
        raise LocalProtocolError(f"output {name!r} has elements that end in NUL, which a .npy file cannot hold")
    return fixed
