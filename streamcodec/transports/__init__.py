"""Transports: thin drivers that move bytes between sockets or files and the sans-IO connections and decoders."""
