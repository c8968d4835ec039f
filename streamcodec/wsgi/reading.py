"""Reading: the thread of a WSGI request brings its body, and waits for it: for bytes, and for memory.

It does what a `FrameworkRequest` says, as a task does under an event loop (`embedding.reading`). Only the waits differ:
the thread itself reads and works, and no code here can interrupt a read: only the server's own time limits can. After
each read, this module looks whether the client is fast enough for the memory that it holds.

If the server's stream has `readinto`, bytes of long bodies go directly into the receiver's memory. Else they are read
in pieces. Many streams return only when they have all bytes that were asked for. So a wrong request is refused the
sooner, the smaller the reads are. A read of a long body asks for what is needed next, which is the JSON header at
first, or for as much as has come before. No read asks for more than the rest of the body: with a server that does not
end its stream, it would block for ever.

WSGI (PEP 3333) hides some parts of a head. Fields of one name are joined by commas; where only one field is allowed,
the joined text is refused as malformed. Servers drop fields with underscores in their names, because these look like
fields with dashes. The path is decoded. Most servers add the path as it was sent, as `RAW_URI` or `REQUEST_URI`. It is
used only if it decodes to the same path, because software between server and application may have changed the decoded
path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from time import monotonic
from typing import Any, Final, Protocol, TypeVar, cast
from urllib.parse import quote, unquote_to_bytes

from streamcodec.embedding.request import FrameworkRequest, Step
from streamcodec.engine.errors import ErrorCode, RemoteProtocolError
from streamcodec.engine.events import NEED_DATA, NEED_TURN
from streamcodec.engine.limits import Limits
from streamcodec.formats.v2.model import Event
from streamcodec.http.bodies.fed import FedBody, fed_head
from streamcodec.http.heads.messages import RequestHead
from streamcodec.runtime.memory.waiting import block_for_memory
from streamcodec.runtime.observation import format_address
from streamcodec.runtime.options import ServerOptions
from streamcodec.runtime.timeouts import ReadTimeout, too_slow
from streamcodec.service.request.exchange import ExchangeStep
from streamcodec.service.routes import without_origin

Environ = dict[str, Any]


class StartResponse(Protocol):
    """Begins an answer."""

    def __call__(self, status: str, headers: list[tuple[str, str]], /) -> Callable[[bytes], object]:
        """Take status and fields. Only old applications use the returned function."""
        ...


_BEFORE: Final = (("CONTENT_TYPE", b"content-type"), ("CONTENT_LENGTH", b"content-length"))
"""Variables of fields that have no prefix."""
_BEHIND_PREFIX: Final = {"HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE"}
"""Variables that some servers give in addition."""


def head_of(environ: Environ, limits: Limits) -> RequestHead:
    """Return the head of a request; its target begins below the path that the application is mounted at.

    Raises:
        MessageError: a connection of the bundled server would refuse this head, too; or `length-required`, for a
            body in chunks from a server that does not say where it ends.
    """
    version: str = environ.get("SERVER_PROTOCOL", "HTTP/1.1")
    head = fed_head(
        environ["REQUEST_METHOD"],
        _target(environ),
        _fields_of(environ),
        http_version=version.removeprefix("HTTP/"),
        limits=limits,
    )
    if head.content_length is None and not environ.get("wsgi.input_terminated"):
        msg = "a body without Content-Length cannot be read: the server does not say where it ends"
        raise RemoteProtocolError(msg, code=ErrorCode.LENGTH_REQUIRED, status_hint=411)
    return head


def client_of(environ: Environ) -> str:
    """Return address and port of the client; empty if the server does not know them."""
    host, port = environ.get("REMOTE_ADDR") or "", environ.get("REMOTE_PORT")
    if not host or not port:
        return str(host)
    return format_address(host, port)


def _fields_of(environ: Environ) -> list[tuple[bytes, bytes]]:
    """Return the fields of a head."""
    found = [(name, value.encode("latin-1")) for variable, name in _BEFORE if (value := environ.get(variable))]
    for variable, value in environ.items():
        if variable[:5] == "HTTP_" and variable not in _BEHIND_PREFIX:
            found.append((_name_of(variable), value.encode("latin-1")))
    return found


@lru_cache(maxsize=256)
def _name_of(variable: str) -> bytes:
    return variable[5:].lower().replace("_", "-").encode("latin-1")


def _target(environ: Environ) -> str:
    """Return path and query, still percent-encoded."""
    mount: str = environ.get("SCRIPT_NAME", "")
    path: str = environ.get("PATH_INFO", "")
    query: str = environ.get("QUERY_STRING", "")
    raw = _raw_path(environ)
    if raw is not None and unquote_to_bytes(raw).decode("latin-1") == mount + path:
        # By segments: a character may be percent-encoded in one of the two and not in the other.
        target = "/" + "/".join(raw.split("/")[1 + mount.count("/") :])
    else:
        target = quote(path.encode("latin-1"))
    return f"{target}?{query}" if query else target


def _raw_path(environ: Environ) -> str | None:
    """Return the path as it was sent, if the server says it, without scheme and host of an absolute one."""
    raw: str | None = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    if raw is None:
        return None
    return without_origin(raw.partition("?")[0])


READ_BYTES: Final = 4 << 20
"""Most bytes of a read. gunicorn copies what it holds of a body in each read, so reads of 256 KiB take 1.5 times as
much CPU."""

_SHORT_BYTES: Final = 64 << 10
"""So much of a body is read at once, to its end: to refuse it earlier would save less than a second read costs. If one
read may bring all of a body, it is read as one whose head is known, so both have the same time."""

_T = TypeVar("_T")


class Readable(Protocol):
    """`wsgi.input`; some also have `readinto`."""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes; fewer only at the end, or if no more have arrived."""
        ...


