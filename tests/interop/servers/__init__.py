"""Our clients against foreign servers: Triton and KServe's ModelServer, each a process of its own with our models."""
