"""Listening, accepting, TLS."""
