"""Batches, sans-IO: which requests go together, when, and what each of them gets."""
