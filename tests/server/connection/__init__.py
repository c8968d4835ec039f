"""One connection: its requests, its times, and its end."""
