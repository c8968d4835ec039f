"""Show what an input means and what its target says: `python fuzz/replay.py decoder FILE...`. Needs no Atheris."""

from __future__ import annotations

import sys
from pathlib import Path

from targets import decoder
from targets.case import Case


def replay_decoder(data: bytes) -> str:
    """Describe one input of the decoder's target; the target's own exceptions pass through."""
    case = Case.read(data)
    outcome = decoder.decode(case, case.face, case.pieces)
    sys.stdout.write(f"{case}\nheader_length={case.header_length} body_length={case.body_length}\n{outcome}\n")
    decoder.test_one_input(data)
    return "passes"


TARGETS = {"decoder": replay_decoder}

if __name__ == "__main__":
    for name in sys.argv[2:]:
        sys.stdout.write(f"{name}\n{TARGETS[sys.argv[1]](Path(name).read_bytes())}\n")
