"""Fuzz the decoder with Atheris: `python fuzz/fuzz_decoder.py CORPUS_DIR [options]`; see README.md."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["streamcodec"]):
    from targets.costs import judged
    from targets.decoder import test_one_input

if __name__ == "__main__":
    atheris.Setup(sys.argv, judged("decoder", test_one_input))
    atheris.Fuzz()
