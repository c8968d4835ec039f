"""Where models run: threads, the event loop, and how long a call may take."""
