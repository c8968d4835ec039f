"""Tensors in memory that client and server share."""
