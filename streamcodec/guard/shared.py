"""Shared: what the connections of one guard have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamcodec.engine.limits import Limits
from streamcodec.guard.relaying.requests import PlainAnswers, PlainRequests
from streamcodec.guard.rules.gate import Gate
from streamcodec.guard.upstream import Upstream
from streamcodec.runtime.options import ServerOptions
from streamcodec.server.connection.admission import Admission
from streamcodec.server.connection.dates import Dates
from streamcodec.server.connection.disconnects import DisconnectWatcher
from streamcodec.server.sockets.securing import Complaints
from streamcodec.service.replies import Reply
from streamcodec.transports.sockets.pipes import Pipes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The parts of a guard that all of its links use."""

    upstream: Upstream
    """The server behind."""
    admission: Admission
    """Decides which connections are served."""
    options: ServerOptions
    """Times of the clients."""
    limits: Limits
    """Of their requests."""
    dates: Dates
    """Give the `Date` of the guard's own answers."""
    complaints: Complaints
    """Takes the lines of the log about the server behind."""
    disconnects: DisconnectWatcher
    """Notices a client that has gone while the server behind works."""
    gate: Gate
    """Decides on heads."""
    requests: PlainRequests
    """Recognizes those that a relay passes on."""
    answers: PlainAnswers
    """Recognizes those that it passes back."""
    pipes: Pipes
    """Move bytes that need no check."""
    pages: Mapping[str, Callable[[], Reply]]
    """Of the guard's own, by their paths."""
