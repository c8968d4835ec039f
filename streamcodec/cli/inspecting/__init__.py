"""`streamcodec inspect`."""
