"""Tensors as JSON: read and written piece by piece, or at once if they are small."""
