"""Embedding: the service within the servers of others, each a process of its own."""
