"""Requests that come in several messages."""
