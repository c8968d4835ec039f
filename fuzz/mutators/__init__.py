"""Mutators that know a format: they edit its JSON, and then make lengths, sizes and offsets right again."""
