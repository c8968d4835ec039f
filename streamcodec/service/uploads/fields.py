"""Upload fields: the fields of draft-ietf-httpbis-resumable-upload, interop version 8, as they are read.

`Upload-Complete` is a Boolean of structured fields (RFC 9651), and the others are Integers. A field with any other
value is ignored, as the draft demands (section 4.1).
"""

from __future__ import annotations

import re
from typing import Final

from streamcodec.http.heads.messages import RequestHead

INTEROP_VERSION: Final = "8"
"""Of the draft. Peers with another version, and those of the final RFC, are sent no 104."""

PARTIAL_UPLOAD: Final = "application/partial-upload"
"""The media type of what is appended."""

_BOOLEANS: Final = {b"?0": False, b"?1": True}
_INTEGER: Final = re.compile(rb"[0-9]{1,15}")


def is_last(head: RequestHead) -> bool | None:
    """Return the value of `Upload-Complete`: whether this message ends the upload; None if there is none."""
    values = head.fields.values(b"upload-complete")
    return _BOOLEANS.get(values[0]) if len(values) == 1 else None


def number(head: RequestHead, name: bytes) -> int | None:
    """Return the value of `Upload-Offset` or `Upload-Length`; None if there is none."""
    values = head.fields.values(name)
    return int(values[0]) if len(values) == 1 and _INTEGER.fullmatch(values[0]) else None


def knows_interim(head: RequestHead) -> bool:
    """Whether the client reads `104 Upload Resumption Supported` as this version of the draft means it."""
    return head.fields.values(b"upload-draft-interop-version") == [INTEROP_VERSION.encode()]


def is_partial(head: RequestHead) -> bool:
    """Whether the body is a piece to append, by its media type."""
    values = head.fields.values(b"content-type")
    return len(values) == 1 and values[0].partition(b";")[0].strip().lower() == PARTIAL_UPLOAD.encode()
