"""Making a call again: after a failure, or beside an attempt that is slow."""
