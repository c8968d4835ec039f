"""Run a target under Atheris with a mutator that knows its format; `--plain` switches that off."""

from __future__ import annotations

import sys
from collections.abc import Callable

import atheris

from mutators.structured import Form, mutate


def fuzz(test_one_input: Callable[[bytes], None], form: Form) -> None:
    """Fuzz until libFuzzer's options say that it is enough; the options are those of the command line."""

    def mutate_here(data: bytes, max_size: int, seed: int) -> bytes:
        # `atheris.Mutate` is another function once `Fuzz` has begun.
        return mutate(data, max_size, seed, atheris.Mutate, form)

    options = {} if "--plain" in sys.argv else {"custom_mutator": mutate_here}
    atheris.Setup([argument for argument in sys.argv if argument != "--plain"], test_one_input, **options)
    atheris.Fuzz()
