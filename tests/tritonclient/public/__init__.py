"""Public: the published examples and tests of Triton's client, by tritonclient and with the import line changed.

`python -m tests.tritonclient.public --client CHECKOUT --server CHECKOUT` runs them from checkouts of the repositories
triton-inference-server/client and triton-inference-server/server, against a real Triton whose models are our own.
Nothing of these repositories is here.
"""
