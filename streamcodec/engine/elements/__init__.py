"""Elements: the values of BYTES, each with its length before it."""
