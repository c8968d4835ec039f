"""The JSON header: read at a glance, by a general parser or block by block, and kept by its exact bytes."""
