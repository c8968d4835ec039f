"""The bodies of messages: their framing is taken off, and their bytes go to a receiver."""
