"""Platforms: other processors, under an emulator. Not a part of any round: `tests/platforms/run` is started by hand."""
