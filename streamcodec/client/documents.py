"""Documents: parses a server's JSON answers without blocking an event loop.

Python's C parser holds the interpreter's lock until it is done, in every thread. The worst megabyte, of nested arrays,
takes 260 ms. So an event loop parses only short texts. A thread parses longer texts with the pure Python parser. It is
twenty times slower, but lets other threads run.
"""

from __future__ import annotations

import json
from json import decoder, scanner
from typing import Any, Final, TypeVar, cast

MAX_QUICK_BYTES: Final = 16 << 10
"""Size of JSON that an event loop may parse at once: the worst case takes 2 to 4 ms."""

DocumentT = TypeVar("DocumentT", dict[str, Any], list[Any])

_IN_C: Final = json.JSONDecoder()


class _InPython(json.JSONDecoder):
    """A decoder without the parts that are written in C."""

    def __init__(self) -> None:
        super().__init__()
        self.parse_string = cast("Any", decoder).py_scanstring  # missing in its type stubs
        self.scan_once = cast("Any", scanner).py_make_scanner(self)


def read_document(text: str, kind: type[DocumentT], *, in_thread: bool = False) -> DocumentT | None:
    """Parse JSON; None if the text is something else.

    Args:
        text: to be parsed.
        kind: `dict` for an object, `list` for an array.
        in_thread: whether other threads should be able to run meanwhile.
    """
    try:
        document = (_InPython() if in_thread else _IN_C).decode(text)
    except (ValueError, RecursionError):  # the server may nest the text as deep as it likes
        return None
    return document if isinstance(document, kind) else None
