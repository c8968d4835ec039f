"""Fuzz streams of frames with Atheris: `python fuzz/fuzz_frame.py CORPUS_DIR [options]`; see README.md."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["streamcodec"]):
    from targets.frame import test_one_input

if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
