"""Black box: malformed and boundary requests for any V2 server, and a check of its answers.

Only the address of the server is known. A *probe* is one request, with a name, the rule that it tests, and the expected
answer. `learning` finds the model's inputs. `target` makes requests that the model accepts, so that only the probed
part is wrong. `wire` sends a request over a socket of its own, and reads the answer. `verdicts` compares the answer
with the expected one. After each probe, `examination` checks whether the server is still alive and still answers a good
request as before. `report` writes the results.

This package does not know this project's own server. It sends nothing to an address that the user has not given.
`streamcodec.cli.fuzz` is its command line.
"""
