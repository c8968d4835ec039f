"""The budget, shared memory and uploads of a server."""
