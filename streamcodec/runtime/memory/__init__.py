"""Waiting for memory, and sharing it between threads."""
