"""`streamcodec infer` and `streamcodec encode`."""
