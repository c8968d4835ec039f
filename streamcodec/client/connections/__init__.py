"""Reaching a server, and keeping connections to it."""
