"""Garbage: memory that has ceased to count, and waits for the garbage collector."""
