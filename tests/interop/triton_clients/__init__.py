"""Triton's own clients, `tritonclient.http` and `tritonclient.http.aio`, unmodified, against our server.

Each test runs with both; their calls are the same but for `await`. What they cannot do, or do in a way of their own, is
a test with a name that says so.
"""
