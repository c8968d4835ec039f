"""The server as a program: signals, workers that are watched and replaced, and the access log."""
