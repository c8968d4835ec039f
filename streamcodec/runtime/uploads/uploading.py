"""Uploading: uploads that can be resumed, as the options of a server say: their store, and its clock.

They are switched on by `ServerOptions.resumable_uploads`. A server in one process keeps them in its memory, or in the
files of `upload_dir`. Several processes always use files, because the next connection of a client may reach another
process. Servers inside a framework refuse the option: the connections are not theirs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, Final

import anyio

from streamcodec.engine.errors import LocalProtocolError
from streamcodec.runtime.options import ServerOptions
from streamcodec.service import Service
from streamcodec.service.memory.budget import Budget
from streamcodec.service.uploads.deciding import UploadService
from streamcodec.service.uploads.kept import Uploads
from streamcodec.service.uploads.upload import UploadStore

_ID_BYTES: Final = 24
"""Of chance in an id: more than anybody can guess."""


def uploads_of(service: Service, options: ServerOptions, budget: Budget) -> UploadService | None:
    """Return what decides on uploads that can be resumed; None if they are switched off.

    Raises:
        LocalProtocolError: `upload_dir` cannot be opened, or others may look into it.
    """
    if not options.resumable_uploads:
        return None
    import secrets  # noqa: PLC0415 - it takes 1 MiB, and few servers have uploads

    new_id = partial(secrets.token_urlsafe, _ID_BYTES)
    if options.upload_dir is None:
        uploads = Uploads(
            budget,
            max_uploads=options.resumable_uploads,
            keep_seconds=options.upload_timeout,
            lifetime_seconds=options.request_timeout,
            clock=monotonic,
            new_id=new_id,
        )
        return UploadService(service, uploads)
    from streamcodec.runtime.uploads.folder import UploadFolder  # noqa: PLC0415 - few servers have files of uploads
    from streamcodec.runtime.uploads.stored import StoredUploads  # noqa: PLC0415 - as above

    folder = UploadFolder(
        options.upload_dir,
        max_files=options.resumable_uploads,
        max_bytes=options.max_upload_dir_bytes,
        keep_seconds=options.upload_timeout,
        lifetime_seconds=options.request_timeout,
        clock=monotonic,
    )
    return UploadService(service, StoredUploads(folder, max_bytes=budget.max_bytes, new_id=new_id))


@contextmanager
def shared_uploads(options: ServerOptions) -> Iterator[ServerOptions]:
    """Yield the options of several processes: uploads need a directory, which is temporary if there is no other.

    Raises:
        LocalProtocolError: the directory cannot be opened, or others may look into it.
    """
    if options.upload_dir is not None:
        from streamcodec.runtime.uploads.folder import open_folder  # noqa: PLC0415 - as above

        os.close(open_folder(options.upload_dir))  # what is wrong with it is said before there are processes
    if not options.resumable_uploads or options.upload_dir is not None:
        yield options
        return
    import shutil  # noqa: PLC0415 - a server in one process does without

    from streamcodec.runtime.folders import temporary_folder  # noqa: PLC0415 - as above

    folder = temporary_folder("streamcodec-uploads-")
    try:
        yield replace(options, upload_dir=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def refuse_uploads(options: ServerOptions, reason: str) -> None:
    """Refuse the option where uploads cannot be resumed.

    Raises:
        LocalProtocolError: it is switched on.
    """
    if options.resumable_uploads:
        msg = f"resumable_uploads: {reason}; set it to 0, or run the bundled server"
        raise LocalProtocolError(msg)


async def drop_expired(uploads: UploadStore[Any]) -> None:
    """Drop uploads whose time is over, until this is cancelled."""
    while True:  # noqa: ASYNC110 - time passes, and nothing else happens
        await anyio.sleep(uploads.expire())
