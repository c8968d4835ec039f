"""One request for inference, from its head to its reply."""
