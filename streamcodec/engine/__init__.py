"""The codec: sans-IO, with numpy and the standard library alone."""
