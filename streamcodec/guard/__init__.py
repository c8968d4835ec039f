"""The guard: a proxy that checks requests of the V2 protocol while it passes them on, for servers that do not.

A request is checked by the same rules as by the server of this package. Tensors of any size pass through constant
memory. These files decide, and know no sockets.
"""
