"""Fuzz decompression with Atheris: `python fuzz/fuzz_compression.py CORPUS_DIR [options]`; see README.md."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["streamcodec"]):
    from targets.compression import test_one_input
    from targets.costs import judged

if __name__ == "__main__":
    atheris.Setup(sys.argv, judged("compression", test_one_input))
    atheris.Fuzz()
