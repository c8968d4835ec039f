"""gzip and deflate, in bounded pieces."""
