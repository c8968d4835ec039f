"""TLS wire: HTTP on a raw socket with TLS."""

from __future__ import annotations

import ssl

from tests.server.wire import Wire
from tests.transports.certificates import client_side


class TlsWire(Wire):
    """A wire with TLS."""

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext | None = None) -> None:
        super().__init__(address)
        try:
            self.tls = (context or client_side()).wrap_socket(
                self.sock, server_hostname="localhost", suppress_ragged_eofs=False
            )
        except BaseException:
            self.sock.close()
            raise
        self.sock = self.tls
