"""The three clients that KServe's documentation of the Binary Tensor Data Extension shows, against our server.

Python with `requests`, JavaScript with `fetch` (in Node, and in a page in Chromium, under CORS), and Go with
`net/http`. All three send the headerless form: JSON, and right behind it the tensors, without
Inference-Header-Content-Length.

Each is a program of this folder in its own language. It can do what that page shows, byte for byte (`test_wire.py`),
and whatever else of the protocol is possible in that language with the means that come with it. The programs judge
nothing: they do one job after the other and say what the server answered, and the tests, which are the same for all of
them wherever that is possible, know what it should have been. `jobs.py` describes what is said between them.
"""
