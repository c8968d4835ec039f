"""Sources: the documents that define the rules, by their names in reports."""

from __future__ import annotations

from typing import Final

BINARY: Final = "Binary Tensor Data Extension"
V2: Final = "V2 inference protocol"
JSON: Final = "RFC 8259"
MESSAGING: Final = "RFC 9112"
SEMANTICS: Final = "RFC 9110"
UTF8: Final = "RFC 3629"
GZIP: Final = "RFC 1952"
ZLIB: Final = "RFC 1950"
CAUTION: Final = "no request may crash a server"
