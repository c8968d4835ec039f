"""`streamcodec serve` and `streamcodec guard`."""
