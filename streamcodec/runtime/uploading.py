"""Uploading: uploads that can be resumed, as a server has them: the clock, the ids, and the end of interrupted ones.

They are switched on by `ServerOptions.resumable_uploads`. All of them live in one process, with its memory. So servers
of several processes, and those inside a framework, refuse the option.
"""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import Final

import anyio

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.runtime.options import ServerOptions
from streamcodec.service import Service
from streamcodec.service.memory.budget import Budget
from streamcodec.service.uploads.kept import Uploads
from streamcodec.service.uploads.part import UploadService

_ID_BYTES: Final = 24
"""Of chance in an id: more than anybody can guess."""


def uploads_of(service: Service, options: ServerOptions, budget: Budget) -> UploadService | None:
    """Return what decides on uploads that can be resumed; None if they are switched off."""
    if not options.resumable_uploads:
        return None
    import secrets  # noqa: PLC0415 - it takes 1 MiB, and few servers have uploads

    uploads = Uploads(
        budget,
        max_uploads=options.resumable_uploads,
        keep_seconds=options.upload_timeout,
        lifetime_seconds=options.request_timeout,
        clock=monotonic,
        new_id=partial(secrets.token_urlsafe, _ID_BYTES),
    )
    return UploadService(service, uploads)


def refuse_uploads(options: ServerOptions, reason: str) -> None:
    """Refuse the option where uploads cannot be resumed.

    Raises:
        LocalProtocolError: it is switched on.
    """
    if options.resumable_uploads:
        msg = f"resumable_uploads: {reason}; set it to 0, or run the bundled server in one process"
        raise LocalProtocolError(msg)


async def drop_expired(uploads: Uploads) -> None:
    """Drop uploads whose time is over, until this is cancelled."""
    while True:  # noqa: ASYNC110 - time passes, and nothing else happens
        await anyio.sleep(uploads.expire())
