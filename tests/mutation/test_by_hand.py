"""Mutants made by hand can still be made: what each changes stands in the code, once."""

from __future__ import annotations

import pytest

from tests.mutation.by_hand import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_what_is_there(mutant: Mutant) -> None:
    assert mutant.is_current()
