"""Write the tensors of a request to .npy files: `... | python pipe_to_npy.py HEADER_LENGTH [FOLDER]`.

For a device with little memory. The body of a request comes through a pipe; HEADER_LENGTH is the value of its field
`Inference-Header-Content-Length`. Each tensor is received straight into a memory-mapped file, so that the system can
write it to disk and take the memory back while the rest is still coming. The codec alone does this: only numpy is
needed.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from urllib.parse import quote

from streamcodec import (
    NEED_DATA,
    EndOfMessage,
    ErrorCode,
    Limits,
    MemoryMap,
    MessageError,
    Placement,
    RemoteProtocolError,
    RequestHeader,
    TensorSpec,
    request_decoder,
)

# The header is held in memory; the limit of a tensor is for the disk.
LIMITS = Limits(max_header_bytes=1 << 20, max_tensor_bytes=8 << 30)


def check(header: RequestHeader) -> None:
    """Refuse what a .npy file cannot hold; called before anything is written."""
    for index, spec in enumerate(header.tensors):
        if spec.datatype.is_bytes:
            path = f"$.inputs[{index}].datatype"
            raise RemoteProtocolError("BYTES have no place here", code=ErrorCode.MODEL_MISMATCH, path=path)


def save(source: io.RawIOBase, header_length: int, folder: Path) -> None:
    """Read one message; raises `RemoteProtocolError` if it breaks a rule."""

    def place(spec: TensorSpec) -> Placement:
        # The sender chooses the name: it may name no other folder.
        return MemoryMap(folder / f"{quote(spec.name, safe=' ')}.npy")

    decoder = request_decoder(header_length=header_length, body_length=None, limits=LIMITS, check=check, place=place)
    while not isinstance(event := decoder.next_event(), EndOfMessage):
        if event is NEED_DATA:
            if nbytes := source.readinto(decoder.get_buffer()):
                decoder.buffer_updated(nbytes)
            else:
                decoder.receive_eof()


def main() -> int:
    """Save what comes through standard input; return the exit status."""
    header_length, folder = int(sys.argv[1]), Path(*sys.argv[2:])
    try:
        with open(0, "rb", buffering=0, closefd=False) as pipe:
            save(pipe, header_length, folder)
    except MessageError as error:
        sys.stderr.write(f"{error.code}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
