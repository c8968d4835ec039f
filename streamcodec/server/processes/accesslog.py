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
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final, Literal

from streamcodec.engine.errors import printable
from streamcodec.service.observing import COMPLETE, Ending, Observer, RequestRecord
from streamcodec.service.routes import without_secret

_BATCH_SECONDS: Final = 0.05
"""Interval between two batches: long enough to cost nothing, and short enough for a person who reads the log live."""

_MAX_WAITING: Final = 10_000
"""Most lines that wait: those of half a second at full speed, or about 10 MB if all texts have their full length."""

_LONGEST: Final = 256
"""Most characters of a text that a client has chosen."""

_PLAIN: Final = re.compile(r"[!#-\[\]-~]+")
_CLOSING_SECONDS: Final = 1.0
"""Time limit for writing the last lines. Perhaps nobody reads them."""

_ATOMIC_BYTES: Final = getattr(select, "PIPE_BUF", 512)
"""Most bytes that a pipe takes in one piece, or else not yet (POSIX, `write`); Windows does not say."""

logger: Final = logging.getLogger("streamcodec.access")
complaints: Final = logging.getLogger(__name__)
"""For what happens to the log itself: its own lines may be what fails."""

Write = Callable[[list[str]], None]
"""Writes lines, which come without line ends."""


Columns = tuple[str | None, str | None, str | None, str | None, str | None, int | None, int, int]
"""Columns of a line: client, method, path, model, version, status, bytes in and out. Many lines have equal ones."""

Line = tuple[float, Columns, str | None, float, str | None, Ending]
"""Values of a request, kept until its line is written: time, columns, id, seconds, code and ending."""


def to_logger(lines: list[str]) -> None:
    """Log each line with level INFO to the logger `streamcodec.access`, for programs with their own handlers."""
    for line in lines:
        logger.info("%s", line)


def to_descriptor(number: int) -> Write:
    """Return a function that writes lines to an open file, as many at once as a pipe takes in one piece.

    So lines of several processes do not mix, also if the pipe is full. Texts of clients are cut, so a line is longer
    only if the name of a model is: then others may write in the middle of it.

    It does not use objects such as `sys.stderr`, because their locks could keep the interpreter from ending. Lines that
    cannot be written are lost.
    """

    def write(lines: list[str]) -> None:
        data = memoryview("\n".join([*lines, ""]).encode("utf-8", "backslashreplace"))
        with suppress(OSError):
            while data:
                end = bytes(data[:_ATOMIC_BYTES]).rfind(b"\n") + 1
                data = data[os.write(number, data[: end or _ATOMIC_BYTES]) :]

    return write


