"""Cases: the HTTP requests of the corpus, by the service that they need."""

from __future__ import annotations

from functools import cache
from typing import Final

from tests.corpus.reading import Case, read_corpus

_OF_BODY: Final = {"chunked", "gzip", "gzip-members", "deflate", "raw-deflate"}
"""Options of a case that are the message's, and no service's."""


@cache
def groups() -> list[list[Case]]:
    """Return the cases in groups: the service of one of a group is that of all."""
    found: dict[tuple[tuple[str, str], ...], list[Case]] = {}
    for case in read_corpus():
        if case.kind == "http-request":
            options = {name: value for name, value in case.options.items() if name not in _OF_BODY}
            found.setdefault(tuple(sorted(options.items())), []).append(case)
    return list(found.values())
