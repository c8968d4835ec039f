"""The memory of requests: how much they take, how much there is, and where it is."""
