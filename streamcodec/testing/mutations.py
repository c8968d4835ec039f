"""Mutations: what can be wrong with a message, one thing at a time, each with the verdict to expect.

A mutation changes one thing in a valid `Draft` and says with which error codes the message may now be refused: usually
one, several where it depends on what is looked at first, and none where the message is still valid, which a receiver
has to see as well. What there is to choose, the caller chooses: Hypothesis, or a seeded `random.Random().choice`.
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
        draft: a valid one, to which the mutation applies; it is changed.
        name: one of `applicable`.
        choose: decides what there is to decide.

    Returns:
        The changed message, with the codes it may be refused with.

    Raises:
        KeyError: there is no mutation of that name.
        Exception: the mutation does not apply, so there is no target: what `choose` raises when it is given no choices,
            `IndexError` if it is `random.choice`.

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
