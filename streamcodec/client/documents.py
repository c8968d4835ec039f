"""Documents: JSON that a server has answered, read without keeping an event loop waiting.

What C reads holds the interpreter's lock until its end: the worst megabyte, of nested arrays, for 260 ms, in whichever
thread. So an event loop reads only what is short, and leaves the rest to a thread that reads it in Python, twenty times
as slowly, and lets others have the lock.
"""

from __future__ import annotations

import json
from json import decoder, scanner
from typing import Any, Final, cast

MAX_QUICK_BYTES: Final = 16 << 10
"""Of JSON that an event loop may read at once: the worst there is takes 2 to 4 ms."""

_IN_C: Final = json.JSONDecoder()


class _InPython(json.JSONDecoder):
    """A decoder without the parts that are written in C."""

    def __init__(self) -> None:
        super().__init__()
        self.parse_string = cast("Any", decoder).py_scanstring  # which its types do not mention
        self.scan_once = cast("Any", scanner).py_make_scanner(self)


def read_object(text: str, *, in_thread: bool = False) -> dict[str, Any] | None:
    """Read a JSON object; None if it is none.

    Args:
        text: to be read.
        in_thread: whether other threads should run meanwhile.
    """
    try:
        document = (_InPython() if in_thread else _IN_C).decode(text)
    except (ValueError, RecursionError):  # the server chooses how deep it is nested
        return None
    return document if isinstance(document, dict) else None
