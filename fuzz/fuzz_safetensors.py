"""Fuzz safetensors with Atheris: `python fuzz/fuzz_safetensors.py CORPUS_DIR [--plain] [options]`; see README.md."""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["streamcodec"]):
    from targets.safetensors import test_one_input

from mutators.program import fuzz
from mutators.safetensors import SafetensorsForm

if __name__ == "__main__":
    fuzz(test_one_input, SafetensorsForm())
