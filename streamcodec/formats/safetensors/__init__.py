"""The safetensors format, read from a stream and written as buffers.

A file is the length of a JSON text as 8 little-endian bytes, the text, and the tensors. The text is an object with an
entry for each tensor (`dtype`, `shape`, `data_offsets`), and with `__metadata__`, an object of strings. The tensors
fill the rest of the file without holes, in any order of the entries.

The checks are those of the format's reference implementation. A few checks are stricter: the text begins with `{`,
there is no duplicate key, an entry is an object, and a byte of BOOL is 0 or 1. Unknown members of an entry are ignored,
as in the reference implementation. A type of less than a byte (`F4`, `F6_E2M3`) has no dtype in numpy, and is refused.

A paced decoder parses the text in one go, 20 to 50 ms for each megabyte, and checks its entries in turns.
`Limits.max_header_bytes` bounds the text.
"""

from streamcodec.formats.safetensors.reading import SafetensorsHeader, decoder, read, read_end
from streamcodec.formats.safetensors.writing import encode

__all__ = ["SafetensorsHeader", "decoder", "encode", "read", "read_end"]
