"""Listening, accepting, TLS, and the sockets that processes hand to each other."""
