"""Fuzz npy streams with Atheris: `python fuzz/fuzz_npy.py CORPUS_DIR [options]`; see README.md."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["streamcodec"]):
    from targets.npy import test_one_input

if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
