"""Requests that are passed on within callbacks, without a task."""
