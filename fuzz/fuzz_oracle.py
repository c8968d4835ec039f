"""Fuzz decoder and oracle with Atheris: `python fuzz/fuzz_oracle.py CORPUS_DIR [--plain] [options]`; see README.md."""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["streamcodec"]):
    from targets.oracle import test_one_input

from mutators.program import fuzz
from mutators.v2 import MessageForm

if __name__ == "__main__":
    fuzz(test_one_input, MessageForm())
