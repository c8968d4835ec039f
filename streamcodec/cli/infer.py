"""`streamcodec infer`: send arrays from files to a model, and write its outputs to files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from streamcodec.cli.arguments import seconds, size, size_text
from streamcodec.cli.output import complain, say
from streamcodec.client import Client
from streamcodec.core.compression import ENCODINGS
from streamcodec.core.elements import Elements
from streamcodec.core.errors import LocalProtocolError
from streamcodec.core.events import TensorReceived
from streamcodec.core.prefixes import PREFIX_BYTES

_MAX_PADDED_BYTES: Final = 256 << 20

_DESCRIPTION = """\
Send arrays from .npy files to a model of any V2 server, and write each output to OUTPUT_DIR/NAME.npy.

Inputs are memory-mapped, so a tensor may be larger than memory; arrays of strings are BYTES. Of the outputs, BYTES are
written as numpy's fixed-width byte strings, and BF16 as its bits in UINT16. An output that cannot be written keeps none
of the others from being written.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make the command's parser."""
    parser.description = _DESCRIPTION
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
        "--total-timeout",
        type=seconds,
        default=3600.0,
        help="seconds for all of it, even where something moves now and then (default: %(default)g)",
    )
    parser.add_argument(
        "--max-padded",
        dest="max_padded_bytes",
        type=size,
        default=_MAX_PADDED_BYTES,
        metavar="SIZE",
        help="bytes of one BYTES output with each element padded to the longest; a number, or one with K, M, G or T "
        f"(default: {size_text(_MAX_PADDED_BYTES)})",
    )
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
        total_timeout=options.total_timeout,
        request_compression=options.request_compression,
        response_compression=options.response_compression,
    )
    with client:
        result = client.infer(options.model, inputs, version=options.model_version)
    lost = [name for name, tensor in result.tensors.items() if not _write(name, tensor, options)]
    if lost:
        raise LocalProtocolError(f"{len(lost)} of {len(result.tensors)} outputs could not be written")


def _write(name: str, tensor: TensorReceived, options: argparse.Namespace) -> bool:
    """Write an output to its file; return whether that went well, since others may go well if it does not."""
    # The server chooses the names: encoded, they can name no other folder.
    path = options.output_dir / f"{quote(name, safe=' ')}.npy"
    try:
        np.save(path, _savable(tensor, options.max_padded_bytes))
    except (LocalProtocolError, MemoryError, OSError) as error:
        complain(f"output {name}: {str(error) or type(error).__name__}")
        return False
    say(f"{name}: {tensor.spec.datatype.name} {list(tensor.spec.shape)} -> {path}")
    return True


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


def _savable(tensor: TensorReceived, max_padded_bytes: int) -> np.ndarray[Any, Any]:
    """Return what a .npy file can hold without pickling.

    Raises:
        LocalProtocolError: there is no such thing, or it is too large.
    """
    if tensor.spec.datatype.is_bytes:
        return _padded(tensor.elements, max_padded_bytes)
    return tensor.array.view("<u2") if tensor.spec.datatype.name == "BF16" else tensor.array


def _padded(elements: Elements, max_bytes: int) -> np.ndarray[Any, Any]:
    """Return BYTES elements as items of one length, which is that of the longest.

    Both is settled before there are any: one long element among many short ones makes a small answer a huge array.

    Raises:
        LocalProtocolError: an element ends in NUL, which padding cannot be told from, or all would be too large.
    """
    ends = elements.offsets[1:]
    lengths = np.diff(elements.offsets) - PREFIX_BYTES
    if not elements.data[ends[lengths > 0] - 1].all():
        raise LocalProtocolError("an element ends in NUL, which a .npy file cannot hold")
    longest = max(int(lengths.max(initial=0)), 1)
    nbytes = longest * len(lengths)
    if nbytes > max_bytes:
        raise LocalProtocolError(
            f"{len(lengths)} elements, padded to the {longest} bytes of the longest, take {nbytes} bytes; "
            f"--max-padded {nbytes} permits it, and the clients of the Python package need no padding"
        )
    return elements.array.astype(f"S{longest}")
