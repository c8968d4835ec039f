"""Batches: requests of several clients that a model is called with together."""
