"""Shortage: one request while a single allocation of the interpreter fails, tried for one after the other.

A program, since what it does ends some interpreters: each try is a process of its own. It prints what each came to.
"""

from __future__ import annotations

import _testcapi  # type: ignore[import-not-found]  # the interpreter's own tests' module
import faulthandler
import json
import os
import sys
from collections import Counter

from streamcodec import NEED_DATA
from streamcodec.engine.events import NEED_TURN
from streamcodec.server import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.requestcache import RequestCache
from streamcodec.server.connection.session import Session, Step
from streamcodec.service import ModelRegistry, Service, demo_models
from tests.server.wire import chunked, head, infer_request, post

_NUMBERS = b'{"inputs":[{"name":"x","datatype":"INT64","shape":[12000],"data":[%b]}]}' % b",".join([b"123456"] * 12_000)


def _in_chunks(request: bytes) -> bytes:
    begin, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in begin.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", chunked(body, [700, 3000])])


REQUESTS = {
    "small": infer_request(),
    "health": head("/v2/health/live", method="GET"),
    "JSON": post(b'{"inputs":[{"name":"x","datatype":"INT64","shape":[2],"data":[1,2]}]}'),
    "long JSON": post(_NUMBERS),
    "large": infer_request(count=1 << 16),
    "chunked": _in_chunks(infer_request(count=1 << 12)),
    "refused": post(b"{}"),
}


class Room:
    """A server without sockets: one service, one budget, as many sessions as are wanted."""

    def __init__(self, registry: ModelRegistry) -> None:
        self.service = Service(registry)
        self.express = RequestCache(self.service)
        self.admission = Admission(ServerOptions(), self.service.pool)
        self.session: Session | None = None

    def ask(self, request: bytes) -> int:
        """Return the status of the answer; 0 if the connection is closed without one."""
        self.session = session = Session(self.service, self.express, self.admission)
        left = memoryview(request)
        while True:
            step = session.next_event()
            if step is NEED_DATA:
                left = left[session.connection.feed(left[: 64 << 10]) :]
            elif step is NEED_TURN:
                session.work()
            elif step is Step.CALL and session.inference is not None:
                session.answer(session.inference.run())
                return self._status(session)
            else:
                return self._status(session) if step is Step.SEND else 0

    def leave(self) -> None:
        """End the last connection, as the server does."""
        if self.session is not None:
            try:
                self.admission.forget(self.session)
            except MemoryError:
                self.admission.forget(self.session)
            self.session = None

    def _status(self, session: Session) -> int:
        return int(bytes(session.outgoing[0])[9:12])  # type: ignore[arg-type] # a head


def attempt(room: Room, request: bytes, expected: int, start: int, stop: int) -> str:
    """Return what a request comes to when these allocations fail, and what is wrong afterwards."""
    status, failure = 0, ""
    _testcapi.set_nomemory(start, stop)
    try:
        status = room.ask(request)
    except Exception as error:  # noqa: BLE001 - whatever it is, the driver's task ends, and with it the connection
        failure = type(error).__name__
    finally:
        _testcapi.remove_mem_hooks()
    room.leave()
    if room.admission.budget.reserved:
        return f"{room.admission.budget.reserved} bytes leaked"
    if (after := room.ask(request)) != expected:
        return f"{status}, then {after}"
    return str(status) if status else f"closed {failure}".rstrip()


def in_a_process(room: Room, request: bytes, expected: int, start: int, stop: int) -> str:
    """Try it in a process of its own."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.write(writing, attempt(room, request, expected, start, stop).encode())
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is what there is to tell
            os.write(writing, repr(error).encode())
        os._exit(0)
    os.close(writing)
    text = os.read(reading, 4096).decode()
    os.close(reading)
    _, status = os.waitpid(child, 0)
    return text if status == 0 else f"ended by {status}"


def main(name: str, stride: int) -> None:
    """Try one kind of request, with every so manieth allocation; print outcomes and how often each came."""
    request = REQUESTS[name]
    room = Room(demo_models())
    expected = room.ask(request)
    room.leave()
    found: Counter[str] = Counter()
    where: dict[str, list[int]] = {}
    quiet = start = 0
    while quiet < 400:  # so many allocations at the end that nobody minds
        outcome = in_a_process(room, request, expected, start, start + 1)
        found[outcome] += 1
        where.setdefault(outcome, []).append(start)
        quiet = quiet + stride if outcome == str(expected) else 0
        start += stride
    first = {key: at[:3] for key, at in where.items()}
    sys.stdout.write(json.dumps({"expected": expected, "found": found, "first": first}))


if __name__ == "__main__":
    faulthandler.enable()
    main(sys.argv[1], int(sys.argv[2]))
