"""Streaming, zero-copy codec for the Binary Tensor Data Extension of the V2 inference protocol.

This module is the whole public codec. It needs numpy alone; `streamcodec.http`, `streamcodec.service`,
`streamcodec.client` and `streamcodec.server` add HTTP, the V2 service and programs, and import h11 and anyio.

The names come from `streamcodec.codec` when the first of them is asked for, or those that need no numpy from
`streamcodec.basics`. For Python imports this module before `streamcodec.cli`, which must mind Ctrl-C before numpy is
imported, and whose `--help` needs no numpy at all. Nor do `streamcodec.http`, and what forwards frames.
"""

import importlib
import typing

__version__ = "0.1.0"

if typing.TYPE_CHECKING:
    from streamcodec.codec import *  # noqa: F403 - they are named there
    from streamcodec.codec import __all__ as __all__
else:  # to type checkers, a module with `__getattr__` has every name

    def __getattr__(name: str) -> object:
        """Load the names of the codec."""
        if name == "__all__" or not name.startswith("__"):  # the import system and tools look for others
            basics = importlib.import_module("streamcodec.basics")
            globals().update({each: getattr(basics, each) for each in basics.__all__})
            if name not in basics.__all__:
                codec = importlib.import_module("streamcodec.codec")
                globals().update({each: getattr(codec, each) for each in ("__all__", *codec.__all__)})
        if name in globals():
            return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Name what would be loaded, too."""
        return sorted({*globals(), *__getattr__("__all__")})
