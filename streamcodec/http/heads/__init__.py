"""The heads of messages: what they say, how they are read, and what a status allows."""
