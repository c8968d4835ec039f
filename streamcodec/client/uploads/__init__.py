"""Requests that go on where their connection broke."""
