"""Differential: what a request is answered after any history, held against what a server without a history answers it.

A short cut may save work, never decide. So the answer to a request, what an observer is told of it, and the state of
its connection afterwards may not depend on what anybody has sent before, on who else is being served, or on where the
bytes were cut. `machine` plays histories that Hypothesis draws against each way in, and compares each answer with that
of a fresh server to this one request alone. It knows nothing of the product but sockets and public classes.

    python -m tests.differential --examples 2000 --front uvicorn
"""
