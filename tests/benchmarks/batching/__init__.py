"""Batches next to PyTriton, LitServe, mosec and Ray Serve."""
