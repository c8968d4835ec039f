"""One connection of the bundled server, from its first request to its last."""
