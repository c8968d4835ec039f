"""Clients: both of ours and the drop-in of tritonclient, with a server that closes, delays and resets at random.

`python -m tests.soak.clients --seconds 120`. What a client promises, and what is counted:

- nothing is lost: each call ends, with the right result or with an error that its page names;
- nothing is doubled: the server counts executions by id;
- nothing is left: sockets, threads, tasks, places of the pool, memory.
"""
