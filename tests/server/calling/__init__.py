"""Models that are called by the server."""
