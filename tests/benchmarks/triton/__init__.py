"""A Triton server with models in C, so that what is measured is its front end and not a hop to Python."""