class PeekedStream:
    """A stream from which a whole body has been read, or what there was of it. It returns these bytes once more.

    Attributes:
        body: the bytes.
        is_whole: whether they are the whole body.
        waited: from when to when they were read; None for a whole body, whose time nobody asks for.
    """

    def __init__(self, stream: Readable, length: int) -> None:
        """Read so many bytes. An error is raised by the next read: a read after it would not say the same."""
        since = monotonic()
        self._stream = stream
        self._failure: Exception | None = None
        self.body: bytes = b""
        try:
            self.body = stream.read(length)
        except (OSError, MemoryError) as error:
            self._failure = error
        self._begun = self.body
        self.is_whole: bool = len(self.body) == length
        self.waited: tuple[float, float] | None = None if self.is_whole else (since, monotonic())

    def read(self, size: int, /) -> bytes:
        """Return some of the bytes; when there are no more, read on."""
        failure, self._failure = self._failure, None  # its traceback refers to this object
        if failure is not None:
            raise failure
        if not self._begun:
            return self._stream.read(size)
        piece, self._begun = self._begun[:size], self._begun[size:]
        return piece


class ThreadReader:
    """Reads one request."""

    def __init__(self, request: FrameworkRequest, stream: Readable, options: ServerOptions) -> None:
        """Begin after the head; for the arguments see `TaskReader`."""
        self._request = request
        self._stream = stream
        self._read_into: Callable[[memoryview], int | None] | None = getattr(stream, "readinto", None)
        self._budget_timeout = options.budget_timeout
        self._read_timeout = ReadTimeout(options, request)
        if isinstance(stream, PeekedStream) and stream.waited is not None:
            self._read_timeout.has_waited(*stream.waited)

    def next_step(self) -> Step:
        """Return `CALL` or `ANSWER`; see `TaskReader`."""
        request = self._request
        while (step := self._until(request.next_step)) is ExchangeStep.WAIT:
            request.granted(has_come=block_for_memory(request.reservation, self._budget_timeout))
        return step

    def next_event(self) -> Event:
        """Return the next event of the body, for a model that takes windows."""
        return cast("Event", self._until(self._body.next_event))

    @property
    def _body(self) -> FedBody:
        return cast("FedBody", self._request.body)

    def _until(self, go_on: Callable[[], _T]) -> _T:
        """Read and work until there is something else to do, and return that."""
        while (found := go_on()) is NEED_DATA or found is NEED_TURN:
            if found is NEED_DATA:
                self._wait_for_bytes()
            else:
                self._body.work()
        return found

    def _wait_for_bytes(self) -> None:
        """Read once, and look how long that took.

        Raises:
            RemoteProtocolError: the connection is broken, or `too-slow`.
        """
        read_timeout, reservation = self._read_timeout, self._request.reservation
        reservation.begin_to_wait()
        read_timeout.resume()
        try:
            read_timeout.look(monotonic())
            self._read()
            if not self._body.has_ended:
                read_timeout.look(monotonic())
        except TimeoutError:
            raise self._request.too_slow() from None
        finally:
            read_timeout.pause(monotonic())
            reservation.end_to_wait()

    def _read(self) -> None:
        """Read some bytes of the body, or report to it the end of the input.

        Raises:
            RemoteProtocolError: the connection is broken, or the server has waited too long for a byte.
        """
        body = self._body
        left = READ_BYTES if body.remaining is None else min(body.remaining, READ_BYTES)
        if left > max(_SHORT_BYTES, body.received):
            left = min(left, max(len(body.get_buffer()), body.received))
        is_short = body.remaining is not None and body.received + body.remaining <= _SHORT_BYTES
        try:
            if left and self._read_into is not None and not is_short:
                if nbytes := self._read_into(body.get_buffer(left)[:left]):
                    body.buffer_updated(nbytes)
                else:
                    body.receive_eof()
            elif left and (data := self._stream.read(left)):
                body.feed(data)
            else:
                body.receive_eof()
        except TimeoutError:
            raise too_slow(self._request.phase, ": no byte within the time limit of the server") from None
        except OSError:
            msg = "the body of the request cannot be read to its end"
            raise RemoteProtocolError(msg, code=ErrorCode.CONNECTION_CLOSED) from None
