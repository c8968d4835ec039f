"""`streamcodec infer`: sends arrays from files to a model, and shows its outputs or writes them to files."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from streamcodec.cli.arguments import UNITS, checked, count, duration, seconds, size, size_text
from streamcodec.cli.files import check_free
from streamcodec.cli.inferring.asking import add_asking, add_compression, compression_of, media_type_of, parameters_of
from streamcodec.cli.inferring.inputs import add_inputs, given_inputs, made_inputs
from streamcodec.cli.inferring.making import add_making
from streamcodec.cli.inferring.outputs import OutputFiles, path_of
from streamcodec.cli.inferring.trust import trusted
from streamcodec.cli.output import complain, say
from streamcodec.cli.progress import UploadProgress, shown_progress
from streamcodec.client import Client, InferResult, ServerError
from streamcodec.client.connections.address import Address
from streamcodec.engine.errors import LocalProtocolError
from streamcodec.engine.events import TensorReceived
from streamcodec.engine.memory.placement import Place

_MAX_PADDED_BYTES: Final = 256 << 20

_TOTAL_SECONDS: Final = 3600.0

_SHOWN_VALUES: Final = 8
_SHOWN_BYTES: Final = 40

_DESCRIPTION = """\
Send arrays from files (.npy, .npz, .safetensors, images) to a model of any V2 server, and show the first values of its
outputs. With --output-dir, write each whole output to OUTPUT_DIR/NAME.npy. No file is replaced without --force, and no
file is ever incomplete.

Inputs of .npy files are memory-mapped, and large outputs are written as they come. So a tensor may be larger than
memory. A large output that the disk has no room for is refused before it is received, and then no file is written.
Arrays of strings are BYTES. BYTES outputs are written as numpy's fixed-width byte strings, BF16 outputs as their bits
in UINT16. If another output cannot be written, the others still are.
"""

_EPILOG = """\
examples:
  python -c 'import numpy; numpy.save("x.npy", numpy.ones((2, 3), "float32"))'
  streamcodec infer http://127.0.0.1:8000 identity --input x=x.npy
  streamcodec infer http://127.0.0.1:8000 identity --input x=x.npy --output-dir outputs --force
  streamcodec infer http://127.0.0.1:8000 net --input image=cat.jpg --input weights.npz
  streamcodec infer http://127.0.0.1:8000 net --random --size 8 --parameter temperature=0.5
  streamcodec infer http://127.0.0.1:8000 net --input scan=scan.npy --resumable scan.upload --outage 10m
  my_camera | streamcodec infer http://127.0.0.1:8000 net --input image=-
  streamcodec infer http://models.example net --input image=cat.npy --output scores --header 'Authorization: Bearer ...'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Make the command's parser."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument(
        "url",
        type=checked(Address.of),
        metavar="URL",
        help="of the server, as http://127.0.0.1:8000 or http+unix://%%2Frun%%2Fx.sock",
    )
    parser.add_argument("model", metavar="MODEL", help="name of the model")
    group = parser.add_argument_group("request")
    add_inputs(group)
    add_asking(group)
    add_making(group)
    _add_files(parser)
    _add_transfer(parser)
    parser.set_defaults(run=run)


def _add_files(parser: argparse.ArgumentParser) -> None:
    """Add the options about the outputs."""
    group = parser.add_argument_group("files")
    group.add_argument("--output-dir", type=Path, metavar="DIR", help="where to write (default: write no files)")
    group.add_argument("--force", action="store_true", help="replace files that exist already")
    group.add_argument(
        "--max-padded",
        dest="max_padded_bytes",
        type=size,
        default=_MAX_PADDED_BYTES,
        metavar="SIZE",
        help="most bytes of one BYTES output, with each element padded to the longest; optionally with "
        f"{UNITS} (default: {size_text(_MAX_PADDED_BYTES)})",
    )


def _add_transfer(parser: argparse.ArgumentParser) -> None:
    """Add the options about time and form of the transfer."""
    group = parser.add_argument_group("transfer")
    group.add_argument("--timeout", type=seconds, default=60.0, help="seconds without progress (default: %(default)g)")
    group.add_argument(
        "--total-timeout",
        type=seconds,
        help="seconds for the whole call, even with progress (default: 3600, and none with --resumable)",
    )
    group.add_argument(
        "--resumable",
        metavar="FILE",
        help="go on where the connection broke, also when this command is run again with the same inputs; FILE keeps "
        "the name of the upload meanwhile; the server needs --resumable-uploads",
    )
    group.add_argument(
        "--outage",
        type=duration,
        metavar="TIME",
        help="time without progress before a --resumable request gives up, as 90s, 10m or 2h (default: 60s)",
    )
    group.add_argument(
        "--repeat",
        type=count,
        default=1,
        metavar="COUNT",
        help="make the call so many times, show how long the calls took, and use the last answer; `bench` measures "
        "more (default: %(default)s)",
    )
    add_compression(group)


