"""Uploads: each way in which an upload that can be resumed comes to its end, or is forgotten. Each does it once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import quote

from tests.embedding.faults import leave_abruptly
from tests.garbage import servers
from tests.garbage.endings import NBYTES, WRITE_SECONDS, Address, Ending
from tests.server.wire import Answer, Wire, head

_UPLOAD_SECONDS: Final = 0.4
_LAST: Final = "Upload-Complete: ?1"
_MORE: Final = "Upload-Complete: ?0"
_HALF: Final = NBYTES // 2

OPTIONS: Final = replace(servers.OPTIONS, resumable_uploads=8, upload_timeout=_UPLOAD_SECONDS)


def _body(datatype: str, last: bytes) -> tuple[bytes, int]:
    tensor = {"name": "x", "datatype": datatype, "shape": [NBYTES], "parameters": {"binary_data_size": NBYTES}}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return text + bytes(NBYTES - len(last)) + last, len(text)


class _Upload:
    """One upload, over one connection after the other."""

    def __init__(self, address: Address, model: str, datatype: str = "UINT8", last: bytes = b"\0") -> None:
        self._address = address
        self._model = model
        self.body, self._length = _body(datatype, last)
        self.location = ""

    def begin(self, sent: int, *fields: str, then: Callable[[Wire], object] = id) -> None:
        """Begin, send so many bytes, and do something."""
        named = fields or (_LAST, f"Content-Length: {len(self.body)}")
        path = f"/v2/models/{quote(self._model)}/infer"
        with Wire(self._address) as wire, suppress(OSError):
            fixed = [f"Inference-Header-Content-Length: {self._length}", "Upload-Draft-Interop-Version: 8"]
            wire.send(head(path, *fixed, *named))
            self.location = wire.response(has_body=False).fields.get("location", "")
            wire.send(self.body[:sent])
            then(wire)

    def begin_portion(self, sent: int) -> None:
        """Begin with the first bytes only."""
        self.begin(sent, _MORE, f"Content-Length: {sent}", f"Upload-Length: {len(self.body)}", then=Wire.response)

    def append(self, at: int, end: int, field: str = _LAST, then: Callable[[Wire], object] = Wire.response) -> None:
        """Append bytes, and do something, usually wait for the answer."""
        fields = ["Content-Type: application/partial-upload", f"Upload-Offset: {at}", f"Content-Length: {end - at}"]
        with Wire(self._address) as wire, suppress(OSError):
            wire.send(head(self.location, *fields, field, method="PATCH"), self.body[at:end])
            then(wire)

    def offset(self) -> int:
        """Ask how much has come."""
        return int(self.ask("HEAD").fields["upload-offset"])

    def ask(self, method: str) -> Answer:
        """Ask for the upload itself."""
        with Wire(self._address) as wire:
            return wire.send(head(self.location, method=method)).response(has_body=method != "HEAD")


def _reset(wire: Wire) -> None:
    leave_abruptly(wire.sock)


def _wait_for_end(_: Wire) -> None:
    time.sleep(2.5 * WRITE_SECONDS)


def _whole(model: str, address: Address) -> None:
    upload = _Upload(address, model)
    upload.begin(len(upload.body), then=Wire.response)


def _resumed(model: str, address: Address, *, then: Callable[[Wire], object] = Wire.response) -> None:
    upload = _Upload(address, model)
    upload.begin(_HALF, then=_reset)
    upload.append(upload.offset(), len(upload.body), then=then)


def _portions(address: Address, *, datatype: str = "UINT8", last: bytes = b"\0") -> None:
    upload = _Upload(address, "ok", datatype, last)
    upload.begin_portion(_HALF)
    upload.append(_HALF, _HALF + 1000, _MORE)
    upload.append(_HALF + 1000, len(upload.body))


def _forgotten(address: Address, *, then: Callable[[Wire], object]) -> None:
    _Upload(address, "ok").begin(_HALF, then=then)
    time.sleep(1.5 * _UPLOAD_SECONDS)


def _replaced(address: Address) -> None:
    """Resume while the first connection has not ended."""
    upload = _Upload(address, "ok")
    upload.begin(_HALF, then=lambda _: upload.append(upload.offset(), len(upload.body)))


def _deleted(address: Address) -> None:
    upload = _Upload(address, "ok")
    upload.begin(_HALF, then=_reset)
    upload.ask("DELETE")


def _deleted_while_it_comes(address: Address) -> None:
    upload = _Upload(address, "ok")
    upload.begin(_HALF, then=lambda _: upload.ask("DELETE"))


def _wrong_offset(address: Address) -> None:
    upload = _Upload(address, "ok")
    upload.begin(_HALF, then=_reset)
    upload.append(upload.offset() + 1, len(upload.body))
    upload.ask("DELETE")


def _too_long(address: Address) -> None:
    upload = _Upload(address, "ok")
    upload.begin_portion(_HALF)
    upload.body += bytes(1000)
    upload.append(_HALF, len(upload.body))


UPLOADS: Final[dict[str, Ending]] = {
    **{f"whole, model {name}": partial(_whole, name) for name in ("ok", "fails", "is too late", "async", "rows fail")},
    **{f"resumed, model {name}": partial(_resumed, name) for name in ("ok", "inline, ok", "fails", "async, fails")},
    "resumed, left in the answer": partial(_resumed, "ok", then=_reset),
    "resumed, left in the answer of rows": partial(_resumed, "rows", then=_reset),
    "resumed, reads no answer": partial(_resumed, "ok", then=_wait_for_end),
    "in portions": _portions,
    "in portions, wrong BOOL": partial(_portions, datatype="BOOL", last=b"\2"),
    "in portions, too long": _too_long,
    "left and forgotten": partial(_forgotten, then=_reset),
    "stopped and forgotten": partial(_forgotten, then=Wire.response),
    "resumed while it comes": _replaced,
    "deleted": _deleted,
    "deleted while it comes": _deleted_while_it_comes,
    "a wrong offset": _wrong_offset,
}
