"""Inputs: the arrays that a command sends, from files or from chance. `infer`, `encode` and `bench` share this.

Arrays of .npy files are memory-mapped, so a tensor may be larger than memory.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from streamcodec.cli.making import random_inputs
from streamcodec.client import Client
from streamcodec.engine.errors import LocalProtocolError

Inputs = dict[str, np.ndarray[Any, Any]]


def add_inputs(group: argparse._ArgumentGroup) -> None:
    """Add the option for inputs from files."""
    group.add_argument(
        "--input",
        dest="inputs",
        action="append",
        default=[],
        type=_input,
        metavar="NAME=FILE.npy",
        help="an input; give one for each",
    )


def given_inputs(options: argparse.Namespace) -> Inputs:
    """Return the inputs from files.

    Raises:
        LocalProtocolError: one is given twice.
    """
    inputs = dict(options.inputs)
    if len(inputs) < len(options.inputs):
        raise LocalProtocolError("an input is given twice")
    return inputs


def made_inputs(options: argparse.Namespace, client: Client) -> Inputs:
    """Return random inputs, and those from files in their place.

    Raises:
        LocalProtocolError: the options do not fit the model.
        ServerError: the server gives no metadata of the model; so are the other errors of the client.
    """
    given = given_inputs(options)
    metadata = client.model_metadata(options.model, options.model_version)
    made = random_inputs(metadata, options.shapes, size=options.size, seed=options.seed, without=given)
    if not (made or given):
        raise LocalProtocolError("the model declares no inputs; give them with --shape, as --shape x:FP32:1,16")
    return {**made, **given}


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
