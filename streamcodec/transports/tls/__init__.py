"""TLS for sockets and transports."""
