"""Show what an input means, what comes of it, and what its target says. Needs no Atheris."""

from __future__ import annotations

import argparse
import sys
import traceback
from importlib import import_module
from pathlib import Path

from make_corpus import TARGETS


def replay(target: str, data: bytes) -> tuple[str, str | None]:
    """Replay one input.

    Returns:
        What the input means and what comes of it; and what the target has found, None if nothing.
    """
    module = import_module(f"targets.{target}")
    try:
        words = module.explain(data)
    except Exception:  # noqa: BLE001 - that it raises may be what was found
        words = f"cannot be explained:\n{traceback.format_exc()}"
    try:
        module.test_one_input(data)
    except Exception:  # noqa: BLE001 - any exception is a finding, and shown whole
        return words, traceback.format_exc()
    return words, None


def main() -> int:
    """Replay the files of the command line; 1 if one of them is a finding."""
    parser = argparse.ArgumentParser(
        description="Replay inputs of a fuzz target: what each means (the message, how it was framed and cut), what "
        "came of it, and whether the target is content. The exit status is 1 if it is not.",
        epilog="Example: python fuzz/replay.py http fuzz/corpus/http/request-chunked",
    )
    parser.add_argument("target", choices=TARGETS, metavar="TARGET", help=f"whose inputs: {', '.join(TARGETS)}")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="inputs, as libFuzzer writes them")
    arguments = parser.parse_args()
    has_findings = False
    for path in arguments.files:
        words, finding = replay(arguments.target, path.read_bytes())
        sys.stdout.write(f"== {path}\n{words}\n-- {'passes' if finding is None else finding}\n")
        has_findings |= finding is not None
    return int(has_findings)


if __name__ == "__main__":
    sys.exit(main())
