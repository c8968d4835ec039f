"""Fuzz the reading of headers with Atheris: `python fuzz/fuzz_header.py CORPUS_DIR [--plain] [options]`; see README."""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["streamcodec"]):
    from targets.costs import judged
    from targets.header import test_one_input

from mutators.program import fuzz
from mutators.v2 import HeaderForm

if __name__ == "__main__":
    fuzz(judged("header", test_one_input), HeaderForm())
