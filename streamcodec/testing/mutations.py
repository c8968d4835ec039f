"""Mutations: single changes of a message, each with the expected verdict.

A mutation changes one thing in a valid `Draft`, and returns the error codes with which the message may now be refused.
Usually this is one code. There are several codes if the order of the checks decides. There is none if the message is
still valid; a receiver must accept it then. The caller makes all random choices: with Hypothesis, or with a seeded
`random.Random().choice`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamcodec.testing.headermutations import HEADER_MUTATIONS
from streamcodec.testing.samples import Draft, ExpectedMessage
from streamcodec.testing.targets import Choose, Mutation
from streamcodec.testing.wiremutations import WIRE_MUTATIONS

MUTATIONS: Final[Mapping[str, Mutation]] = {**HEADER_MUTATIONS, **WIRE_MUTATIONS}
"""All mutations, by their names."""


def applicable(draft: Draft) -> list[str]:
    """Return the names of the mutations that find something to change in a draft."""
    return [name for name, mutation in MUTATIONS.items() if mutation.targets(draft)]


def mutate(draft: Draft, name: str, choose: Choose) -> ExpectedMessage:
    """Change one thing in a draft, and finish it.

    Args:
        draft: a valid draft, to which the mutation applies; it is changed.
        name: one of the names of `applicable`.
        choose: makes the random choices.

    Returns:
        The changed message, with the codes it may be refused with.

    Raises:
        KeyError: there is no mutation of that name.
        Exception: the mutation does not apply. It is the exception of `choose` for an empty list: `IndexError` for
            `random.choice`.

    Example:
        >>> from random import Random
        >>> entry = {"name": "x", "datatype": "INT8", "shape": [1], "data": [5]}
        >>> draft = Draft(members={"inputs": [entry]}, is_response=False, payloads=[b""], tensors=None)
        >>> mutate(draft, "name twice", Random(1).choice).refusals
        frozenset({<ErrorCode.DUPLICATE_NAME: 'duplicate-name'>})
    """
    mutation = MUTATIONS[name]
    refusals = mutation.change(draft, choose(mutation.targets(draft)), choose)
    return draft.finish(mutation=name, refusals=refusals)
