"""Black box: malformed and boundary requests for any V2 server, and what its answers mean.

What stands here knows a server by its address alone. A *probe* is one request with a name, the rule that it is about,
and what a careful server does with it; `learning` finds out the model's inputs, so that `target` can make everything
else about the request as the model wants it; `wire` sends it over a socket of its own and reads what comes; `verdicts`
compares the two; after each probe `examination` asks whether the server still lives and still answers a good request
as before; `report` writes it down.

Nothing in this room knows our own server, and nothing is sent to an address that its user has not named.
`streamcodec.cli.fuzz` is its face.
"""
