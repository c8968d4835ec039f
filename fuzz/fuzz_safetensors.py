"""Fuzz safetensors with Atheris: `python fuzz/fuzz_safetensors.py CORPUS_DIR [--plain] [options]`; see README.md."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["streamcodec"]):
    from targets.safetensors import test_one_input

from targets.mutating import mutate


def mutate_here(data: bytes, max_size: int, seed: int) -> bytes:
    """Change an input by what is known of its structure."""
    return mutate(data, max_size, seed, atheris.Mutate)


if __name__ == "__main__":
    options = {} if "--plain" in sys.argv else {"custom_mutator": mutate_here}
    atheris.Setup([argument for argument in sys.argv if argument != "--plain"], test_one_input, **options)
    atheris.Fuzz()
