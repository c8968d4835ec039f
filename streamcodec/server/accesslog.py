"""Access log: one line for each request, written by its own thread, many lines at a time.

The event loop only stores a few values of each request. At most twenty times a second the thread makes lines of them,
and writes them together. If the thread is too slow, because nobody reads the lines or there are too many, requests do
not wait. Lines are dropped, and their number is a line of its own.

Text from a client is cut before it waits, and escaped before it is written. So no request can add a line, forge a
column, or control a terminal.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final, Literal

from streamcodec.engine.errors import printable
from streamcodec.service.observing import COMPLETE, Ending, Observer, RequestRecord

_BATCH_SECONDS: Final = 0.05
"""Between two looks at what waits: seldom enough that it costs nothing, and nobody who reads along waits."""

_MAX_WAITING: Final = 10_000
"""Lines that wait at most: half a second at full speed, and some 10 MB if all texts are as long as they may be."""

_LONGEST: Final = 256
"""Characters of each text that a client has chosen."""

_PLAIN: Final = re.compile(r"[!#-\[\]-~]+")
_CLOSING_SECONDS: Final = 1.0
"""For the last lines, which nobody may want to read."""

logger: Final = logging.getLogger("streamcodec.access")

Write = Callable[[list[str]], None]
"""Takes lines, without their ends."""


Line = tuple[
    float,
    str,
    str | None,
    str | None,
    str | None,
    str | None,
    str | None,
    int | None,
    int,
    int,
    float,
    str | None,
    Ending,
]
"""What is kept of a request until its line is written: its time, its columns, seconds, code and ending."""

Columns = tuple[str, str | None, str | None, str | None, str | None, str | None, int | None, int, int]
"""Of a line: client, method, path, model, version, id, status, bytes in and out."""


def to_logger(lines: list[str]) -> None:
    """Log each line by itself, with level INFO, to the logger `streamcodec.access`: for handlers of a program's own."""
    for line in lines:
        logger.info("%s", line)


def to_descriptor(number: int) -> Write:
    """Return a function that writes lines to an open file, all at once.

    It goes around the objects of `sys.stderr`, whose locks could keep the interpreter from ending; lines that cannot be
    written are lost.
    """

    def write(lines: list[str]) -> None:
        data = memoryview("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))
        with suppress(OSError):
            while data:
                data = data[os.write(number, data) :]

    return write


class AccessLog(Observer):
    """An observer that writes a line for each request."""

    def __init__(
        self, *, form: Literal["text", "json"] = "text", write: Write = to_logger, max_waiting: int = _MAX_WAITING
    ) -> None:
        """Write nothing yet; the thread begins with the first request.

        Args:
            form: `text` or `json`, one document a line.
            write: takes the lines, in the thread; what it raises is the interpreter's to tell.
            max_waiting: lines; more are left out.
        """
        self._form = _json if form == "json" else _text
        self._write = write
        self._max_waiting = max_waiting
        self._waiting: deque[Line] = deque()
        self._dropped = 0
        self._wake = threading.Event()
        self._is_idle = True
        self._thread: threading.Thread | None = None
        self._is_closing = False

    def request_ended(self, request: RequestRecord) -> None:
        """Keep what the line needs."""
        if len(self._waiting) >= self._max_waiting:
            self._dropped += 1
            return
        method = path = None
        if (head := request.head) is not None:
            method, path = head.method, head.target
            if len(path) + len(method) > _LONGEST:
                method, path = method[:_LONGEST], path[:_LONGEST]
        request_id = request.request_id
        if request_id is not None and len(request_id) > _LONGEST:
            request_id = request_id[:_LONGEST]
        self._waiting.append(
            (
                request.started,
                request.client,
                method,
                path,
                request.model,
                request.version,
                request_id,
                request.status,
                request.bytes_in,
                request.bytes_out,
                request.seconds,
                request.code,
                request.ending,
            )
        )
        if self._is_idle:
            self._begin()

    def close(self) -> None:
        """Have the lines written that wait, for a second at most; later ones are not."""
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_CLOSING_SECONDS)

    def _begin(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="streamcodec access log", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # there is none to be had; the next request tries again
                return
            self._thread = thread
        self._is_idle = False
        self._wake.set()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait()
            is_last = self._is_closing
            if not is_last:
                time.sleep(_BATCH_SECONDS)
            self._wake.clear()
            self._is_idle = True  # what is kept from now on wakes it again
            self._write_waiting()

    def _write_waiting(self) -> None:
        dropped, self._dropped = self._dropped, 0
        lines = [self._form(self._waiting.popleft()) for _ in range(len(self._waiting))]
        if dropped:
            lines.append(_dropped(dropped, is_json=self._form is _json))
        if lines:
            self._write(lines)


def _text(line: Line) -> str:
    """Write the columns of a line; what is unknown is `-`."""
    started, seconds, code, ending = line[0], line[10], line[11], line[12]
    columns = _columns(line[1:10]) if line[6] is None else _columns_anew(line[1:10])
    end = code or ("-" if ending is COMPLETE else ending.value)
    return f"{_time(int(started * 1000))} {columns} {seconds:.6f} {end}"


def _columns_anew(values: Columns) -> str:
    """Write the columns between the two times."""
    client, method, path, model, version, name, status, bytes_in, bytes_out = values
    texts = f"{_shown(method)} {_shown(path)} {_shown(model)} {_shown(version)} {_column(name)}"
    return f"{client or '-'} {texts} {status or '-'} {bytes_in} {bytes_out}"


_columns = lru_cache(maxsize=512)(_columns_anew)
"""For requests that look the same, as those of clients do that give them no ids."""


def _json(line: Line) -> str:
    """Write a line as one document."""
    started, client, method, path, model, version, name, status, bytes_in, bytes_out, seconds, code, ending = line
    return (
        f'{{"time": "{_time(int(started * 1000))}", {_request_members(client, method, path, model, version)}, '
        f'"id": {"null" if name is None else json.dumps(name)}, "status": {"null" if status is None else status}, '
        f'"bytes_in": {bytes_in}, "bytes_out": {bytes_out}, "seconds": {seconds:.6f}, '
        f'"code": {"null" if code is None else json.dumps(code)}, "ending": "{ending.value}"}}'
    )


@lru_cache(maxsize=512)
def _request_members(client: str, method: str | None, path: str | None, model: str | None, version: str | None) -> str:
    """Write the members that are the same in many lines."""
    members = {"client": client, "method": method, "path": path, "model": model, "version": version}
    return json.dumps(members)[1:-1]


def _dropped(count: int, *, is_json: bool) -> str:
    """Write how many lines were left out."""
    now = _time(int(time.time() * 1000))
    return json.dumps({"time": now, "dropped": count}) if is_json else f"{now} dropped {count} lines"


@lru_cache(maxsize=64)
def _time(milliseconds: int) -> str:
    """Write a time of UTC, which many lines have in common."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{rest:03}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _column(text: str | None) -> str:
    """Write a text as one column: as it is, or in quotes, with `"`, the backslash and what is no character escaped."""
    if text is None:
        return "-"
    if _PLAIN.fullmatch(text) and text != "-":
        return text
    return '"' + printable(text.replace("\\", r"\\").replace('"', r"\"")) + '"'


_shown = lru_cache(maxsize=512)(_column)
"""For texts that are the same in many lines."""
