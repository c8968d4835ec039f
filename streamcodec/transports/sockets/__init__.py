"""Sockets, shared memory, and what the system tells about them."""
