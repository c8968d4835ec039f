"""Batches: requests that wait for a common call of their model, on event loops and in threads."""
