"""A soak in little memory: a server in a small group or address space, under load that wants more than there is."""
