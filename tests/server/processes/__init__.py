"""The server as a program: workers, signals, the log."""
