"""Wrappers around our decoder, as users write them, and what can go wrong in them."""

from __future__ import annotations

from streamcodec import NEED_DATA, EndOfMessage, ErrorCode, RemoteProtocolError
from tests.formats.v2.messages import AnyDecoder


class Wrapper:
    """Does nothing but pass on; a faulty one overrides what it does wrong."""

    def __init__(self, inner: AnyDecoder) -> None:
        self.inner = inner

    @property
    def needs_data(self) -> bool:
        return self.inner.needs_data

    @property
    def offset(self) -> int:
        return self.inner.offset

    def feed(self, chunk: bytearray) -> int:
        return self.inner.feed(chunk)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        return self.inner.get_buffer(sizehint)

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        return self.inner.get_buffers(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.inner.buffer_updated(nbytes)

    def next_event(self) -> object:
        return self.inner.next_event()

    def receive_eof(self) -> None:
        self.inner.receive_eof()


class DropsAtCut(Wrapper):
    """Loses the first byte of the third chunk and of later ones, and makes one up for it."""

    fed = 0

    def feed(self, chunk: bytearray) -> int:
        self.fed += 1
        return self.inner.feed(chunk if self.fed < 3 else b"\0" + chunk[1:])


class CrashesAtCut(Wrapper):
    """Cannot bear a chunk of one byte."""

    def feed(self, chunk: bytearray) -> int:
        return self.inner.feed(chunk) if chunk[1] else 0


class PullsDifferently(Wrapper):
    """Inverts the last byte of what was written to a buffer, if that is not all of it."""

    def buffer_updated(self, nbytes: int) -> None:
        buffer = self.inner.get_buffer()
        if nbytes < len(buffer):
            buffer[nbytes - 1] ^= 0xFF
        self.inner.buffer_updated(nbytes)


class KeepsChunks(Wrapper):
    def feed(self, chunk: bytearray) -> int:
        self.kept = memoryview(chunk)
        return self.inner.feed(chunk)


class TakesNothing(Wrapper):
    def feed(self, chunk: bytearray) -> int:
        return 0 * len(chunk)


class TakesTooMuch(Wrapper):
    def feed(self, chunk: bytearray) -> int:
        return self.inner.feed(chunk) + 1


class TakesWhatFollows(Wrapper):
    def feed(self, chunk: bytearray) -> int:
        self.inner.feed(chunk)
        return len(chunk)


class CountsWhatFollows(Wrapper):
    """Takes what follows for a part of its message, and says so."""

    taken = 0

    def feed(self, chunk: bytearray) -> int:
        if self.inner.is_complete:
            return 0
        self.inner.feed(chunk)
        self.taken += len(chunk)
        return len(chunk)

    def next_event(self) -> object:
        event = self.inner.next_event()
        return EndOfMessage(nbytes=self.taken) if isinstance(event, EndOfMessage) else event


class TakesAfterTheEnd(Wrapper):
    def feed(self, chunk: bytearray) -> int:
        return self.inner.feed(chunk) or 1


class LeavesBytes(Wrapper):
    def feed(self, chunk: bytearray) -> int:
        return self.inner.feed(chunk[:1])


class GivesEmptyBuffers(Wrapper):
    def get_buffer(self, sizehint: int = -1) -> memoryview:
        return self.inner.get_buffer(sizehint)[:0]


class GivesConstantBuffers(Wrapper):
    def get_buffer(self, sizehint: int = -1) -> memoryview:
        return self.inner.get_buffer(sizehint).toreadonly()


class GivesSignedBuffers(Wrapper):
    def get_buffer(self, sizehint: int = -1) -> memoryview:
        return self.inner.get_buffer(sizehint).cast("b")


class GivesBuffersAfterTheEnd(Wrapper):
    def get_buffer(self, sizehint: int = -1) -> memoryview:
        return self.inner.get_buffer(sizehint) if self.needs_data else memoryview(bytearray(1))


class AlwaysNeedsData(Wrapper):
    @property
    def needs_data(self) -> bool:
        return True


class NeverNeedsData(Wrapper):
    @property
    def needs_data(self) -> bool:
        return False


class SkipsHeader(Wrapper):
    def next_event(self) -> object:
        event = self.inner.next_event()
        return event if event is NEED_DATA else self.inner.next_event()


class RepeatsHeader(Wrapper):
    first: object = None

    def next_event(self) -> object:
        event = self.first or self.inner.next_event()
        self.first = None if self.first or event is NEED_DATA else event
        return event


class ReturnsNoEvent(Wrapper):
    def next_event(self) -> object:
        return NEED_DATA if self.inner.next_event() is NEED_DATA else "event"


class IgnoresTheEndOfInput(Wrapper):
    def receive_eof(self) -> None:
        pass


class GivesTooLongBuffers(Wrapper):
    """Has memory of its own, with room for more than the message, and passes on what has come there."""

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        self.memory = bytearray(len(self.inner.get_buffer(sizehint)) + 3)
        return memoryview(self.memory)

    def get_buffers(self, sizehint: int = -1) -> list[memoryview]:
        return [self.get_buffer(sizehint)]

    def buffer_updated(self, nbytes: int) -> None:
        self.inner.feed(self.memory[:nbytes])


class EndsEarly(Wrapper):
    """Says of its end what is not so."""

    def next_event(self) -> object:
        event = self.inner.next_event()
        return EndOfMessage(nbytes=event.nbytes - 1) if isinstance(event, EndOfMessage) else event


class ForgetsItsError(Wrapper):
    failed = False

    def next_event(self) -> object:
        if self.failed:
            raise RemoteProtocolError("something else", code=ErrorCode.TRUNCATED)
        try:
            return self.inner.next_event()
        except RemoteProtocolError:
            self.failed = True
            raise


class WritesPastOffset(Wrapper):
    """Says that less was taken than was written."""

    @property
    def offset(self) -> int:
        return self.inner.offset // 2


class CountsTwice(Wrapper):
    @property
    def offset(self) -> int:
        return 2 * self.inner.offset
