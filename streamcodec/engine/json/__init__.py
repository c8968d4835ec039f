"""JSON: strict text, its depth and its structure, found while it comes in."""
