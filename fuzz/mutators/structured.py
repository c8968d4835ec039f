"""What the mutators of all formats share: when to edit the JSON of an input, how to, and what becomes of the text.

A plain mutation of a JSON text changes its length, or a shape, and nearly every such message is refused for a length or
an offset alone. Here the JSON is edited, and the format then repairs what the edit has broken. Some mutations stay
plain, and each repair is left out now and then: a fuzzer that makes right messages only finds nothing.

What a seed decides, it decides alone: the same input and the same seed give the same result.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, Final, Protocol, TypeAlias

Mutate: TypeAlias = Callable[[bytes, int], bytes]
"""Changes any bytes a little; the second argument is how many bytes the result may have."""
Root: TypeAlias = dict[str, Any]

PLAIN: Final = 0.2
"""The share of mutations that are plain."""
DAMAGED: Final = 0.1
"""The share of texts that are then changed plainly: they stay framed rightly, but are mostly no JSON."""
LEFT_OUT: Final = 0.03
"""The share of repairs that are left out."""

_MOST_EDITS: Final = 3
_MOST_LEVELS: Final = 6
_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, -1, 0, 1.0, 1.5, float("nan"), float("inf"), 1 << 31, 1 << 63, 1 << 64),
    *("", "x", "F32", "FP32", "é", "\ud800", [], {}, [1, 2], [[1]], {"a": "b"}),
)


class Form(Protocol):
    """What a mutator has to know of a format, and of the inputs of one target."""

    def text(self, data: bytes, /) -> bytes:
        """Return the JSON text of an input; anything else where it has none."""
        ...

    def edit(self, root: Root, random: Random, /) -> None:
        """Change something that means something in this format."""
        ...

    def repair(self, root: Root, random: Random, /) -> bytes:
        """Make what the JSON says of sizes and places fit together; return the bytes that belong behind it."""
        ...

    def join(self, data: bytes, text: bytes, payload: bytes, random: Random, /) -> bytes:
        """Return the input with another text, other bytes behind it, and lengths that fit."""
        ...


def mutate(data: bytes, max_size: int, seed: int, plainly: Mutate, form: Form) -> bytes:
    """Change an input of a target.

    Args:
        data: the input.
        max_size: bytes that the result may have.
        seed: decides what is changed.
        plainly: changes any bytes a little. It is what is left where an input has no JSON object, or where the result
            would be too long.
        form: of the target's inputs.
    """
    random = Random(seed)  # noqa: S311 - nothing secret
    if random.random() < PLAIN:
        return plainly(data, max_size)
    found = _edited(data, random, plainly, form)
    return plainly(data, max_size) if found is None or len(found) > max_size else found


def _edited(data: bytes, random: Random, plainly: Mutate, form: Form) -> bytes | None:
    """Return the input with other JSON; None if it has none, or such as Python cannot read or write."""
    try:
        root = json.loads(form.text(data))
        if type(root) is not dict:
            return None
        for _ in range(random.randint(1, _MOST_EDITS)):
            random.choice((edit_anywhere, form.edit, form.edit))(root, random)
        payload = form.repair(root, random)
        text = written(root, random)
    except (ValueError, RecursionError):
        return None
    if random.random() < DAMAGED:
        text = plainly(text, len(text) + 8)
    return form.join(data, text, payload, random)


def written(root: Root, random: Random) -> bytes:
    """Write a text in one of the ways there are."""
    separators = random.choice(((",", ":"), (", ", ": ")))
    words = json.dumps(root, separators=separators, ensure_ascii=random.random() < 0.5)  # noqa: PLR2004 - half of them
    return words.encode(errors="surrogatepass")


def value(random: Random) -> Any:  # noqa: ANN401 - any JSON value
    """Return any value that means something somewhere."""
    return deepcopy(random.choice(_VALUES))


def edit_anywhere(root: Root, random: Random) -> None:
    """Change one value, wherever it is, with no regard to its meaning."""
    node: Any = root
    for _ in range(random.randint(0, _MOST_LEVELS)):
        inner = [child for child in _children(node) if isinstance(child, dict | list) and child]
        if not inner:
            break
        node = random.choice(inner)
    if not node:
        return
    key = random.choice([*node] if isinstance(node, dict) else range(len(node)))
    match random.randrange(5):
        case 0:
            del node[key]
        case 1:
            node[key] = value(random)
        case 2:
            node[key] = [node[key]]
        case 3 if isinstance(node, list):
            node.insert(key, deepcopy(node[key]))
        case 3:
            node[random.choice(("", "x", "name", "data"))] = node[key]
        case _:
            other = random.choice([*_children(node)])
            node[key] = deepcopy(other)


def _children(node: Any) -> list[Any]:  # noqa: ANN401 - an object or an array
    return [*(node.values() if isinstance(node, dict) else node)]
