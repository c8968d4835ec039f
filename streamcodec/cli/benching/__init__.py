"""Benching: the parts of `streamcodec bench`: what it sends, how it measures, and what it shows."""