def run(options: argparse.Namespace) -> None:
    """Make the request, and show or write the outputs."""
    compression = compression_of(options)
    if options.outage is not None and options.resumable is None:
        options.fail("--outage is for a request that is resumed: add --resumable FILE")
    if options.resumable is not None and compression.request is not None:
        options.fail("--resumable: a compressed request cannot be resumed; leave its compression out")
    if options.output_dir is not None:
        if options.output_dir.is_file():
            raise NotADirectoryError(f"--output-dir {options.output_dir}: it is a file, and has to be a directory")
        options.output_dir.mkdir(parents=True, exist_ok=True)
        for name in options.outputs or ():  # check now, and not after the model has done its work
            check_free(path_of(name, options.output_dir), replaces=options.force)
    client = Client(
        options.url,
        timeout=options.timeout,
        ssl_context=trusted(options),
        total_timeout=options.total_timeout or (_TOTAL_SECONDS if options.resumable is None else None),
        request_compression=compression.request,
        response_compression=compression.response,
        media_type=media_type_of(options),
        **({"headers": options.headers} if options.headers else {}),
    )
    with ExitStack() as stack:
        files = None
        if options.output_dir is not None:
            files = stack.enter_context(OutputFiles.opened(options))
        times, result = _call(client, options, None if files is None else files.place)
        if not result.tensors:
            complain("the answer has no outputs")
        options.inputs.clear()  # Windows replaces no file that is mapped, and an output may replace an input
        if options.repeat > 1:
            shortest, middle, longest = (f"{seconds * 1e3:.2f}" for seconds in (min(times), median(times), max(times)))
            say(f"{options.repeat} calls, in ms: shortest {shortest}, median {middle}, longest {longest}")
        if files is None:
            say(*(f"{_name(name, tensor)} = {_values(tensor)}" for name, tensor in result.tensors.items()))
        else:
            _write_all(files, result.tensors)


def _call(client: Client, options: argparse.Namespace, place: Place | None) -> tuple[list[float], InferResult]:
    """Make the calls; return the seconds of each, and the last result."""
    upload = UploadProgress(client)
    with client, shown_progress(client, upload):
        inputs = made_inputs(options, client) if options.is_random else given_inputs(options)
        call = partial(
            client.infer,
            options.model,
            inputs,
            outputs=options.outputs,
            request_id=options.request_id,
            parameters=parameters_of(options),
            version=options.model_version,
            is_binary=not options.is_json,
            place=place,
            **({} if options.resumable is None else {"resumable": options.resumable, "on_resume": upload.resumed}),
            **({} if options.outage is None else {"outage": options.outage}),
        )
        try:
            return _repeat(call, options.repeat)
        except ServerError as error:
            if not inputs:
                error.add_note("the request has no inputs: --input gives one, and --random makes all")
            raise


def _repeat(call: Callable[[], InferResult], repetitions: int) -> tuple[list[float], InferResult]:
    """Call so many times; return the seconds of each call, and the last result."""
    times, result = [], None
    for _ in range(repetitions):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    if result is None:
        raise LocalProtocolError("there must be at least one call")
    return times, result


def _write_all(files: OutputFiles, tensors: Mapping[str, TensorReceived]) -> None:
    """Write all outputs first and report afterwards, because the reader of the output may leave at any time."""
    lines = []
    for name, tensor in tensors.items():
        try:
            lines.append(f"{_name(name, tensor)} -> {files.write(name, tensor)}")
        except (LocalProtocolError, MemoryError, OSError) as error:
            complain(f"output {name}: {getattr(error, 'strerror', None) or str(error) or type(error).__name__}")
    say(*lines)
    if len(lines) < len(tensors):
        raise LocalProtocolError(f"{len(tensors) - len(lines)} of {len(tensors)} outputs could not be written")


def _name(name: str, tensor: TensorReceived) -> str:
    return f"{name}: {tensor.spec.datatype.name} {list(tensor.spec.shape)}"


def _values(tensor: TensorReceived) -> str:
    """Return the first values as text."""
    if tensor.spec.datatype.is_bytes:
        elements = tensor.elements
        shown = [_element(elements[number]) for number in range(min(len(elements), _SHOWN_VALUES))]
        count = len(elements)
    else:
        values = tensor.array.reshape(-1)
        count, values = values.size, values[:_SHOWN_VALUES]
        if tensor.spec.datatype.name == "BF16":  # its bits are the first half of FP32
            values = (values.view("<u2").astype("<u4") << 16).view("<f4")
        shown = [str(value) for value in values]
    return ", ".join([*shown, "..."] if count > _SHOWN_VALUES else shown) or "no values"


def _element(element: bytes) -> str:
    return repr(element) if len(element) <= _SHOWN_BYTES else f"{element[:_SHOWN_BYTES]!r}... ({len(element)} bytes)"
