"""Formats: what a message is, each on the public hook of the engine."""
