"""Where the bytes of a tensor go."""
