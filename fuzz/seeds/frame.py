"""Seeds of the streams of frames: bodies of the decoder's seeds, whole and damaged in each way, and streams by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from targets.case import Face, Kind
from targets.frame import Case, framed

from seeds import decoder

_BODY = b'{"inputs":[{"name":"x","shape":[4],"datatype":"INT8","parameters":{"binary_data_size":4}}]}abcd'
_ANSWER = b'{"outputs":[{"name":"y","shape":[2],"datatype":"INT8","data":[1,2]}]}'
_FRAME = framed(_BODY, len(_BODY) - 4, is_response=False, has_checksum=True)
_PLACES = {"first": 3, "head": 130, "length": 139, "header": 160, "tensor": 239, "checksum": 244, "last": 260}
_CHANGES: dict[str, dict[str, Any]] = {
    "changed": {"change": 4, "piece": 9},
    "missing": {"missing": 1, "piece": 5},
    "added": {"added": 2, "face": Face.PUSH, "piece": 3},
    "cut": {"missing": 255, "piece": 20},
}
_STREAMS = {
    "empty": b"",
    "magics": b"\x89V2F" * 40,
    "half-magics": b"\x89V2\x89V\x89" * 20 + _FRAME,
    "noise": bytes(range(200)),
    "short": _FRAME[:23],
    "frame-in-a-frame": framed(_FRAME, len(_FRAME), is_response=False, has_checksum=False) + _FRAME,
    "huge": _FRAME[:24].replace(b"\x5f", b"\x60") + _FRAME,
}


def seeds() -> Iterator[tuple[str, Case]]:
    """Yield every seed with its name."""
    for name, data in _STREAMS.items():
        yield f"stream-{name}", Case(data=data, is_stream=True, piece=7)
    for place, position in _PLACES.items():
        for name, change in _CHANGES.items():
            yield f"{place}-{name}", Case(data=_BODY, changed_at=position, **change)
    for has_checksum in (False, True):
        sum_name = "checksum" if has_checksum else "plain"
        yield f"request-{sum_name}", Case(data=_BODY, has_checksum=has_checksum, first_piece=30)
        yield f"response-{sum_name}", Case(data=_ANSWER, is_response=True, has_checksum=has_checksum)
        yield f"limited-{sum_name}", Case(data=_BODY * 5, is_limited=True, has_checksum=has_checksum)
    yield "header-longer", Case(data=_BODY, header_change=9)
    yield "header-too-short", Case(data=b"}" + _BODY[:-1], header_change=200)
    for name, case in decoder.seeds():
        if case.kind is not Kind.RAW and name.startswith(("request", "response", "json")):
            is_response = case.kind is Kind.RESPONSE
            yield f"body-{name}", Case(data=case.message, is_response=is_response, face=Face.SCATTER, piece=40)
