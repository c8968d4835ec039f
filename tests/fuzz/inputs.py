"""Inputs: the committed corpora, and what targets have to say of them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

import make_corpus

CORPORA = {
    target: {path.name: path.read_bytes() for path in sorted(make_corpus.corpus_of(target).iterdir())}
    for target in make_corpus.TARGETS
}
"""The inputs of each target, by their names."""

_ENOUGH = 5


def failures(target: str, inputs: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Have a target look at inputs, until it has complained often enough; return of what, by their names."""
    look = import_module(f"targets.{target}").test_one_input
    found: dict[str, str] = {}
    for name, data in inputs:
        try:
            look(data)
        except Exception as error:  # noqa: BLE001 - any exception is a finding
            found[name] = repr(error)
            if len(found) == _ENOUGH:
                break
    return found
