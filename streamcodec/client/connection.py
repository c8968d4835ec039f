"""Connection: one connection of a client to its server, between two exchanges and within one.

It may have died while it was kept, which nobody notices before the next request: the server's end of it and that
request passed each other on the way. Then not a byte of an answer has come, and the request may be sent again on a new
connection (RFC 9112, section 9.3.1), if it can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from streamcodec.client.exchange import Exchange
from streamcodec.engine.errors import ErrorCode, MessageError, RemoteProtocolError
from streamcodec.engine.limits import Limits
from streamcodec.engine.message import Part
from streamcodec.http.client import ClientConnection
from streamcodec.transports.sync import has_input
from streamcodec.transports.tls import Socket, TlsSocket

_ALERT: Final = b"\x15\x03"
"""How TLS says that it has not understood (RFC 8446, section 5.1)."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that have moved. What TLS adds is not among them."""

    sent: int = 0
    """Taken by the system."""
    received: int = 0
    """Of answers, heads and all."""
    copied: int = 0
    """Of those, the ones that were copied in user space."""

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sum."""
        return Traffic(self.sent + other.sent, self.received + other.received, self.copied + other.copied)


class Sending(Protocol):
    """Whatever sends a request."""

    @property
    def sent(self) -> int:
        """Bytes that the system has taken so far."""
        ...


class Connection:
    """A socket, and what is spoken there.

    Attributes:
        socket: non-blocking.
        http: the protocol.
        is_kept: whether an exchange has ended well here before.
        sending: sends the request of the exchange that is under way.
    """

    def __init__(self, sock: Socket, limits: Limits, *, is_paced: bool) -> None:
        """Begin on a socket that is connected."""
        self.socket = sock
        self.http: ClientConnection = ClientConnection(limits, paced=is_paced)
        self.is_kept = False
        self.sending: Sending | None = None
        self._is_paced = is_paced
        self._received = 0
        self._sent = 0

    def start(self, exchange: Exchange) -> list[Part]:
        """Begin an exchange; return what is to be sent."""
        self._received = self.http.incoming.received
        return exchange.start(self.http, paced=self._is_paced)

    @property
    def is_usable(self) -> bool:
        """Whether the next exchange can begin, as far as one can see; to be asked between two of them only."""
        return self.http.is_reusable and not has_input(self.socket)

    def may_have_died(self, exchange: Exchange) -> bool:
        """Tell whether an exchange that has failed here can be begun anew elsewhere."""
        return self.is_kept and exchange.is_repeatable and self._is_silent

    def failure(self, exchange: Exchange, error: Exception, lost: ConnectionError | None) -> Exception:
        """Return what to raise for an error that has ended an exchange early.

        Args:
            exchange: that the server refuses matters more than how the connection ended.
            error: met while receiving.
            lost: met while sending.
        """
        refusal = exchange.refusal(error)
        if refusal is not None:
            return refusal
        if lost is not None:
            return lost
        if isinstance(error, MessageError) and self._expects_tls(error):
            return RemoteProtocolError(f"{error.message}; the server may expect TLS: https://", code=error.code)
        return error

    def end(self) -> None:
        """Tell that the exchange is over."""
        if self.sending is not None:
            self._sent += self.sending.sent
            self.sending = None

    @property
    def traffic(self) -> Traffic:
        """What has moved here so far. Another thread may ask, but not while this one says `end`."""
        sending, incoming = self.sending, self.http.incoming
        sent = self._sent + (0 if sending is None else sending.sent)
        return Traffic(sent, incoming.received, incoming.received_copied)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    @property
    def _is_silent(self) -> bool:
        """Whether nothing has come since the exchange began."""
        return self.http.incoming.received == self._received

    def _expects_tls(self, error: MessageError) -> bool:
        """Tell whether a server that has not answered in HTTP behaves as one that wants TLS."""
        if isinstance(self.socket, TlsSocket) or self.is_kept:
            return False
        has_hung_up = error.code is ErrorCode.CONNECTION_CLOSED and self._is_silent
        return has_hung_up or self.http.incoming.begun(len(_ALERT)) == _ALERT
