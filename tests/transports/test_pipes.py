"""Pipes: bytes arrive in order, whatever a socket takes at a time, and no descriptor is left."""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from streamcodec.transports.sockets import pipes as pipes_module
from streamcodec.transports.sockets.pipes import PIPE_BYTES, Pipe, Pipes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has splice")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket, socket.socket, socket.socket]]:
    """A sender, its source, a sink, and its reader; the two in the middle do not block."""
    (sender, source), (sink, reader) = socket.socketpair(), socket.socketpair()
    with sender, source, sink, reader:
        source.setblocking(False)
        sink.setblocking(False)
        yield sender, source, sink, reader


Ends = tuple[socket.socket, socket.socket, socket.socket, socket.socket]


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _pipe(pipes: Pipes) -> Pipe:
    pipe = pipes.borrow()
    assert pipe is not None
    return pipe


def test_bytes_arrive_in_order(ends: Ends) -> None:
    sender, source, sink, reader = ends
    data = os.urandom(3 * PIPE_BYTES + 17)
    threading.Thread(target=sender.sendall, args=(data,), daemon=True).start()
    left, come, pipe = len(data), b"", Pipe()
    reader.settimeout(60)
    while left:
        select.select([source], [], [])
        left -= pipe.fill(source, left)
        while pipe.held:
            assert len(come) + pipe.held <= len(data)
            sent = pipe.empty(sink)
            while sent:
                come += (piece := reader.recv(sent))
                sent -= len(piece)
    pipe.close()
    assert come == data


def test_only_so_much_is_taken(ends: Ends) -> None:
    sender, source, sink, reader = ends
    sender.sendall(b"abcdef")
    pipe = Pipe()
    assert pipe.fill(source, 4) == 4
    assert pipe.empty(sink) == 4
    assert (source.recv(10), reader.recv(10)) == (b"ef", b"abcd")
    pipe.close()


def test_nothing_comes_and_the_end_comes(ends: Ends) -> None:
    sender, source, _, _ = ends
    pipe = Pipe()
    with pytest.raises(BlockingIOError):
        pipe.fill(source, 1)
    assert pipe.held == 0
    sender.close()
    assert pipe.fill(source, 1) == pipe.held == 0
    pipe.close()


def test_what_is_not_taken_stays(ends: Ends) -> None:
    sender, source, sink, reader = ends
    pipe = Pipe()
    sender.sendall(b"abc")
    pipe.fill(source, 3)
    with suppress(BlockingIOError):
        while True:
            sink.send(bytes(1 << 16))
    with pytest.raises(BlockingIOError):
        pipe.empty(sink)
    assert (pipe.held, pipe.read(), pipe.held) == (3, b"abc", 0)
    reader.close()
    sender.sendall(b"d")
    pipe.fill(source, 1)
    with pytest.raises(BrokenPipeError):
        pipe.empty(sink)
    assert pipe.read() == b"d"
    pipe.close()


def test_pipes_are_used_again_if_they_are_empty(ends: Ends) -> None:
    sender, source, _, _ = ends
    before, pipes = _descriptors(), Pipes()
    first = _pipe(pipes)
    pipes.give_back(first)
    assert _pipe(pipes) is first
    sender.sendall(b"x")
    first.fill(source, 1)
    pipes.give_back(first)
    second = _pipe(pipes)
    assert second is not first
    assert second.read() == b""
    pipes.give_back(second)
    pipes.close()
    assert _descriptors() == before


def test_there_are_only_so_many() -> None:
    pipes = Pipes(2)
    taken = [_pipe(pipes), _pipe(pipes)]
    assert pipes.borrow() is None
    for pipe in taken:
        pipes.give_back(pipe)
    pipes.close()
    assert pipes.borrow() is not None


def test_systems_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError

    pipes = Pipes()
    monkeypatch.setattr(os, "pipe2", fail)
    assert pipes.borrow() is None  # there are too many descriptors
    monkeypatch.undo()
    pipes.give_back(_pipe(pipes))
    pipes.close()
    for call in (None, fail):
        monkeypatch.setattr(pipes_module, "_splice", call)
        assert Pipes().borrow() is None
