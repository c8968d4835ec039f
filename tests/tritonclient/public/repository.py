"""A Triton with the models that the programs ask for: `python -m tests.tritonclient.public.repository DIRECTORY PORT`.

Runs with the Python of an environment that has nvidia-pytriton (see `tests.interop.servers.triton_program`). The name
of the directory says which server it is. gRPC is at the next port: some of the programs talk to both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.interop.servers.triton_program import become_server, install_backend

_Tensors = Sequence[tuple[str, str, str]]
"""Name, data type and dimensions of each."""

_PAIR = ("INPUT0", "INPUT1"), ("OUTPUT0", "OUTPUT1")
_BATCHES = "max_batch_size: 8"
_TYPES = {"uint8": "UINT8", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64"}
_TYPES |= {"float16": "FP16", "float32": "FP32", "object": "STRING"}
_LETTERS = {"b": "int8", "s": "int16", "i": "int32", "l": "int64", "h": "float16", "f": "float32", "o": "object"}
_SWAPPED = {"bbb", "sss", "iii", "fff"}
_SUMS = [
    "bbb",
    "sss",
    "iii",
    "lll",
    "hhh",
    "fff",
    "hff",
    "bii",
    "ibb",
    "ibs",
    "iff",
    "fii",
    "ihs",
    "ooo",
    "oii",
    "oio",
    "ooi",
    "ioo",
    "iio",
    "ioi",
]


def main(directory: Path, port: int) -> None:
    """Write the repository of a server, and become it."""
    install_backend(directory / "backends" / "python")
    repository, options = directory / "models", []
    match directory.name:
        case "examples":
            _examples(repository)
        case "control":
            _examples(repository)
            options = ["--model-control-mode=explicit"]
        case "slow":
            _custom_identity(repository, seconds=3)
        case "sums":
            _sums(repository)
        case _:
            _others(repository)
    strict = "--strict-model-config=false" if directory.name == "control" else "--strict-model-config=true"
    become_server(directory, port, strict, "--allow-grpc=true", f"--grpc-port={port + 1}", *options)


def _examples(repository: Path) -> None:
    for name, data_type in (("simple", "INT32"), ("simple_int8", "INT8"), ("simple_string", "STRING")):
        inputs, outputs = ([(each, data_type, "16") for each in names] for names in _PAIR)
        _write(repository / name, "add_sub", inputs, outputs, _BATCHES)
    _write(repository / "simple_identity", "identity", *_one("STRING", "-1"), _BATCHES)
    number = [("INPUT", "INT32", "1")], [("OUTPUT", "INT32", "1")]
    batching = "sequence_batching { max_sequence_idle_microseconds: 5000000 }"
    for name, kind in (
        ("simple_sequence", "sequence"),
        ("simple_dyna_sequence", "dyna_sequence"),
        ("simple_string_dyna_sequence", "dyna_sum"),
    ):
        _write(repository / name, kind, *number, _BATCHES, batching)


def _others(repository: Path) -> None:
    _custom_identity(repository)
    image = [("INPUT", "FP32", "3, 8, 8")], [("OUTPUT", "FP32", "4")]
    _write(repository / "image", "classes", *image, _BATCHES, labels=4, form="format: FORMAT_NCHW")
    file = [("INPUT", "STRING", "1")], [("OUTPUT", "FP32", "4")]
    _write(repository / "preprocess_inception_ensemble", "classes", *file, _BATCHES, labels=4)
    floats = _one("FP32", "-1")
    _write(repository / "onnx_zero_1_float32", "identity", *floats, _BATCHES)
    queue = "dynamic_batching { max_queue_delay_microseconds: 1000000 preferred_batch_size: [8] "
    queue += "default_queue_policy { max_queue_size: 1 } }"
    _write(repository / "onnx_zero_1_float32_queue", "identity", *floats, _BATCHES, queue)
    _write(repository / "onnx_zero_1_object_1_element", "identity", *_one("STRING", "1"), "max_batch_size: 0")
    _write(repository / "onnx_zero_1_object", "identity", *_one("STRING", "-1"), "max_batch_size: 0")
    _write(repository / "onnx_zero_1_float16", "identity", *_one("FP16", "-1, -1"), _BATCHES)
    given, found = ([(f"{way}{number}", "FP32", "-1") for number in range(3)] for way in ("INPUT", "OUTPUT"))
    _write(repository / "onnx_zero_3_float32", "identity", given, found, _BATCHES)


def _sums(repository: Path) -> None:
    for letters in _SUMS:
        types = [_LETTERS[letter] for letter in letters]
        given, *found = (_TYPES[each] for each in types)
        inputs = [(name, given, "16") for name in _PAIR[0]]
        outputs = [(name, each, "16") for name, each in zip(_PAIR[1], found, strict=True)]
        kind = "sub_add" if letters in _SWAPPED else "add_sub"
        for prefix, size in (("python", 8), ("python_nobatch", 0)):
            model = repository / "_".join([prefix, *types])
            _write(model, kind, inputs, outputs, f"max_batch_size: {size}", labels=16)


def _custom_identity(repository: Path, seconds: float = 0) -> None:
    model = repository / "custom_identity_int32"
    _write(model, "identity", *_one("INT32", "-1"), "max_batch_size: 1024", seconds=seconds)


def _one(data_type: str, dims: str) -> tuple[_Tensors, _Tensors]:
    return [("INPUT0", data_type, dims)], [("OUTPUT0", data_type, dims)]


def _write(
    model: Path,
    kind: str,
    inputs: _Tensors,
    outputs: _Tensors,
    *lines: str,
    labels: int = 0,
    form: str = "",
    seconds: float = 0,
) -> None:
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").symlink_to(Path(__file__).with_name("model.py"))
    (model / "labels.txt").write_text("\n".join(f"label{number}" for number in range(labels)))
    label = 'label_filename: "labels.txt"' if labels else ""
    lines = (
        'backend: "python"',
        "instance_group { kind: KIND_CPU }",
        *(f'input {{ name: "{name}" data_type: TYPE_{of} dims: [{dims}] {form} }}' for name, of, dims in inputs),
        *(f'output {{ name: "{name}" data_type: TYPE_{of} dims: [{dims}] {label} }}' for name, of, dims in outputs),
        *(_parameter("kind", kind), _parameter("seconds", str(seconds))),
        *lines,
    )
    (model / "config.pbtxt").write_text("\n".join(lines))


def _parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}'


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
