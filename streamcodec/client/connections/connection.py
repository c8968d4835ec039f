"""Connection: one connection of a client to its server, within an exchange and between two.

A kept connection may have died. The client notices this only with the next request, because the server's close and the
request may cross on the way. Then not a byte of an answer has arrived, and the request is sent again on a new
connection (RFC 9112, section 9.3.1), if that does no harm: if it may run twice, or if the server had closed before the
request came. The system tells: the end of a connection acknowledges all bytes that have come before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from streamcodec.client.exchange import ClientExchange
from streamcodec.client.lane.tensors import Lane
from streamcodec.engine.errors import ErrorCode, MessageError, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.engine.message import Part
from streamcodec.http.client import ClientConnection
from streamcodec.transports.sockets.acknowledged import unacknowledged_bytes
from streamcodec.transports.sockets.unix import AF_UNIX
from streamcodec.transports.sync import input_test
from streamcodec.transports.tls.sockets import Socket, TlsSocket

_ALERT: Final = b"\x15\x03"
"""The first bytes of a TLS alert, which says that the input was not TLS (RFC 8446, section 5.1)."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that have moved, without the overhead of TLS."""

    sent: int = 0
    """Request bytes that the operating system has taken."""
    received: int = 0
    """Bytes of answers, heads included."""
    copied: int = 0
    """Those of the received bytes that were copied in user space."""

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sum."""
        return Traffic(self.sent + other.sent, self.received + other.received, self.copied + other.copied)


class Sending(Protocol):
    """An object that sends a request."""

    @property
    def sent(self) -> int:
        """Bytes that the operating system has taken so far."""
        ...


class Connection:
    """A socket with its protocol.

    Attributes:
        socket: non-blocking.
        http: the protocol.
        is_kept: whether an exchange has ended well here before.
        sending: sends the request of the current exchange.
        lane: the memory that is shared with the server; None if there is none.
    """

    def __init__(self, sock: Socket, limits: Limits, *, is_paced: bool) -> None:
        """Begin on a connected socket."""
        self.socket = sock
        self.http: ClientConnection = ClientConnection(limits, paced=is_paced)
        self.is_kept = False
        self.sending: Sending | None = None
        self.lane: Lane | None = None
        self._is_paced = is_paced
        self._sent = 0
        self._has_input = input_test(sock)

    def start(self, exchange: ClientExchange) -> list[Part]:
        """Begin an exchange; return the parts to send."""
        return exchange.start(self.http, paced=self._is_paced, lane=self.lane)

    @property
    def is_usable(self) -> bool:
        """Whether the next exchange can begin, as far as is visible. Ask only between two exchanges."""
        return self.http.is_reusable and not self._has_input()

    @property
    def is_worth_keeping(self) -> bool:
        """Whether another exchange may follow the one that has ended: both sides permit it, and it is open here."""
        return self.http.is_reusable and self.socket.fileno() >= 0

    def may_have_died(self, exchange: ClientExchange, error: Exception) -> bool:
        """Tell whether an exchange that has failed here can be repeated on another connection.

        Args:
            exchange: begun here.
            error: the error while receiving.
        """
        if not (self.is_kept and exchange.is_repeatable and exchange.is_silent):
            return False
        return exchange.may_run_twice or self._was_closed_before(error)

    def _was_closed_before(self, error: Exception) -> bool:
        """Whether the server had closed before the first byte of a request came to it, as far as the system tells.

        A reset acknowledges nothing, so after one nobody knows. Nor with TLS, whose bytes are others.
        """
        sent = 0 if self.sending is None else self.sending.sent
        if not sent:
            return True
        is_end = isinstance(error, MessageError) and not isinstance(self.socket, TlsSocket)
        return is_end and unacknowledged_bytes(self.socket) == sent

    def failure(self, exchange: ClientExchange, error: Exception, lost: ConnectionError | None) -> Exception:
        """Return what to raise for an error that has ended an exchange early.

        Args:
            exchange: if the server has refused it, this matters more than how the connection ended.
            error: the error while receiving.
            lost: the error while sending.
        """
        refusal = exchange.refusal(error)
        if refusal is not None:
            return refusal
        if lost is not None:
            return lost
        if isinstance(error, MessageError) and self._expects_tls(exchange, error):
            return RemoteProtocolError(f"{error.message}; the server may expect TLS: https://", code=error.code)
        return error

    def end(self) -> None:
        """Report that the exchange is over."""
        if self.sending is not None:
            self._sent += self.sending.sent
            self.sending = None

    @property
    def traffic(self) -> Traffic:
        """The bytes that have moved here so far. Another thread may ask, except during `end`."""
        sending, incoming = self.sending, self.http.incoming
        sent = self._sent + (0 if sending is None else sending.sent)
        return Traffic(sent, incoming.received, incoming.received_copied)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def _expects_tls(self, exchange: ClientExchange, error: MessageError) -> bool:
        """Tell whether a server that has not answered in HTTP behaves like one that expects TLS."""
        if isinstance(self.socket, TlsSocket) or self.socket.family == AF_UNIX or self.is_kept:
            return False
        has_hung_up = error.code is ErrorCode.CONNECTION_CLOSED and exchange.is_silent
        return has_hung_up or self.http.incoming.begun(len(_ALERT)) == _ALERT
