"""Makes the fuzz targets importable: `fuzz/` is a folder of programs beside the package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz"))