class AccessLog(Observer):
    """An observer that writes a line for each request."""

    def __init__(
        self,
        *,
        form: Literal["text", "json"] = "text",
        write: Write = to_logger,
        max_waiting: int = _MAX_WAITING,
        is_encrypted: bool = False,
    ) -> None:
        """Prepare; the thread starts with the first request.

        Args:
            form: `text`, or `json` for one document a line.
            write: writes the lines; called in the thread. If it raises an exception, these lines are lost, and the
                first exception is logged.
            max_waiting: most lines that wait; further lines are dropped.
            is_encrypted: whether the server speaks https: then each line says so at its end.
        """
        self._is_encrypted = is_encrypted
        self._form = _json if form == "json" else _text
        self._write = write
        self._max_waiting = max_waiting
        self._waiting: deque[Line] = deque()
        self._dropped = 0
        self._wake = threading.Event()
        self._is_idle = True
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._has_failed = False

    def request_ended(self, request: RequestRecord) -> None:
        """Store the values that the line needs."""
        if len(self._waiting) >= self._max_waiting:
            self._dropped += 1
            return
        chosen = (request.client, request.method, request.target, request.version, request.request_id)
        client, method, path, version, request_id = [text and text[:_LONGEST] for text in chosen]
        self._waiting.append(
            (
                request.started,
                (
                    client,
                    method,
                    path,
                    request.model,
                    version,
                    request.status,
                    request.bytes_in,
                    request.bytes_out,
                ),
                request_id,
                request.seconds,
                request.code,
                request.ending,
            )
        )
        if self._is_idle:
            self._begin()

    def close(self) -> None:
        """Write the waiting lines, for a second at most. Later lines are not written."""
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_CLOSING_SECONDS)

    def _begin(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="streamcodec access log", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started; the next request tries again
                return
            self._thread = thread
        self._is_idle = False
        self._wake.set()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait()
            if not self._is_closing:
                time.sleep(_BATCH_SECONDS)
            self._wake.clear()
            is_last = self._is_closing  # only now: who closes it from now on wakes it again
            self._is_idle = True  # a line that is stored from now on wakes the thread again
            try:
                self._write_waiting()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - of `write`, which may do better with the next lines
                self._complain(error)

    def _complain(self, error: BaseException) -> None:
        """Log the exception of a writer, if it is the first one."""
        if not self._has_failed:
            self._has_failed = True
            complaints.error("lines of the access log are lost; later failures are not logged", exc_info=error)

    def _write_waiting(self) -> None:
        dropped, self._dropped = self._dropped, 0
        take = self._waiting.popleft
        lines = self._form([take() for _ in range(len(self._waiting))])
        if self._is_encrypted:
            is_json = self._form is _json
            lines = [line[:-1] + ', "scheme": "https"}' if is_json else line + " https" for line in lines]
        if dropped:
            lines.append(_dropped(dropped, is_json=self._form is _json))
        if lines:
            self._write(lines)


def _text(lines: list[Line]) -> list[str]:
    """Return lines of columns; an unknown value is `-`."""
    return [
        f"{_time(int(started * 1000))} {beginning} {_column(name)} {end} "
        f"{_seconds(int(seconds * 1e6 + 0.5))} {code or ('-' if ending is COMPLETE else ending.value)}"
        for started, columns, name, seconds, code, ending in lines
        for beginning, end in (_columns(columns),)
    ]


@lru_cache(maxsize=512)
def _columns(values: Columns) -> tuple[str, str]:
    """Return the columns between the time and the id, and those after the id."""
    client, method, path, model, version, status, bytes_in, bytes_out = values
    texts = f"{_shown(method)} {_shown(_safe(path))} {_shown(model)} {_shown(version)}"
    return f"{_column(client or None)} {texts}", f"{status or '-'} {bytes_in} {bytes_out}"


def _json(lines: list[Line]) -> list[str]:
    """Return lines of one JSON document each."""
    return [
        f'{{"time": "{_time(int(started * 1000))}", {beginning}, "id": {"null" if name is None else json.dumps(name)}, '
        f'{end}, "seconds": {_seconds(int(seconds * 1e6 + 0.5))}, '
        f'"code": {"null" if code is None else json.dumps(code)}, "ending": "{ending.value}"}}'
        for started, columns, name, seconds, code, ending in lines
        for beginning, end in (_members(columns),)
    ]


@lru_cache(maxsize=512)
def _members(values: Columns) -> tuple[str, str]:
    """Return the members between the time and the id, and those after the id."""
    client, method, path, model, version, status, bytes_in, bytes_out = values
    members = {"client": client, "method": method, "path": _safe(path), "model": model, "version": version}
    end = {"status": status, "bytes_in": bytes_in, "bytes_out": bytes_out}
    return json.dumps(members)[1:-1], json.dumps(end)[1:-1]


def _dropped(count: int, *, is_json: bool) -> str:
    """Return the line that says how many lines were dropped."""
    now = _time(int(time.time() * 1000))
    return json.dumps({"time": now, "dropped": count}) if is_json else f"{now} dropped {count} lines"


@lru_cache(maxsize=64)
def _time(milliseconds: int) -> str:
    """Return a time in UTC as text. It is cached, because many lines have the same time."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{rest:03}Z"


@lru_cache(maxsize=2048)
def _seconds(microseconds: int) -> str:
    """Return a duration as text. It is cached: to format a float takes a third of the time of a line."""
    return f"{microseconds / 1e6:.6f}"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _safe(path: str | None) -> str | None:
    """Return a path without the id of an upload, which is a secret."""
    return None if path is None else without_secret(path)


def _column(text: str | None) -> str:
    """Write a text as one column: as it is, or in quotes, with `"`, the backslash and what is no character escaped."""
    if text is None:
        return "-"
    if _PLAIN.fullmatch(text) and text != "-":
        return text
    return '"' + printable(text.replace("\\", r"\\").replace('"', r"\"")) + '"'


_shown = lru_cache(maxsize=512)(_column)
"""For texts that are the same in many lines."""
